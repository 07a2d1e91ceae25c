"""Microversions: both header forms in, both out, and the exact words for what is not served."""

import httpx
import pytest
from starlette.datastructures import Headers

from roost.api.versions import CLUSTERING, COMPUTE, Version
from roost.errors import Invalid, NotAcceptable
from tests.conftest import Api

PATH = "/compute/v2.1/flavors"
NEW, OLD = "OpenStack-API-Version", "X-OpenStack-Nova-API-Version"
VARY = "OpenStack-API-Version, X-OpenStack-Nova-API-Version"
MALFORMED = "API Version String {} is of invalid format. Must be of format MajorNum.MinorNum."
UNSUPPORTED = "Version {} is not supported by the API. Minimum is 2.1 and maximum is 2.1003."


def served(answer: httpx.Response) -> tuple[str | None, str | None]:
    return answer.headers.get(NEW), answer.headers.get(OLD)


@pytest.mark.parametrize(
    ("headers", "version"),
    [
        ({}, "2.1"),
        ({NEW: "compute 2.64"}, "2.64"),
        ({OLD: "2.64"}, "2.64"),
        ({NEW: "compute 2.53", OLD: "2.64"}, "2.53"),
        ({NEW: "placement 1.30", OLD: "2.64"}, "2.64"),
        ({NEW: "placement 1.30"}, "2.1"),
        ({NEW: "placement 1.30, compute 2.10"}, "2.10"),
        ({NEW: "compute latest"}, "2.1003"),
        ({OLD: "latest"}, "2.1003"),
        ({NEW: "compute 2.104"}, "2.104"),
        ({NEW: "compute 2.1001"}, "2.1001"),
    ],
)
async def test_the_version_asked_for_is_served_and_echoed_in_both_forms(
    api: Api, headers: dict[str, str], version: str
) -> None:
    answer = await api.get(PATH, headers=headers)
    assert answer.status_code == 200
    assert served(answer) == (f"compute {version}", version)
    assert answer.headers["Vary"] == VARY


@pytest.mark.parametrize("version", ["2.0", "1.1", "2.1004", "2.999", "3.0", "2.105", "2.1000", "999999999.1"])
async def test_a_version_that_is_not_served_is_406(api: Api, version: str) -> None:
    for headers in ({NEW: f"compute {version}"}, {OLD: version}):
        answer = await api.get(PATH, headers=headers)
        assert answer.status_code == 406
        assert answer.json() == {"computeFault": {"code": 406, "message": UNSUPPORTED.format(version)}}
        assert answer.headers["Vary"] == VARY


@pytest.mark.parametrize(
    "version", ["abc", "2", "2.", "2.01", "-2.1", "2.1.0", "02.1", "2.1x", "Latest", "2." + "9" * 5000]
)
async def test_what_is_not_a_version_is_400(api: Api, version: str) -> None:
    for headers in ({NEW: f"compute {version}"}, {OLD: version}):
        answer = await api.get(PATH, headers=headers)
        assert answer.status_code == 400
        assert answer.json() == {"badRequest": {"code": 400, "message": MALFORMED.format(version)}}
        assert served(answer) == (None, None)
        assert answer.headers["Vary"] == VARY


async def test_a_refusal_says_in_which_version_it_was_made(api: Api) -> None:
    answer = await api.get(PATH + "/unknown", version="2.61")
    assert answer.status_code == 404
    assert served(answer) == ("compute 2.61", "2.61")


async def test_version_documents_need_no_token_and_no_version(api: Api) -> None:
    for path, status in (
        ("/identity", 300),
        ("/identity/", 300),
        ("/identity/v3", 200),
        ("/identity/v3/", 200),
        ("/compute", 200),
        ("/compute/", 200),
        ("/compute/v2.1", 200),
        ("/compute/v2.1/", 200),
        ("/compute/v2", 200),
        ("/clustering", 300),
        ("/clustering/", 300),
        ("/clustering/v1", 200),
        ("/image", 300),
        ("/image/", 300),
    ):
        answer = await api.get(path, cloud=None, headers={NEW: "compute nonsense"})
        assert answer.status_code == status, path
        assert "http://roost.test/" in answer.text, "links must be absolute"


async def test_the_version_documents_are_as_clients_expect_them(api: Api) -> None:
    current = (await api.get("/compute/v2.1", cloud=None)).json()["version"]
    assert (current["id"], current["status"]) == ("v2.1", "CURRENT")
    assert (current["min_version"], current["version"]) == ("2.1", "2.1003")
    assert current["links"][0] == {"rel": "self", "href": "http://roost.test/compute/v2.1/"}
    assert [one["id"] for one in (await api.get("/compute", cloud=None)).json()["versions"]] == ["v2.0", "v2.1"]
    (clustering,) = (await api.get("/clustering", cloud=None)).json()["versions"]
    assert (clustering["id"], clustering["min_version"], clustering["max_version"]) == ("1.0", "1.0", "1.14")
    assert clustering["links"][0] == {"rel": "self", "href": "http://roost.test/clustering/v1"}
    (identity,) = (await api.get("/identity", cloud=None)).json()["versions"]["values"]
    assert identity["links"] == [{"rel": "self", "href": "http://roost.test/identity/v3/"}]
    assert (await api.get("/identity/v3", cloud=None)).json() == {"version": identity}


def test_versions_compare_as_numbers() -> None:
    assert Version.parse("2.9") < Version.parse("2.10") < Version.parse("2.100") < Version.parse("10.0")
    assert str(Version.parse("2.64")) == "2.64"


def test_clustering_negotiates_in_its_own_words() -> None:
    assert CLUSTERING.choose(Headers({NEW: "clustering 1.14"})) == Version(1, 14)
    assert CLUSTERING.choose(Headers({OLD: "2.64"})) == Version(1, 0)
    assert CLUSTERING.choose(Headers({NEW: "compute 2.64"})) == Version(1, 0)
    message = "Version '1.15' is not supported by the API. Minimum is '1.0' and maximum is '1.14'."
    with pytest.raises(NotAcceptable, match=message):
        CLUSTERING.choose(Headers({NEW: "clustering 1.15"}))
    with pytest.raises(Invalid):
        COMPUTE.choose(Headers({NEW: "compute"}))
