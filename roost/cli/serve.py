"""`roost serve`: a database, a cloud, an API and an engine, all in one process and one folder."""

import os
import secrets
import sys
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from roost import config
from roost.cli import bootstrap, processes
from roost.clusters import plugins
from roost.config import Settings
from roost.errors import Invalid
from roost.store import schema
from roost.store.embedded import EmbeddedPostgres

_STOP_SECONDS = 2.0

QUOTAS = {
    "quota__instances": 200,
    "quota__cores": 400,
    "quota__ram": 800 * 1024,
    "quota__server_groups": 100,
    "quota__server_group_members": 100,
}
"""What each project may have unless the configuration says otherwise: enough for every example in the documentation."""


def run(settings: Settings, folder: Path, topology: str | None) -> int:
    """Set everything up that is not there yet, then serve until stopped."""
    plugins.load(settings)  # a type that cannot be used is refused before anything is started
    host, port = settings.address
    postgres = EmbeddedPostgres(folder)
    settings = config.with_image_folder(settings, folder.absolute() / "images")
    try:
        if settings.database_url is None:
            postgres.start()
            settings = config.with_database(settings, postgres.url)
        url = config.database_url(settings)
        schema.upgrade(url)
        clouds = folder.absolute() / "clouds.yaml"
        everywhere = host in ("0.0.0.0", "::")  # noqa: S104
        scheme = "https" if settings.tls_cert else "http"
        site = settings.public_url or f"{scheme}://{'127.0.0.1' if everywhere else host}:{port}"
        passwords = _passwords(clouds)
        bootstrap.fill(settings, passwords, topology)
        _write(clouds, site, settings.region, passwords)
        welcome = _welcome(site, clouds)
        ready = partial(print, welcome, flush=True)
        return processes.run(settings, api=True, engine=True, ready=ready, give_up=postgres.kill)
    finally:
        postgres.stop(_STOP_SECONDS)


def _passwords(clouds: Path) -> dict[str, str]:
    """The password of each user: as written the last time, or new."""
    known: dict[str, str] = {}
    if clouds.exists():
        try:
            for cloud in yaml.safe_load(clouds.read_text())["clouds"].values():
                known[cloud["auth"]["username"]] = cloud["auth"]["password"]
        except (yaml.YAMLError, KeyError, TypeError, AttributeError):
            raise Invalid(f"{clouds} cannot be read; remove it, and new passwords will be made.") from None
    return {user.name: known.get(user.name) or secrets.token_urlsafe(18) for user in bootstrap.USERS}


def _write(clouds: Path, site: str, region: str, passwords: dict[str, str]) -> None:
    entries: dict[str, Any] = {
        user.cloud: {
            "auth": {
                "auth_url": f"{site}/identity",
                "username": user.name,
                "password": passwords[user.name],
                "project_name": user.project,
                "user_domain_id": "default",
                "project_domain_id": "default",
            },
            "region_name": region,
            "identity_api_version": "3",
        }
        for user in bootstrap.USERS
    }
    clouds.parent.mkdir(parents=True, exist_ok=True)
    fresh = clouds.with_suffix(".new")
    fresh.unlink(missing_ok=True)
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write("# Written by `roost serve` at each start.\n")
        yaml.safe_dump({"clouds": entries}, file, sort_keys=False)
    fresh.replace(clouds)


def _welcome(site: str, clouds: Path) -> str:
    return f"""
Roost is ready at {site}

In another terminal:
  export OS_CLIENT_CONFIG_FILE={clouds} PATH={Path(sys.executable).parent}:$PATH
  openstack --os-cloud roost-admin hypervisor list
  openstack --os-cloud roost availability zone list
  openstack --os-cloud roost flavor list

Clouds: {", ".join(user.cloud for user in bootstrap.USERS)}
Ctrl-C stops everything; the data stays.
"""
