"""Adds the commit to what is built, for `roost --version`; everything else is in pyproject.toml."""

import subprocess
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py


class BuildWithCommit(build_py):
    """Builds the package, and writes roost/COMMIT where Git knows one."""

    def run(self) -> None:
        super().run()
        asked = ["git", "rev-parse", "--short=12", "HEAD"]
        if not self.editable_mode and Path(".git").exists():
            found = subprocess.run(asked, capture_output=True, text=True, check=False)
            if found.returncode == 0:
                Path(self.build_lib, "roost", "COMMIT").write_text(found.stdout)


setup(cmdclass={"build_py": BuildWithCommit})
