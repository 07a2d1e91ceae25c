"""Roost in the catalogue of a Keystone, and out of it again; tests/lab does the same to a real one."""

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from roost import config
from roost.cli import keystone

NOVA = "http://nova.example:8774/v2.1"
ROOST = "http://roost.example/compute/v2.1"


@dataclass
class Answer:
    """What Keystone says."""

    body: Any
    status_code: int = 200

    def json(self) -> Any:
        return self.body


@dataclass
class Catalogue:
    """The part of openstacksdk's identity proxy that is used, on endpoints in memory; attributes are kept as Keystone
    keeps them."""

    kept: dict[str, dict[str, Any]] = field(default_factory=dict)
    named: list[Any] = field(default_factory=list)

    def services(self, type: str) -> list[Any]:
        return [service for service in self.named if service.type == type]

    def create_service(self, **values: Any) -> Any:
        self.named.append(SimpleNamespace(id=f"s{len(self.named)}", **values))
        return self.named[-1]

    def delete_service(self, service_id: str) -> None:
        self.named = [service for service in self.named if service.id != service_id]

    def endpoints(self, service_id: str) -> list[dict[str, Any]]:
        return [row for row in self.kept.values() if row["service_id"] == service_id]

    def create_endpoint(self, **values: Any) -> None:
        number = f"e{len(self.kept)}"
        self.kept[number] = {"id": number, **values}

    def delete_endpoint(self, endpoint_id: str) -> None:
        del self.kept[endpoint_id]

    def get(self, path: str, params: dict[str, str]) -> Answer:
        return Answer({"endpoints": self.endpoints(params["service_id"])})

    def patch(self, path: str, json: Any) -> Answer:
        row = self.kept[path.rpartition("/")[2]]
        row.update(json["endpoint"])
        return Answer({"endpoint": row})

    def urls(self) -> dict[str, str]:
        return {row["interface"]: row["url"] for row in self.kept.values()}


@pytest.fixture
def catalogue(monkeypatch: pytest.MonkeyPatch) -> Catalogue:
    """With a Nova in it."""
    made = Catalogue()
    service = made.create_service(type="compute", name="nova")
    for interface in keystone.INTERFACES:
        made.create_endpoint(service_id=service.id, interface=interface, url=NOVA, region_id="RegionOne")
    monkeypatch.setattr("openstack.connect", lambda cloud: SimpleNamespace(identity=made))
    monkeypatch.setattr("roost.cli.keystone._accepted", lambda answer: None)
    return made


def register(*types: str, interfaces: list[str] | None = None, url: str = "http://roost.example") -> None:
    assert keystone.register(config.load(), None, url, list(types), interfaces) == 0


def test_roost_takes_only_the_public_endpoint_of_nova(catalogue: Catalogue) -> None:
    register("compute")
    assert catalogue.urls() == {"public": ROOST, "internal": NOVA, "admin": NOVA}


def test_the_others_are_taken_where_that_is_asked_for(catalogue: Catalogue) -> None:
    register("compute", interfaces=["public", "internal"])
    assert catalogue.urls() == {"public": ROOST, "internal": ROOST, "admin": NOVA}


def test_everything_is_put_back(catalogue: Catalogue) -> None:
    before = catalogue.urls()
    register("compute", interfaces=list(keystone.INTERFACES))
    register("compute", url="http://moved.example")
    assert catalogue.urls()["public"] == "http://moved.example/compute/v2.1"
    for _ in range(2):
        assert keystone.unregister(config.load(), None, ["compute"]) == 0
        assert catalogue.urls() == before


def test_what_was_made_is_removed_and_nothing_else(catalogue: Catalogue) -> None:
    register("clustering")
    assert len(catalogue.kept) == 6
    keystone.unregister(config.load(), None, ["clustering"])
    assert catalogue.urls() == dict.fromkeys(keystone.INTERFACES, NOVA)
    assert [service.name for service in catalogue.named] == ["nova"]
