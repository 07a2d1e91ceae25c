"""Scopes below HTTP: what tenants see in place of identifiers, and promises that hold while others change things."""

import asyncio
import uuid

import sqlalchemy as sa

from roost.compute.groups import groups
from roost.compute.groups.groups import GroupPolicy
from roost.compute.groups.identifiers import Identifiers, shown
from roost.compute.inventory import scopes as policy_scopes
from roost.compute.inventory.scopes import BUILT_IN, Scope, aggregates_in, load_scopes
from roost.config import Settings
from roost.errors import Conflict, Invalid
from roost.placement.rules import Rule
from roost.store.database import Database
from roost.store.tables.compute import aggregates, scopes
from roost.store.tables.servers import server_group_policies

NAMESPACE = uuid.UUID("6f72348f-df5d-4e0f-a043-4be92996dbfe")
OPEN = Scope(1, str(uuid.uuid4()), "open", True, False, NAMESPACE)
HIDDEN = Scope(2, str(uuid.uuid4()), "hidden", True, True, NAMESPACE)
CLOSED = Scope(3, str(uuid.uuid4()), "closed", False, False, NAMESPACE)
KNOWN = {scope.name: scope for scope in (*BUILT_IN, OPEN, HIDDEN, CLOSED)}


def test_an_obfuscated_identifier_is_made_in_two_passes() -> None:
    assert HIDDEN.identifier_for("12345", "67890") == str(uuid.uuid5(uuid.uuid5(NAMESPACE, "12345"), "67890"))


def test_a_rule_is_shown_without_what_its_scope_hides() -> None:
    assert str(shown(Rule.parse("affinity:open:7"), KNOWN, "t")) == "affinity:open:7"
    assert str(shown(Rule.parse("affinity:availability_zone:z"), KNOWN, "t")) == "affinity:availability_zone:z"
    assert (
        str(shown(Rule.parse("affinity:hidden:7"), KNOWN, "t")) == f"affinity:hidden:{HIDDEN.identifier_for('t', '7')}"
    )
    assert shown(Rule.parse("affinity:closed:7"), KNOWN, "t").identifier != "7"
    assert shown(Rule.parse("anti-affinity:closed"), KNOWN, "t") == Rule.parse("anti-affinity:closed")


def test_operators_see_real_identifiers_whatever_the_scope() -> None:
    real = Identifiers(KNOWN, "t", real=True)
    assert [real.of(scope, "7") for scope in KNOWN] == ["7"] * len(KNOWN)
    rules = [Rule.parse(f"affinity:{scope}:7") for scope in ("open", "hidden", "closed")]
    assert [real.shown(rule) for rule in rules] == rules


def test_surrogates_are_the_tenants_own_or_made_up_for_one_answer() -> None:
    first, second = Identifiers(KNOWN, "t"), Identifiers(KNOWN, "t")
    assert first.of("open", "7") == "7"
    assert first.of("hidden", "7") == second.of("hidden", "7") == HIDDEN.identifier_for("t", "7")
    for scope in ("closed", "host"):
        assert first.of(scope, "7") == first.of(scope, "7") != second.of(scope, "7")
        assert first.of(scope, "7") != first.of(scope, "8")
    assert first.of("closed", "7") != first.of("host", "7")


async def test_an_aggregate_does_not_leave_a_scope_while_a_group_comes_to_target_it(
    database: Database, settings: Settings
) -> None:
    async with database.begin() as connection:
        await connection.execute(scopes.update().values(allow_identifiers=True))
        known = await load_scopes(connection)
    rack = known["rack"]

    async def target(number: int) -> None:
        async with database.begin() as connection:
            policies = [GroupPolicy(Rule.parse(f"affinity:rack:{number}"))]
            await groups.create(connection, settings, name="g", policies=policies, project_id="t", user_id="u")

    async def leave(number: int) -> None:
        async with database.begin() as connection:
            await policy_scopes.remove_aggregate(connection, rack.uuid, number)

    async with database.begin() as connection:
        numbers = [int(found.identifier) for found in await aggregates_in(connection, rack)][:8]
    results = await asyncio.gather(
        *(action(number) for number in numbers for action in (target, leave)), return_exceptions=True
    )
    outcomes = list(zip(results[::2], results[1::2], strict=True))
    for targeted, left in outcomes:
        # Exactly one of the two came about.
        assert (isinstance(targeted, Invalid) and left is None) or (targeted is None and isinstance(left, Conflict))
    async with database.begin() as connection:
        astray = (
            sa.select(sa.func.count())
            .select_from(server_group_policies.join(aggregates))
            .where(aggregates.c.scope_id != server_group_policies.c.scope_id)
        )
        assert await connection.scalar(astray) == 0
