"""Which regular expressions of clients reach PostgreSQL."""

import contextlib
import re
import time

import pytest
import sqlalchemy as sa
from hypothesis import given
from hypothesis import strategies as st

from roost.errors import Invalid
from roost.store import patterns
from roost.store.database import Database

NAME = sa.column("name", sa.Text)

SAFE = {
    "web": ["web-1", "my web", "web11"],
    "^web": ["web-1", "web11"],
    "^(web|db).1$": ["web-1", "web11", "db.1"],
    "^(w|d)eb[0-9]+": ["web11"],
    "web$": ["my web"],
    "^web-1$": ["web-1"],
    "^web.*1$": ["web-1", "web11"],
    "^web.?1$": ["web-1", "web11"],
    "^web[0-9-]+$": ["web-1", "web11"],
    "^[^w]": ["my web", "db.1"],
    r"db\.1": ["db.1"],
    r"^web\d\d$": ["web11"],
    "^my|^db": ["my web", "db.1"],
    "": ["web-1", "my web", "web11", "db.1"],
}
BOMBS = [
    r"^(a*)(a*)(a*)(a*)(a*)(a*)b\1\2\3\4\5\6!$",
    "(a+)+$",
    r"(.)\1",
    r"\1",
    "a{1000}",
    "((a{1,100}){1,100}){1,100}",
    "(?i)a",
    "***:(?i)a",
    "a**",
    "[[:alpha:]]",
    r"\mweb",
    "(",
    "(a|b)*",
    "((a))",
    "a^b",
    "x" * 254 + ".*",
]


@pytest.mark.parametrize(("pattern", "expected"), SAFE.items())
async def test_safe_patterns_find_what_they_say(database: Database, pattern: str, expected: list[str]) -> None:
    rows = sa.values(NAME, name="names").data([("web-1",), ("my web",), ("web11",), ("db.1",)])
    async with database.begin() as connection:
        query = sa.select(rows.c.name).where(patterns.matches(rows.c.name, pattern))
        assert list((await connection.execute(query)).scalars()) == expected


@pytest.mark.parametrize("pattern", BOMBS)
def test_everything_else_is_refused_with_what_is_allowed(pattern: str) -> None:
    with pytest.raises(Invalid, match="no other parentheses, no braces, no back-references"):
        patterns.matches(NAME, pattern)


@given(st.text(alphabet=r"ab.[]^$*+?|\-{}()0", max_size=60))
def test_what_is_accepted_never_groups_counts_or_refers_back(pattern: str) -> None:
    try:
        patterns.matches(NAME, pattern)
    except Invalid:
        return
    outside = re.sub(r"\\.|\[\^?\]?[^\]]*\]", "", pattern)
    assert not set(outside) & set("{}")
    assert re.search(r"\)[*+?]|\([^)]*\(", outside) is None
    assert re.search(r"[*+?]{2}", outside) is None


def test_reading_a_hostile_pattern_takes_no_time() -> None:
    started = time.thread_time()
    hostile = ("a" * 255, "[" * 255, "[^]" * 85, "\\" * 255, ".*" * 127 + "(", "[a]*" * 63 + "(", "[^a]" * 63 + "(")
    for pattern in (*hostile, "[]a]" * 63 + "(", "[^]a]" * 50 + "("):
        with contextlib.suppress(Invalid):
            patterns.matches(NAME, pattern)
    assert time.thread_time() - started < 0.1
