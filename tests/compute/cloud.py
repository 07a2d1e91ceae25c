"""The embedded cloud for tests: boot servers, act on them, let the engine finish, and look at where they are."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import httpx
import sqlalchemy as sa

from roost.compute.inventory import images
from roost.compute.inventory.changes import host_changed
from roost.store.database import Database
from roost.store.tables.compute import hosts, topologies
from tests.compute import truth
from tests.conftest import Api, refusal_of

IMAGE = images.USUAL[0].id
NEWEST = "2.1003"


@dataclass(frozen=True)
class Cloud:
    """`server = await cloud.boot(group=group)`, as the project `demo` unless another cloud is named."""

    api: Api

    @property
    def database(self) -> Database:
        """The database behind it."""
        return self.api.services.database

    async def ask(self, method: str, path: str, *, version: str = NEWEST, **more: Any) -> httpx.Response:
        """One request under /compute/v2.1."""
        return await self.api.request(method, f"/compute/v2.1{path}", version=version, **{"cloud": "roost", **more})

    async def refusal(self, method: str, path: str, body: Any = None, **more: Any) -> tuple[int, str]:
        """The status and the message of a request that must fail."""
        return refusal_of(await self.ask(method, path, **({"json": body} if body is not None else {}), **more))

    async def create(
        self, *, hints: Mapping[str, Any] | None = None, cloud: str = "roost", version: str = NEWEST, **server: Any
    ) -> httpx.Response:
        """Ask for a server; its other properties as in the body of the request."""
        body: dict[str, Any] = {"name": "server", "flavorRef": "1", "imageRef": IMAGE, "networks": "none", **server}
        if version == "2.1":
            del body["networks"]
        more = {"os:scheduler_hints": hints} if hints else {}
        return await self.ask("POST", "/servers", json={"server": body, **more}, cloud=cloud, version=version)

    async def boot(self, *, group: str | None = None, settle: bool = True, **server: Any) -> str:
        """A server, booted; its id."""
        if group is not None:
            server["hints"] = {"group": group, **server.get("hints", {})}
        response = await self.create(**server)
        assert response.status_code == 202, response.text
        if settle:
            await self.settle()
        return str(response.json()["server"]["id"])

    async def settle(self) -> None:
        """Let the engine finish whatever is due."""
        await truth.settle(self.database)

    async def show(self, server_id: str, *, cloud: str = "roost-admin", version: str = NEWEST) -> dict[str, Any]:
        """A server as the administrator sees it, unless another cloud is named."""
        response = await self.ask("GET", f"/servers/{server_id}", cloud=cloud, version=version)
        assert response.status_code == 200, response.text
        return dict(response.json()["server"])

    async def status(self, server_id: str) -> str:
        """The one word."""
        return str((await self.show(server_id))["status"])

    async def host(self, server_id: str) -> str | None:
        """The name of the host that a server is on."""
        host: str | None = (await self.show(server_id))["OS-EXT-SRV-ATTR:host"]
        return host

    async def act(
        self, server_id: str, action: str, value: Any = None, *, cloud: str = "roost-admin", **more: Any
    ) -> httpx.Response:
        """Do something to a server, as the administrator unless another cloud is named."""
        return await self.ask("POST", f"/servers/{server_id}/action", json={action: value}, cloud=cloud, **more)

    async def done(self, server_id: str, action: str, value: Any = None, **more: Any) -> None:
        """Do something to a server, which must be accepted, and let the engine finish it."""
        response = await self.act(server_id, action, value, **more)
        assert response.is_success, response.text
        await self.settle()

    async def refused(self, server_id: str, action: str, value: Any = None, **more: Any) -> tuple[int, str]:
        """The status and the message of an action that must be refused."""
        more = {"cloud": "roost-admin", **more}
        return await self.refusal("POST", f"/servers/{server_id}/action", {action: value}, **more)

    async def delete(self, *server_ids: str, cloud: str = "roost-admin") -> None:
        """Delete servers, and wait until they are gone."""
        for server_id in server_ids:
            assert (await self.ask("DELETE", f"/servers/{server_id}", cloud=cloud)).status_code == 204
        await self.settle()

    async def group(self, *policies: str | Mapping[str, Any], cloud: str = "roost") -> str:
        """A group with these policies, as `anti-affinity:rack` or as objects; its id."""
        wanted = [_policy(policy) for policy in policies]
        body = {"server_group": {"name": "group", "policies": wanted}}
        response = await self.ask("POST", "/os-server-groups", json=body, cloud=cloud)
        assert response.status_code == 200, response.text
        return str(response.json()["server_group"]["id"])

    async def hosts(self, number: int, **capacity: int) -> list[str]:
        """Leave this many hosts enabled, if asked with another capacity; their names."""
        async with self.database.begin() as connection:
            rows = (await connection.execute(sa.select(hosts.c.id, hosts.c.name).order_by(hosts.c.id))).all()
            kept = [row.id for row in rows[:number]]
            await connection.execute(hosts.update().values(enabled=hosts.c.id.in_(kept)))
            if capacity:
                await connection.execute(hosts.update().where(hosts.c.id.in_(kept)).values(**capacity))
            await host_changed(connection, [row.id for row in rows])
        return [row.name for row in rows[:number]]

    async def change_host(self, name: str, **values: Any) -> None:
        """Enable or disable a host, or say that it is down or up."""
        async with self.database.begin() as connection:
            changed = hosts.update().where(hosts.c.name == name).values(**values).returning(hosts.c.id)
            await host_changed(connection, [(await connection.execute(changed)).scalar_one()])

    async def simulate(self, **behaviour: float) -> None:
        """Let boots take time, or fail."""
        async with self.database.begin() as connection:
            usual = {"boot_seconds": 0.0, "failure_rate": 0.0}
            await connection.execute(topologies.update().values(simulation={**usual, **behaviour}))

    async def boots_take_a_moment(self) -> None:
        """Leave boots to the engine: one that takes no time is over when the server is claimed."""
        await self.simulate(boot_seconds=1e-6)

    async def quota(self, project: str = "demo", **limits: int) -> None:
        """Set the quotas of a project."""
        body = {"quota_set": {**limits, "force": True}}
        path = f"/os-quota-sets/{await self.project(project)}"
        response = await self.ask("PUT", path, json=body, cloud="roost-admin")
        assert response.status_code == 200, response.text

    async def project(self, name: str = "demo") -> str:
        """The id of a project."""
        query = sa.text("SELECT id FROM projects WHERE name = :name")
        async with self.database.begin() as connection:
            return str((await connection.execute(query, {"name": name})).scalar_one())

    async def usage(self) -> tuple[int, int, int]:
        """What the project `demo` uses: servers, cores, memory."""
        query = sa.text("""
            SELECT sum(instances) AS instances, sum(cores) AS cores, sum(ram) AS ram FROM (
                SELECT project_id, instances, cores, ram FROM project_usage
                UNION ALL SELECT project_id, instances, cores, ram FROM usage_shards) AS parts
            WHERE project_id = :project GROUP BY project_id
        """)
        async with self.database.begin() as connection:
            row = (await connection.execute(query, {"project": await self.project()})).one_or_none()
        return (0, 0, 0) if row is None else (row.instances, row.cores, row.ram)

    async def claims(self, server_id: str) -> dict[str, int]:
        """The hosts that keep room for a server, and how many vCPUs."""
        query = "SELECT h.name, c.vcpus FROM claims c JOIN hosts h ON h.id = c.host_id WHERE c.server_id = :id"
        async with self.database.begin() as connection:
            return {row.name: row.vcpus for row in await connection.execute(sa.text(query), {"id": server_id})}

    async def history(self, server_id: str) -> list[tuple[str, str | None]]:
        """What was done to a server, the newest first, and 'Error' where it failed."""
        response = await self.ask("GET", f"/servers/{server_id}/os-instance-actions", cloud="roost-admin")
        return [(action["action"], action["message"]) for action in response.json()["instanceActions"]]

    async def check(self, *, rules: bool = True) -> None:
        """The recount."""
        await truth.check(self.database, rules=rules)


def _policy(policy: str | Mapping[str, Any]) -> Mapping[str, Any]:
    if not isinstance(policy, str):
        return policy
    name, _, rest = policy.partition(":")
    scope, _, identifier = rest.partition(":")
    wanted = {"name": name, **({"scope": scope} if scope else {})}
    return {**wanted, "identifier": identifier} if identifier else wanted
