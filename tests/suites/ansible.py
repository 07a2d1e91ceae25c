"""Run a playbook with the collection openstack.cloud twice against a Roost of its own: python -m tests.suites.ansible.

The second run must change nothing. Ansible and the collection live in .venv-ansible.
"""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.conftest import Served
from tests.suites.serving import start

HERE = Path(__file__).parent
HOME = HERE.parents[1] / ".venv-ansible"


def main() -> int:
    """Serve, run twice, and stop; 0 if both runs end well and the second changes nothing."""
    with tempfile.TemporaryDirectory(prefix="roost-ansible-", ignore_cleanup_errors=True) as folder:
        served = start(Path(folder))
        (Path(folder) / "image").write_bytes(b"an image" * 1000)
        try:
            made, again = (_run(served, Path(folder)) for _ in range(2))
        finally:
            served.process.terminate()
            served.process.wait(60)
    print(f"first run: {made} changed; second run: {again} changed")
    return 0 if made and again == 0 else 1


def _run(served: Served, folder: Path) -> int:
    """How many tasks changed something; -1 if one failed."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("OS_", "ANSIBLE", "PYTHON"))}
    environment |= {
        "HOME": str(folder),
        "OS_CLIENT_CONFIG_FILE": str(served.clouds),
        "ANSIBLE_COLLECTIONS_PATH": str(HOME / "collections"),
        "ANSIBLE_LOCALHOST_WARNING": "false",
        "LC_ALL": "C.UTF-8",
    }
    command = [str(HOME / "bin" / "ansible-playbook"), "-e", f"image={folder / 'image'}", str(HERE / "playbook.yml")]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    print(done.stdout[-4000:], done.stderr[-2000:], sep="\n")
    changed = re.search(r"changed=(\d+)", done.stdout)
    return int(changed[1]) if done.returncode == 0 and changed else -1


if __name__ == "__main__":
    sys.exit(main())
