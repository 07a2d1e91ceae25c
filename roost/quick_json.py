"""JSON, written and read fast.

Read only what Roost itself wrote with it: it makes floats of whole numbers beyond 64 bits, which tenants may have sent.
"""

import json
from typing import Any

import orjson

_standard = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode

loads = orjson.loads


def dumps(value: Any) -> bytes:
    """Write a value as UTF-8."""
    try:
        return orjson.dumps(value)
    except TypeError:  # a whole number beyond 64 bits, or a key that is no text
        return _standard(value).encode()
