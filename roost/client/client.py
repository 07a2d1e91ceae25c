"""The calls, one method each, on the compute and clustering endpoints of an openstacksdk connection."""

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final

from openstack import exceptions

from roost.client.answers import (
    AuditAnswer,
    DrainAnswer,
    ExplanationAnswer,
    GroupAnswer,
    Json,
    PlanAnswer,
    PolicyScope,
    RepairAnswer,
)

MICROVERSION: Final = "2.1003"


class Client:
    """Roost through a connection: `Client(openstack.connect(cloud="roost"))`."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    # Policy scopes

    def policy_scopes(self, *, as_project: str | None = None) -> list[PolicyScope]:
        """Every scope; for operators, also with the identifiers that a project, by name or id, sees."""
        if as_project is not None:
            project = self._connection.identity.find_project(as_project, ignore_missing=True)
            as_project = as_project if project is None else project.id
        found = self._ask("GET", "/os-policy-scopes", params=_present(as_tenant_id=as_project))
        return [PolicyScope.of(each) for each in found["policy_scopes"]]

    def find_policy_scope(self, name_or_id: str, *, as_project: str | None = None) -> PolicyScope:
        """The scope with this name or id."""
        for scope in self.policy_scopes(as_project=as_project):
            if name_or_id in (scope.id, scope.name):
                return scope
        raise exceptions.NotFoundException(f"No policy scope is called '{name_or_id}'.")

    def create_policy_scope(self, name: str, **attributes: Any) -> PolicyScope:
        """Make a scope, with `allow_identifiers`, `obfuscate_identifiers`, `obfuscate_namespace_uuid` if given."""
        body = {"policy_scope": {"name": name, **attributes}}
        return PolicyScope.of(self._ask("POST", "/os-policy-scopes", json=body)["policy_scope"])

    def update_policy_scope(self, scope_id: str, **attributes: Any) -> PolicyScope:
        """Change a scope's name or how its aggregates are named."""
        body = {"policy_scope": attributes}
        return PolicyScope.of(self._ask("POST", f"/os-policy-scopes/{scope_id}", json=body)["policy_scope"])

    def delete_policy_scope(self, scope_id: str) -> None:
        """Delete a scope that nothing uses."""
        self._ask("DELETE", f"/os-policy-scopes/{scope_id}")

    def add_aggregate_to_scope(self, scope_id: str, aggregate_id: int) -> PolicyScope:
        """Make an aggregate one of a scope's."""
        return self._act_on_scope(scope_id, "add_aggregate", aggregate_id)

    def remove_aggregate_from_scope(self, scope_id: str, aggregate_id: int) -> PolicyScope:
        """Take an aggregate out of a scope."""
        return self._act_on_scope(scope_id, "remove_aggregate", aggregate_id)

    def _act_on_scope(self, scope_id: str, action: str, aggregate_id: int) -> PolicyScope:
        body = {action: {"aggregate_id": aggregate_id}}
        return PolicyScope.of(self._ask("POST", f"/os-policy-scopes/{scope_id}/action", json=body)["policy_scope"])

    # Server groups

    def server_group(self, group_id: str) -> GroupAnswer:
        """One group, by its id."""
        return GroupAnswer.of(self._ask("GET", f"/os-server-groups/{group_id}")["server_group"])

    def server_groups(
        self, *, all_projects: bool = False, offset: int | None = None, page: int | None = None, most: int | None = None
    ) -> Iterator[GroupAnswer]:
        """The groups of the own project, or for operators of all, read a page at a time; at most so many, if given."""
        return islice(self._every_group(_present(all_projects="1" if all_projects else None, limit=page), offset), most)

    def _every_group(self, query: Json, offset: int | None) -> Iterator[GroupAnswer]:
        start = _present(offset=offset)
        while found := self._ask("GET", "/os-server-groups", params={**query, **start})["server_groups"]:
            yield from map(GroupAnswer.of, found)
            start = {"marker": found[-1]["id"]}

    def create_server_group(self, name: str, policies: Sequence[Json]) -> GroupAnswer:
        """Make a group with any number of policies."""
        body = {"server_group": {"name": name, "policies": list(policies)}}
        return GroupAnswer.of(self._ask("POST", "/os-server-groups", json=body)["server_group"])

    def find_server_group(self, name_or_id: str) -> GroupAnswer:
        """The group with this name or id: of the own project, else, for operators, of any."""
        for everywhere in (False, True):
            found = self.server_groups(all_projects=everywhere)
            matching = [each for each in found if name_or_id in (each.id, each.name)]
            if matching:
                break
        if len(matching) > 1:
            raise exceptions.DuplicateResource(f"More than one server group is called '{name_or_id}': use an id.")
        return matching[0] if matching else self.server_group(name_or_id)

    def update_server_group(
        self, group_id: str, *, name: str | None = None, policies: Sequence[Json] | None = None
    ) -> GroupAnswer:
        """Rename a group or give it other policies; nothing moves."""
        body = {"server_group": _present(name=name, policies=None if policies is None else list(policies))}
        return GroupAnswer.of(self._ask("POST", f"/os-server-groups/{group_id}", json=body)["server_group"])

    def add_server(self, group_id: str, server_id: str, *, partition: int | None = None) -> GroupAnswer:
        """Make a server that exists a member, of this partition where the group is divided; nothing moves."""
        return self._act_on_group(group_id, "add_instance", server_id, **_present(partition=partition))

    def remove_server(self, group_id: str, server_id: str) -> GroupAnswer:
        """Make a server a member no more; nothing moves."""
        return self._act_on_group(group_id, "remove_instance", server_id)

    def _act_on_group(self, group_id: str, action: str, server_id: str, **more: Any) -> GroupAnswer:
        body = {action: {"instance_id": server_id, **more}}
        return GroupAnswer.of(self._ask("POST", f"/os-server-groups/{group_id}/action", json=body)["server_group"])

    # Answers

    def audit(self, group_id: str) -> AuditAnswer:
        """Where the members are, and which rules they break."""
        return AuditAnswer.of(self._ask("GET", f"/os-server-groups/{group_id}/audit")["server_group_policy_audit"])

    def audit_all(self) -> Iterator[Json]:
        """Every group that is in violation, as they are found; for operators."""
        response = self._send("GET", "/os-server-groups/audit", stream=True)
        for line in response.iter_lines():
            if line:
                yield json.loads(line)

    def explain_server(self, server_id: str) -> ExplanationAnswer | None:
        """Why a server is where it is, or nowhere; None for one that was made before decisions were kept."""
        found = self._ask("GET", f"/servers/{server_id}/explanation")["explanation"]
        return None if found is None else ExplanationAnswer.of(found)

    def explain(
        self, group_id: str, *, flavor: str, count: int = 1, zone: str | None = None, partition: int | None = None
    ) -> ExplanationAnswer:
        """Where new members of a group would go, and why there, or why nowhere. Nothing is made."""
        more = _present(availability_zone=zone, partition=partition)
        body = {"explain": {"flavorRef": flavor, "count": count, **more}}
        return ExplanationAnswer.of(
            self._ask("POST", f"/os-server-groups/{group_id}/explain", json=body)["explanation"]
        )

    def plan(self, group_id: str, change: Json, *, generation: str | None = None) -> PlanAnswer:
        """What a change would come to; with the generation of a plan, make it so if nothing that matters changed."""
        body = {"plan": {**change, **_present(generation=generation)}}
        return PlanAnswer.of(self._ask("POST", f"/os-server-groups/{group_id}/plan", json=body)["plan"])

    def plan_all(self, change: Json, *, all_projects: bool = False) -> Json:
        """What the loss or the draining of an aggregate would come to for all of one's servers, or for everybody's."""
        params = {"all_projects": "1"} if all_projects else {}
        answer: Json = self._ask("POST", "/os-server-groups/plan", json={"plan": dict(change)}, params=params)["plan"]
        return answer

    def plan_cluster(self, cluster: str, action: Json) -> Json:
        """What an action would do to a cluster: what each policy decides and which nodes follow. Nothing is done."""
        endpoint = self._connection.clustering
        path = f"/clusters/{cluster}/actions"
        body = _body(endpoint.post(path, json=dict(action), params={"dry_run": "true"}, microversion="1.14"))
        return {**body["dry_run"], "warnings": body["warnings"]}

    # Repair

    def repair(self, group_id: str, *, dry_run: bool = False, **budget: int) -> RepairAnswer:
        """Mend a group with the fewest live migrations, within a budget; `dry_run` only plans them."""
        body = {"repair": {"dry_run": dry_run, **budget}}
        return RepairAnswer.of(self._ask("POST", f"/os-server-groups/{group_id}/repairs", json=body)["repair"])

    def repairs(self, group_id: str) -> list[RepairAnswer]:
        """The repairs of a group, the newest first."""
        found = self._ask("GET", f"/os-server-groups/{group_id}/repairs")["repairs"]
        return [RepairAnswer.of(each) for each in found]

    def get_repair(self, group_id: str, repair_id: str) -> RepairAnswer:
        """One repair, as far as it has come."""
        return RepairAnswer.of(self._ask("GET", f"/os-server-groups/{group_id}/repairs/{repair_id}")["repair"])

    def stop_repair(self, group_id: str, repair_id: str) -> None:
        """Start no further move; those under way end."""
        self._ask("DELETE", f"/os-server-groups/{group_id}/repairs/{repair_id}")

    def pause_repair(self, group_id: str, repair_id: str, paused: bool) -> RepairAnswer:
        """Start no further move until it is to go on, or let it go on."""
        path = f"/os-server-groups/{group_id}/repairs/{repair_id}"
        return RepairAnswer.of(self._ask("PUT", path, json={"repair": {"paused": paused}})["repair"])

    def keep_repaired(self, group_id: str, continuous: bool, **budget: int) -> Json:
        """Mend a group whenever an audit finds it broken, or no longer."""
        body = {"repair": {"continuous": continuous, **budget}}
        answer: Json = self._ask("PUT", f"/os-server-groups/{group_id}/repair", json=body)["repair"]
        return answer

    # Drain

    def drain(self, scope: str, identifier: str, **budget: int) -> DrainAnswer:
        """Disable the hosts of a place, and have the engine move their servers; for operators."""
        body = {"drain": {"scope": scope, "identifier": identifier, **budget}}
        return DrainAnswer.of(self._ask("POST", "/os-drains", json=body)["drain"])

    def drains(self) -> list[DrainAnswer]:
        """The latest drains, the newest first."""
        return [DrainAnswer.of(each) for each in self._ask("GET", "/os-drains")["drains"]]

    def get_drain(self, drain_id: str) -> DrainAnswer:
        """One drain, as far as it has come."""
        return DrainAnswer.of(self._ask("GET", f"/os-drains/{drain_id}")["drain"])

    def pause_drain(self, drain_id: str, paused: bool) -> DrainAnswer:
        """Start no further move until it is to go on, or let it go on."""
        return DrainAnswer.of(self._ask("PUT", f"/os-drains/{drain_id}", json={"drain": {"paused": paused}})["drain"])

    def stop_drain(self, drain_id: str) -> None:
        """Start no further move; those under way end. The hosts stay disabled."""
        self._ask("DELETE", f"/os-drains/{drain_id}")

    def _ask(self, method: str, path: str, **more: Any) -> Any:
        return _body(self._send(method, path, **more))

    def _send(self, method: str, path: str, **more: Any) -> Any:
        response = self._connection.compute.request(path, method, microversion=MICROVERSION, **more)
        exceptions.raise_from_response(response)
        return response


def _body(response: Any) -> Any:
    exceptions.raise_from_response(response)
    return response.json() if response.content else None


def _present(**values: Any) -> Mapping[str, Any]:
    return {key: value for key, value in values.items() if value is not None}
