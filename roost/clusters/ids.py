"""New ids."""

import uuid


def new_id() -> str:
    """An id that nothing else has."""
    return str(uuid.uuid4())
