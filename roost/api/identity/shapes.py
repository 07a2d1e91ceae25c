"""What answers look like: things with an address, and lists of them on one page."""

from roost.api.schemas import NULL, NULLABLE_STRING, STRING, TRUTH, Schema, array, by_name, thing

REFERENCE = thing({"id": STRING, "name": STRING})
PAGE = {"links": thing({"next": NULL, "self": STRING, "previous": NULL})}
"""Where a page of a list is, and that it is the only one."""


def linked(**properties: Schema) -> Schema:
    """A thing with an id, a name and an address."""
    address = thing({"self": STRING})
    return thing({"id": STRING, "name": STRING, **properties, "options": by_name({}), "links": address})


PROJECT = linked(
    domain_id=STRING,
    parent_id=NULLABLE_STRING,
    description=STRING,
    enabled=TRUTH,
    is_domain=TRUTH,
    tags=array(STRING),
)
PROJECTS = thing({"projects": array(PROJECT), **PAGE})
