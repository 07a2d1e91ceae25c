"""Key pairs of a user."""

import asyncio
from typing import Any

from cryptography.hazmat.primitives import serialization

from tests.api.compute.conftest import Compute

PATH = "/os-keypairs"
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIPkS7uSxvBTXiBTNeGy4OTfHiSmNdxqZHTrBAsmx8Byv me@here"
CERTIFICATE = """-----BEGIN CERTIFICATE-----
MIIBSzCB8qADAgECAgEBMAoGCCqGSM49BAMCMBAxDjAMBgNVBAMMBXJvb3N0MB4X
-----END CERTIFICATE-----"""


async def imported(compute: Compute, name: str, version: str = "2.10", **more: Any) -> dict[str, Any]:
    """The key pair that an import answers with."""
    body = {"keypair": {"name": name, "public_key": KEY, **more}}
    return dict((await compute.post(PATH, body, version=version, cloud="roost"))["keypair"])


async def test_a_public_key_is_imported_shown_and_deleted(compute: Compute) -> None:
    oldest = await imported(compute, "old", "2.1")
    assert oldest["fingerprint"] == "c0:1f:8a:0c:0e:7a:4b:4b:ec:1a:a6:19:0b:4f:fb:c2"
    assert oldest.keys() == {"name", "public_key", "fingerprint", "user_id"}
    newest = await imported(compute, "me@home.x", "2.92", type="ssh")
    assert newest == {**oldest, "name": "me@home.x", "type": "ssh"}
    shown = (await compute.get(f"{PATH}/old", version="2.2", cloud="roost"))["keypair"]
    assert {**oldest, "type": "ssh", "deleted": False, "deleted_at": None, "updated_at": None}.items() <= shown.items()
    assert "type" not in (await compute.get(f"{PATH}/old", cloud="roost"))["keypair"]
    await compute.delete(f"{PATH}/old", cloud="roost")
    await compute.delete(f"{PATH}/me@home.x", version="2.2", cloud="roost")
    status, message = await compute.refusal("DELETE", f"{PATH}/old", cloud="roost")
    assert (status, message) == (404, f"Keypair old not found for user {oldest['user_id']}")


async def test_before_2_92_a_key_pair_is_generated_if_none_is_given(compute: Compute) -> None:
    body = {"keypair": {"name": "new"}}
    made = (await compute.post(PATH, body, version="2.2", cloud="roost"))["keypair"]
    private = serialization.load_pem_private_key(made["private_key"].encode(), None)
    public = private.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    assert made["public_key"].startswith(public.decode())
    assert await compute.refusal("POST", PATH, body, version="2.92", cloud="roost") == (
        400,
        "Invalid input for field/attribute keypair. Value: {'name': 'new'}. 'public_key' is a required property",
    )


async def test_key_pairs_are_listed_in_pages_from_2_35_on(compute: Compute) -> None:
    for name in ("c", "a", "b"):
        await imported(compute, name)

    async def names(query: str, version: str) -> list[str]:
        page = await compute.get(f"{PATH}{query}", version=version, cloud="roost")
        return [item["keypair"]["name"] for item in page["keypairs"]]

    assert await names("", "2.1") == await names("?limit=1", "2.34") == ["a", "b", "c"]
    assert await names("?limit=1&marker=a", "2.35") == ["b"]
    page = await compute.get(f"{PATH}?limit=2", version="2.35", cloud="roost")
    assert page["keypairs_links"][0]["href"].endswith("/os-keypairs?limit=2&marker=b")
    assert await compute.refusal("GET", f"{PATH}?marker=x", version="2.35", cloud="roost") == (
        400,
        "Marker x could not be found.",
    )


async def test_the_operator_reads_anyones_key_pairs_and_others_their_own(compute: Compute) -> None:
    user = (await imported(compute, "mine"))["user_id"]
    assert (await compute.get(PATH, version="2.10"))["keypairs"] == []
    assert len((await compute.get(f"{PATH}?user_id={user}", version="2.10"))["keypairs"]) == 1
    assert (await compute.get(f"{PATH}?user_id={user}", version="2.9"))["keypairs"] == []
    await compute.get(f"{PATH}/mine?user_id={user}", version="2.10")
    for method, path, rule in (("GET", "", "index"), ("GET", "/mine", "show"), ("DELETE", "/mine", "delete")):
        expected = (403, f"Policy doesn't allow os_compute_api:os-keypairs:{rule} to be performed.")
        asked = f"{PATH}{path}?user_id={user}"
        assert await compute.refusal(method, asked, version="2.10", cloud="roost-alt") == expected
    body = {"keypair": {"name": "x", "public_key": KEY, "user_id": user}}
    assert (await compute.refusal("POST", PATH, body, version="2.10", cloud="roost-alt"))[0] == 403


async def test_no_more_key_pairs_than_the_quota_even_in_a_race(compute: Compute) -> None:
    await compute.put("/os-quota-class-sets/default", {"quota_class_set": {"key_pairs": 2}})
    bodies = [{"keypair": {"name": f"k{number}", "public_key": KEY}} for number in range(5)]
    answers = await asyncio.gather(*(compute.ask("POST", PATH, json=body, cloud="roost") for body in bodies))
    assert sorted(answer.status_code for answer in answers) == [200, 200, 403, 403, 403]
    assert await compute.refusal("POST", PATH, bodies[0], cloud="roost") == (
        403,
        "Quota exceeded, too many key pairs.",
    )


async def test_bad_requests_are_refused_in_novas_words(compute: Compute) -> None:
    await imported(compute, "taken")
    for keypair, version, expected in (
        ({"name": "taken", "public_key": KEY}, "2.1", (409, "Key pair 'taken' already exists.")),
        (
            {"name": "k", "public_key": "ssh-rsa nonsense"},
            "2.1",
            (400, "Keypair data is invalid: failed to generate fingerprint"),
        ),
        (
            {"name": "a.b", "public_key": KEY},
            "2.91",
            (
                400,
                "Invalid input for field/attribute name. Value: a.b. 'a.b' does not match '^[_\\\\- a-zA-Z0-9]+$'",
            ),
        ),
        (
            {"name": "k", "type": "pgp"},
            "2.2",
            (400, "Invalid input for field/attribute type. Value: pgp. 'pgp' is not one of ['ssh', 'x509']"),
        ),
        (
            {"name": "k", "type": "x509"},
            "2.2",
            (400, "Keypair data is invalid: only ssh key pairs are generated here; give a public_key"),
        ),
    ):
        body = {"keypair": keypair}
        assert await compute.refusal("POST", PATH, body, version=version, cloud="roost") == expected
    body = {"keypair": {"name": "k", "type": "x509", "public_key": CERTIFICATE}}
    status, message = await compute.refusal("POST", PATH, body, version="2.2", cloud="roost")
    assert (status, message[:62]) == (400, "Keypair data is invalid: failed to generate X509 fingerprint. ")
