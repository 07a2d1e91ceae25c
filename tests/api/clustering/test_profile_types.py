"""Profile types over HTTP."""

from tests.conftest import Api

PATH = "/clustering/v1/profile-types"


async def test_types_are_listed(api: Api) -> None:
    older = (await api.get(PATH, version="1.4")).json()["profile_types"]
    assert older == [
        {"name": "container.dockerinc.docker-1.0"},
        {"name": "os.heat.stack-1.0"},
        {"name": "os.nova.server-1.0"},
    ]
    newer = (await api.get(PATH, version="1.5")).json()["profile_types"]
    assert {each["name"]: each["support_status"]["1.0"][-1]["status"] for each in newer} == {
        "container.dockerinc.docker": "UNSUPPORTED",
        "os.heat.stack": "UNSUPPORTED",
        "os.nova.server": "SUPPORTED",
    }


async def test_a_type_is_shown_with_its_schema(api: Api) -> None:
    shown = (await api.get(f"{PATH}/os.nova.server-1.0", version="1.5")).json()["profile_type"]
    assert shown["schema"]["flavor"] == {
        "type": "String",
        "description": "ID of flavor used for the server.",
        "required": True,
        "updatable": True,
    }
    assert shown["schema"]["networks"]["schema"]["*"]["schema"]["port"]["type"] == "String"


async def test_the_operations_of_a_type(api: Api) -> None:
    found = (await api.get(f"{PATH}/os.nova.server-1.0/ops", version="1.4")).json()["operations"]
    assert found["change_password"] == {
        "description": "Change the administrator password.",
        "parameters": {
            "admin_pass": {
                "type": "String",
                "description": "New password for the administrator.",
                "required": False,
            }
        },
    }
    assert (await api.get(f"{PATH}/os.heat.stack-1.0/ops", version="1.4")).json() == {"operations": {}}


async def test_operations_came_with_1_4(api: Api) -> None:
    answer = await api.get(f"{PATH}/os.nova.server-1.0/ops", version="1.3")
    assert answer.status_code == 400
    assert answer.json()["error"]["message"] == "API version '1.3' is not supported on this method."


async def test_a_type_that_does_not_exist(api: Api) -> None:
    answer = await api.get(f"{PATH}/x-1.0")
    assert answer.status_code == 404
    assert answer.json()["error"]["message"] == "The profile_type 'x-1.0' could not be found."
    answer = await api.get(f"{PATH}/x-1.0/ops", version="1.4")
    assert answer.status_code == 400
    assert answer.json()["error"]["message"] == "The profile_type 'x-1.0' could not be found."
