"""Policy types over HTTP."""

from tests.conftest import Api

PATH = "/clustering/v1/policy-types"


async def test_before_1_5_the_version_is_part_of_the_name(api: Api) -> None:
    answer = await api.get(PATH, version="1.4")
    assert answer.status_code == 200
    assert {"name": "senlin.policy.deletion-1.1"} in answer.json()["policy_types"]
    assert all(list(each) == ["name"] for each in answer.json()["policy_types"])


async def test_since_1_5_each_version_has_its_support_status(api: Api) -> None:
    listed = (await api.get(PATH, version="1.5", cloud="roost")).json()["policy_types"]
    assert {
        "name": "senlin.policy.zone_placement",
        "version": "1.0",
        "support_status": {
            "1.0": [
                {"status": "EXPERIMENTAL", "since": "2016.04"},
                {"status": "SUPPORTED", "since": "2016.10"},
            ]
        },
    } in listed
    assert {each["name"].removeprefix("senlin.policy.") for each in listed} == {
        "affinity",
        "batch",
        "deletion",
        "health",
        "loadbalance",
        "region_placement",
        "scaling",
        "zone_placement",
    }


async def test_a_type_is_shown_with_its_schema(api: Api) -> None:
    shown = (await api.get(f"{PATH}/senlin.policy.deletion-1.1", version="1.5")).json()["policy_type"]
    assert shown["name"] == "senlin.policy.deletion-1.1"
    assert shown["support_status"] == {"1.1": [{"status": "SUPPORTED", "since": "2018.01"}]}
    assert shown["schema"]["criteria"] == {
        "type": "String",
        "description": "Criteria used in selecting candidates for deletion.",
        "default": "RANDOM",
        "required": False,
        "updatable": False,
        "constraints": [
            {
                "type": "AllowedValues",
                "constraint": ["OLDEST_FIRST", "OLDEST_PROFILE_FIRST", "YOUNGEST_FIRST", "RANDOM"],
            }
        ],
    }
    older = (await api.get(f"{PATH}/senlin.policy.deletion-1.1", version="1.4")).json()["policy_type"]
    assert sorted(older) == ["name", "schema"]


async def test_each_version_has_its_own_schema(api: Api) -> None:
    for version, kind in (("1.0", "String"), ("1.1", "List")):
        shown = (await api.get(f"{PATH}/senlin.policy.affinity-{version}")).json()["policy_type"]
        assert shown["schema"]["servergroup"]["schema"]["policies"]["type"] == kind


async def test_a_type_that_does_not_exist(api: Api) -> None:
    answer = await api.get(f"{PATH}/13d70be3-5998-412b-ab75-da72a2f84c75")
    assert answer.status_code == 404
    message = "The policy_type '13d70be3-5998-412b-ab75-da72a2f84c75' could not be found."
    assert answer.json()["error"] == {"code": 404, "message": message, "type": "ResourceNotFound"}
