"""The dashboard's files: what browsers get at the root, and what others get."""

import re
from importlib import resources

import pytest

from tests.conftest import Api

FILES = sorted(entry.name for entry in resources.files("roost").joinpath("web").iterdir())
TYPES = {"html": "text/html", "js": "text/javascript", "css": "text/css", "svg": "image/svg+xml"}
BROWSER = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}


async def test_browsers_get_the_page_and_others_the_document(api: Api) -> None:
    page = await api.get("/", cloud=None, headers=BROWSER)
    assert page.headers["Content-Type"] == "text/html; charset=utf-8"
    document = await api.get("/", cloud=None)
    assert document.json()["name"] == "roost"
    assert page.headers["Vary"] == document.headers["Vary"] == "Accept"


@pytest.mark.parametrize("name", FILES)
async def test_every_file_has_its_type_and_is_asked_for_again_without_cost(api: Api, name: str) -> None:
    answer = await api.get(f"/web/{name}", cloud=None)
    assert answer.status_code == 200
    assert answer.headers["Content-Type"].startswith(TYPES[name.rpartition(".")[2]])
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    # Browsers ask for the icon at every page, and it hardly ever changes.
    assert answer.headers["Cache-Control"] == ("max-age=3600" if name == "icon.svg" else "no-cache")
    again = await api.get(f"/web/{name}", cloud=None, headers={"If-None-Match": answer.headers["ETag"]})
    assert (again.status_code, again.content) == (304, b"")


async def test_nothing_runs_that_is_not_a_file_of_ours(api: Api) -> None:
    page = await api.get("/", cloud=None, headers=BROWSER)
    policy = page.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert re.findall(r"<script(?![^>]*\bsrc=)", page.text) == []
    assert re.findall(r"\s(?:on\w+|style)=", page.text) == []
    assert re.findall(r"https?://", page.text) == []


@pytest.mark.parametrize("path", ["/web/nothing.js", "/web/..%2fconfig.py", "/web/", "/web"])
async def test_what_is_no_file_of_the_page_is_not_found(api: Api, path: str) -> None:
    assert (await api.get(path, cloud=None)).status_code == 404
