"""Times as the clustering API writes them."""

from datetime import UTC, datetime


def moment(when: datetime | None) -> str | None:
    """In UTC, to the second."""
    return when.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ") if when else None
