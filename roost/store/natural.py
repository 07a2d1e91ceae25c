"""Names in the order in which people count: host2 comes before host10."""

import sqlalchemy as sa

_DIGITS = 20
_LONGEST = 600
"""Of what is sorted by: what an index can hold is limited, and a name may be nothing but numbers."""


def expression(name: str) -> str:
    """What to sort a name by, in SQL as the indexes have it: all numbers in it are made equally long."""
    padded = rf"regexp_replace({name}, '(\d+)', '{'0' * _DIGITS}\1', 'g')"
    return rf"left(regexp_replace({padded}, '\d*(\d{{{_DIGITS}}})', '\1', 'g'), {_LONGEST})"


def natural(column: sa.Column[str]) -> sa.ColumnElement[str]:
    """What to sort by instead of this column."""
    return sa.literal_column(expression(f"{column.table.name}.{column.name}"), sa.Text)
