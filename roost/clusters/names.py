"""Names of nodes, made from a format: `$8R` eight random letters and digits, `$4r` in lower case, `$3I` the index."""

import re
import secrets
import string

DEFAULT = "node-$8R"

_MIXED = string.ascii_letters + string.digits
_LOWER = string.ascii_lowercase + string.digits
_PLACE = re.compile(r"\$(\d*)([rRI])")


def node_name(form: str | None, index: int) -> str:
    """A name for the node of this index."""

    def fill(place: re.Match[str]) -> str:
        width, kind = int(place[1] or 0), place[2]
        if kind == "I":
            return f"{index:0{width}d}" if width else str(index)
        letters = _MIXED if kind == "R" else _LOWER
        return "".join(secrets.choice(letters) for _ in range(width or 8))

    return _PLACE.sub(fill, form or DEFAULT)
