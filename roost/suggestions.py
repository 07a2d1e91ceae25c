"""What a refusal says about an unknown name: which names are known, and which of them was probably meant."""

import difflib
from collections.abc import Iterable

from jsonschema.exceptions import ValidationError

_MOST = 20


def nearest(wrong: str, known: Iterable[str]) -> str:
    """The nearest of the known names, or all of them where none is near: "did you mean rack?"."""
    names = known_names(wrong, known)
    return names.rpartition("; ")[2] if names.endswith("?") else f"there are {names}"


def explained(error: ValidationError) -> str:
    """Why a JSON schema refuses a value, in jsonschema's words and with what was probably meant."""
    schema = error.schema if isinstance(error.schema, dict) else {}
    if error.validator == "additionalProperties" and isinstance(error.instance, dict):
        known = schema.get("properties", {})
        return error.message + instead(min(name for name in error.instance if name not in known), known)
    if error.validator == "enum":
        return error.message + did_you_mean(str(error.instance), map(str, schema["enum"]))
    if error.validator in ("anyOf", "oneOf") and error.context:
        return f"{error.message}: {', and '.join(dict.fromkeys(each.message for each in error.context))}"
    return error.message


def did_you_mean(wrong: str, known: Iterable[str]) -> str:
    """The end of a sentence that names the nearest of the known names, if one is near."""
    near = difflib.get_close_matches(wrong, sorted(set(known) - {wrong}), n=1)
    return f"; did you mean {near[0]}?" if near else ""


def instead(wrong: str, known: Iterable[str]) -> str:
    """The end of a sentence that names the nearest of the known names, or all of them where none is near."""
    names = set(known)
    return did_you_mean(wrong, names) or (f"; allowed are {_listed(names)}" if names else "; none is allowed")


def known_names(wrong: str, known: Iterable[str]) -> str:
    """The known names, and the nearest one where there is one: "rack, switch or host; did you mean rack?"."""
    names = set(known)
    return _listed(names) + did_you_mean(wrong, names) if names else "there are none"


def _listed(names: Iterable[str]) -> str:
    first = sorted(names)
    return ", ".join(first[:_MOST]) + (f" and {len(first) - _MOST} more" if len(first) > _MOST else "")
