"""`python -m bench [NAME …]`: run the named benchmarks, or all of them, one after another."""

import importlib
import sys
from pathlib import Path

# Those called `..._peer` run in an environment of their own, started by the one that they are measured against.
NAMES = sorted(
    path.stem
    for path in Path(__file__).parent.glob("[!_]*.py")
    if "def main" in path.read_text() and not path.stem.endswith("_peer")
)


def main() -> None:
    """Run them, and keep each one's figures beside it."""
    wanted = sys.argv[1:] or NAMES
    unknown = set(wanted) - set(NAMES)
    if unknown:
        sys.exit(f"There is no benchmark {', '.join(sorted(unknown))}; there are {', '.join(NAMES)}.")
    del sys.argv[1:]  # Each has its own options, for when it is run by itself.
    for name in wanted:
        print(f"\n## {name}\n", flush=True)
        importlib.import_module(f"bench.{name}").main()


if __name__ == "__main__":
    main()
