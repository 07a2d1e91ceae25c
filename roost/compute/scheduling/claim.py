"""Claiming in one round trip: the database takes what was decided, or says what has changed since.

`roost_claim` (migration 0015) locks, compares, writes and commits in one call, so that no lock is held while this
process thinks. A claim that lost is not an error: its answer says what has to be known to decide again.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from roost import quick_json
from roost.compute.inventory.claims import Usage
from roost.compute.inventory.live_fleet import ClaimNews, Joined, Room

_CLAIM = sa.text("SELECT CAST(roost_claim(CAST(:asked AS jsonb)) AS text)")


@dataclass(frozen=True, slots=True)
class ClaimAnswer:
    """What became of a claim."""

    won: bool
    rooms: Sequence[Room]
    """The hosts' rooms: after it, if it won; of hosts that lack it, if it lost."""
    number: int = 0
    """The number of the change that it made."""
    joined: Sequence[Joined] = ()
    """The members that it added to groups, with the groups' versions."""
    generation: int = 0
    versions: Mapping[str, int] = field(default_factory=dict)
    """Of the groups that there are."""
    used: Mapping[str, Usage] | None = None
    """What the project ('') and its users use, where limits apply."""
    news: Sequence[tuple[int, ClaimNews]] = ()
    """What others have claimed since the decision."""


async def claim(connection: AsyncConnection, asked: Mapping[str, object]) -> ClaimAnswer:
    """Ask for it."""
    said = (await connection.execute(_CLAIM, {"asked": quick_json.dumps(asked).decode()})).scalar_one()
    answer: dict[str, Any] = quick_json.loads(said)
    used = answer.pop("used", None)
    versions = answer.pop("versions", None)
    return ClaimAnswer(
        **answer,
        versions=versions or {},
        used=None if used is None else {user_id: Usage(*map(int, amounts)) for user_id, amounts in used.items()},
    )
