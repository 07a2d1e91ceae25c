"""What PostgreSQL accepts as a UUID."""

import re

# oslo.utils' is_uuid_like is not enough here: it also accepts prefixes and misplaced dashes, which PostgreSQL refuses.
_FORM = re.compile(r"[0-9a-fA-F]{8}-?([0-9a-fA-F]{4}-?){3}[0-9a-fA-F]{12}")


def is_uuid(value: object) -> bool:
    """Whether a value is a uuid, with or without its dashes."""
    return isinstance(value, str) and _FORM.fullmatch(value) is not None
