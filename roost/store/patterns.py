"""Regular expressions from clients, which PostgreSQL evaluates: only those that cannot keep it busy.

Nova's `name` filter is a regular expression. PostgreSQL needs exponential time for some of them, above all those with
back-references. Without back-references, nested quantifiers and counts (`{2,9}`) a short pattern is a small automaton,
and matching takes time in proportion to the text.
"""

import re
from typing import Any

import sqlalchemy as sa

from roost.errors import Invalid

_LONGEST = 255
_PLAIN = re.compile(r"[\w -]*")
# Checking a pattern takes time in proportion to its length: atomic groups keep it from backtracking.
_ATOM = r"(?>\\[^\w]|\\[dws]|\[\^?+\]?+[^\]\[\\]*+\]|[^\\\[\](){}|*+?^$])[*+?]?+"
_CHOICE = rf"\((?:{_ATOM})*(?:\|(?:{_ATOM})*)*\)(?![*+?])"
_ALTERNATIVE = rf"\^?(?:{_ATOM}|{_CHOICE})*\$?"
_SAFE = re.compile(rf"{_ALTERNATIVE}(?:\|{_ALTERNATIVE})*", re.DOTALL)
ALLOWED = (
    f"at most {_LONGEST} characters: literal text, '.', character classes such as [a-z], each followed by '*', '+' or "
    "'?' if need be, '^' and '$' at the ends, '|' between alternatives, and such alternatives once in parentheses; no "
    "other parentheses, no braces, no back-references"
)


def is_plain(pattern: str) -> bool:
    """Whether this is text to look for, and no regular expression."""
    return _PLAIN.fullmatch(pattern) is not None


def matches(column: sa.ColumnElement[Any], pattern: str) -> sa.ColumnElement[bool]:
    """The rows in which the pattern occurs. Raises `Invalid` for a pattern that is not allowed."""
    if is_plain(pattern):
        return column.contains(pattern, autoescape=True)
    if len(pattern) > _LONGEST or not _SAFE.fullmatch(pattern):
        raise Invalid(f"Invalid regular expression '{pattern[:_LONGEST]}': use {ALLOWED}.")
    return column.regexp_match(pattern)
