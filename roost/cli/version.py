"""`roost --version`: the release, and the commit that it was built from or runs in."""

import subprocess
from pathlib import Path

from roost import __version__

_PACKAGE = Path(__file__).parents[1]


def text() -> str:
    """The release, with the commit where one is known."""
    commit = _commit()
    return f"roost {__version__} ({commit})" if commit else f"roost {__version__}"


def _commit() -> str | None:
    written = _PACKAGE / "COMMIT"
    if written.exists():
        return written.read_text().strip()
    if not (_PACKAGE.parent / ".git").exists():
        return None
    command = ["git", "-C", str(_PACKAGE.parent), "describe", "--always", "--abbrev=12", "--dirty", "--exclude=*"]
    try:
        found = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return None
    return found.stdout.strip() or None
