"""The roles that a user may have in a project, and which implies which."""

import uuid
from collections.abc import Iterable
from dataclasses import dataclass

from roost.errors import NotFound

IMPLIED = {"admin": "manager", "manager": "member", "member": "reader"}


@dataclass(frozen=True, slots=True)
class Role:
    """One of the roles that there are; they are fixed, and so are their ids."""

    name: str

    @property
    def id(self) -> str:
        """The same in every installation."""
        return uuid.uuid5(uuid.NAMESPACE_OID, f"roost role {self.name}").hex


ROLES = tuple(Role(name) for name in ("admin", "manager", "member", "reader", "service"))
_BY_ID = {role.id: role for role in ROLES}
_ORDER = {role.name: number for number, role in enumerate(ROLES)}


def show(role_id: str) -> Role:
    """The role with this id."""
    if role_id not in _BY_ID:
        raise NotFound(f"Could not find role: {role_id}.")
    return _BY_ID[role_id]


def with_implied(granted: Iterable[str]) -> tuple[str, ...]:
    """The roles granted and those that they imply: an admin is a manager, a manager a member, a member a reader."""
    roles = set(granted)
    for role in ROLES:
        if role.name in roles and role.name in IMPLIED:
            roles.add(IMPLIED[role.name])
    return tuple(sorted(roles, key=lambda name: (_ORDER.get(name, len(_ORDER)), name)))
