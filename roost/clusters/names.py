"""Names of nodes, made from a format: `$8R` eight random letters and digits, `$4r` in lower case, `$3I` the index."""

import re
import secrets
import string
from typing import Any

DEFAULT = "node-$8R"
FORMAT = "node.name.format"
"""The item of a cluster's configuration that says how its nodes are named."""

_MIXED = string.ascii_letters + string.digits
_LOWER = string.ascii_lowercase + string.digits
_LONGEST = 255
_PLACE = re.compile(r"\$(\d*)([rRI])")


def misfit(form: Any) -> str | None:
    """Why no node can have a name of this form."""
    if not isinstance(form, str) or not form.isprintable():
        return f"The format of the nodes' names is not a text that can be printed: '{form}'."
    if any(len(width) > len(str(_LONGEST)) for width, _ in _PLACE.findall(form)) or len(node_name(form, 0)) > _LONGEST:
        return f"Names of the format '{form}' are longer than {_LONGEST} characters."
    return None


def node_name(form: str | None, index: int) -> str:
    """A name for the node of this index."""

    def fill(place: re.Match[str]) -> str:
        width, kind = int(place[1] or 0), place[2]
        if kind == "I":
            return f"{index:0{width}d}" if width else str(index)
        letters = _MIXED if kind == "R" else _LOWER
        return "".join(secrets.choice(letters) for _ in range(width or 8))

    return _PLACE.sub(fill, form or DEFAULT)
