"""Tokens of a real Keystone, and Roost in its catalogue."""

import time
from pathlib import Path
from typing import Any

import httpx
import openstack
import pytest

from lab.settings import Settings
from roost import config
from roost.api.auth import KeystoneAuthenticator
from roost.clouds.base import CloudRefused
from roost.clouds.openstack import OpenStackClouds
from roost.errors import Unauthorized, Unavailable
from tests.lab.conftest import Access, Tenant
from tests.lab.deployment import Deployment, until


def answer(deployment: Deployment, token: str, **headers: str) -> httpx.Response:
    """What Roost says to somebody who asks for clusters with this token."""
    return httpx.get(f"{deployment.url}/clustering/v1/clusters", headers={"X-Auth-Token": token, **headers})


def sign_in(access: Access) -> Any:
    """A new session, with its own token."""
    return openstack.connect(**access.config)


def test_a_tenant_finds_roost_in_the_catalogue_and_uses_it(deployment: Deployment, tenant: Tenant) -> None:
    cloud = sign_in(tenant.access)
    assert cloud.session.get_endpoint(service_type="clustering") == f"{deployment.url}/clustering"
    assert list(cloud.clustering.clusters()) == []


async def test_keystones_word_on_who_somebody_is_is_taken(
    lab: Settings, deployment: Deployment, tenant: Tenant, admin: Any
) -> None:
    authenticator = KeystoneAuthenticator(config.load(deployment.config))
    member = await authenticator.authenticate(sign_in(tenant.access).auth_token)
    assert (member.project_id, member.user_id, set(member.roles)) == (
        tenant.project_id,
        tenant.user_id,
        {"member", "reader"},
    )
    assert not member.is_admin
    assert (await authenticator.authenticate(admin.auth_token)).is_admin


def test_a_token_that_is_none_is_refused_with_where_to_get_one(lab: Settings, deployment: Deployment) -> None:
    for token in ("", "forged", "gAAAAAB" + "x" * 180):
        refused = answer(deployment, token)
        assert refused.status_code == 401
        assert refused.headers["WWW-Authenticate"] == f'Keystone uri="{lab.auth_url}"'


def test_a_remembered_token_costs_keystone_nothing_and_a_revoked_one_is_noticed(
    deployment: Deployment, tenant: Tenant
) -> None:
    cloud = sign_in(tenant.access)
    token = cloud.auth_token
    assert answer(deployment, token).status_code == 200
    began = time.monotonic()
    for _ in range(20):
        assert answer(deployment, token).status_code == 200
    remembered = (time.monotonic() - began) / 20
    assert remembered < 1
    revoked = httpx.delete(
        f"{tenant.access.auth['auth_url']}/auth/tokens", headers={"X-Auth-Token": token, "X-Subject-Token": token}
    )
    assert revoked.status_code == 204
    # The cache holds it for as long as [keystone_authtoken] token_cache_time says: 10 seconds here.
    until(lambda: answer(deployment, token).status_code == 401, 30)


def test_a_user_who_loses_the_role_loses_the_token(deployment: Deployment, tenant: Tenant, admin: Any) -> None:
    identity = admin.identity
    member = identity.find_role("member")
    token = sign_in(tenant.access).auth_token
    assert answer(deployment, token).status_code == 200
    identity.unassign_project_role_from_user(tenant.project_id, tenant.user_id, member)
    try:
        until(lambda: answer(deployment, token).status_code == 401, 30)
    finally:
        identity.assign_project_role_to_user(tenant.project_id, tenant.user_id, member)


def test_a_service_may_act_for_a_user_whose_token_has_a_service_beside_it(
    deployment: Deployment, service: Access, tenant: Tenant
) -> None:
    users = sign_in(tenant.access).auth_token
    services = sign_in(service).auth_token
    assert answer(deployment, users, **{"X-Service-Token": services}).status_code == 200
    assert answer(deployment, users, **{"X-Service-Token": "forged"}).status_code == 401


async def test_a_roost_that_keystone_does_not_know_lets_nobody_in(
    deployment: Deployment, tenant: Tenant, tmp_path: Path
) -> None:
    wrong = tmp_path / "roost.conf"
    wrong.write_text(deployment.config.read_text().replace("password = lab", "password = wrong"))
    unseen = sign_in(tenant.access).auth_token  # what others have checked is remembered for all of them
    with pytest.raises((Unavailable, Unauthorized)):
        await KeystoneAuthenticator(config.load(wrong)).authenticate(unseen)


# The catalogue


def test_registering_again_changes_nothing_and_a_new_address_is_corrected(deployment: Deployment, admin: Any) -> None:
    again = deployment.run("keystone", "register")
    assert again.returncode == 0
    assert again.stdout.count("there already") == 4
    moved = deployment.run("keystone", "register", "--url", "https://roost.example/")
    assert moved.stdout.count(f"changed, was {deployment.url}/clustering") == 3
    [registered] = admin.identity.services(type="clustering")
    assert {endpoint.url for endpoint in admin.identity.endpoints(service_id=registered.id)} == {
        "https://roost.example/clustering"
    }
    assert deployment.run("keystone", "register").stdout.count("changed, was https://roost.example/clustering") == 3


def test_compute_takes_novas_place_and_another_clustering_service_is_left_alone(
    lab: Settings, deployment: Deployment, admin: Any
) -> None:
    identity = admin.identity
    [nova] = identity.services(type="compute")
    before = {endpoint.interface: endpoint.url for endpoint in identity.endpoints(service_id=nova.id)}
    try:
        ran = deployment.run("keystone", "register", "compute")
        assert ran.stdout.startswith("service compute, called nova: there already\n")
        assert ran.stdout.count(f"changed, was {lab.url('nova')}/v2.1") == 1, "the public endpoint alone"
    finally:
        deployment.run("keystone", "unregister", "compute")
    assert {endpoint.interface: endpoint.url for endpoint in identity.endpoints(service_id=nova.id)} == before
    [own] = identity.services(type="clustering")
    identity.update_service(own, name="senlin")
    try:
        refused = deployment.run("keystone", "register")
        assert refused.returncode == 1
        assert "a service of type 'clustering' already, called 'senlin'" in refused.stderr
    finally:
        identity.update_service(own, name="roost")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("image",), "'image' cannot be registered: use clustering or compute."),
        (("--cloud", "lab-demo"), "Keystone lets only administrators change its catalogue: name one with --cloud."),
        (("--cloud", "nowhere"), "Keystone cannot be asked: "),
        (("--url", "roost.example"), "Say where clients reach Roost, as http://... or https://..."),
    ],
)
def test_what_cannot_be_registered_is_said_in_a_sentence(
    deployment: Deployment, words: tuple[str, ...], sentence: str
) -> None:
    ran = deployment.run("keystone", "register", *words)
    assert ran.returncode == 1
    assert ran.stderr.startswith(f"roost: {sentence}")


async def test_a_project_in_which_roost_has_no_role_is_said(admin: Any, tenant: Tenant) -> None:
    clouds = OpenStackClouds(None, tenant.access.config)
    other = admin.current_project_id
    with pytest.raises(CloudRefused, match=f"Roost's user cannot sign in to project {other}: has it a role there?"):
        await clouds.of(other, "user").availability_zones()
    clouds.close()
