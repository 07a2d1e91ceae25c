"""`roost audit`: what an operator has to look at, a line each."""

import asyncio

from roost.cli.progress import progress
from roost.compute.answers import audit
from roost.compute.answers.audit import Finding
from roost.config import Settings, database_url
from roost.store.database import Database


def run(settings: Settings) -> int:
    """Print every finding; 1 if there are any, so that a script can tell."""
    findings = asyncio.run(_find(settings))
    for finding in findings:
        print(f"{finding.kind}: {finding.message}")
    if not findings:
        print("Nothing found: every rule holds.")
    return 1 if findings else 0


async def _find(settings: Settings) -> list[Finding]:
    database = Database(database_url(settings), session_url=settings.session_url)
    try:
        with progress("auditing") as tell:
            async with database.begin() as connection:
                return await audit.audit_all(connection, tell)
    finally:
        await database.close()
