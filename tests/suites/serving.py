"""A Roost for suites that were written for clouds with time to spare."""

from pathlib import Path

import argon2
import psycopg
import yaml

from roost.store.embedded import EmbeddedPostgres
from tests.conftest import Served, serve


def start(folder: Path) -> Served:
    """Serve from a folder, with patience for requests on a busy machine and passwords that are cheap to check."""
    settings = folder / "roost.conf"
    settings.write_text("[api]\nrequest_seconds = 300\n")
    served = serve(folder / "data", "--config", str(settings))
    _sign_in_cheaply(served)
    return served


def _sign_in_cheaply(served: Served) -> None:
    """Every command and test signs in anew, and most of what Roost does for one would be Argon2."""
    hasher = argon2.PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)
    with psycopg.connect(EmbeddedPostgres(served.folder).url) as connection:
        for cloud in yaml.safe_load(served.clouds.read_text())["clouds"].values():
            known = (hasher.hash(cloud["auth"]["password"]), cloud["auth"]["username"])
            connection.execute("UPDATE users SET password_hash = %s WHERE name = %s", known)
