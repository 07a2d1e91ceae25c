"""What a refusal says of a name that is not known: which names are, and which of them was probably meant."""

import difflib
from collections.abc import Iterable

_MOST = 20


def nearest(wrong: str, known: Iterable[str]) -> str:
    """The nearest of the known names, or all of them where none is near: "did you mean rack?"."""
    names = known_names(wrong, known)
    return names.rpartition("; ")[2] if names.endswith("?") else f"there are {names}"


def known_names(wrong: str, known: Iterable[str]) -> str:
    """The known names, and the nearest one where there is one: "rack, switch or host; did you mean rack?"."""
    names = sorted(set(known))
    if not names:
        return "there are none"
    near = difflib.get_close_matches(wrong, names, n=1)
    listed = ", ".join(names[:_MOST]) + (f" and {len(names) - _MOST} more" if len(names) > _MOST else "")
    return f"{listed}; did you mean {near[0]}?" if near else listed
