"""The command: python -m lab up | start | stop | restart NAME... | reset | status."""

import argparse
import sys

from lab import control, settings
from lab.steps import Failure

_COMMANDS = {"up": control.up, "start": control.start, "stop": control.stop, "reset": control.reset,
             "status": control.status}  # fmt: skip


def main() -> int:
    """Do one thing with the lab of the environment's settings."""
    parser = argparse.ArgumentParser(
        prog="python -m lab",
        description="A real, small OpenStack on this machine.",
        epilog=f"Settings, in the environment:\n{settings.describe()}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, work in _COMMANDS.items():
        commands.add_parser(name, help=(work.__doc__ or "").rstrip("."))
    commands.add_parser("restart", help=control.restart.__doc__).add_argument("names", nargs="+", metavar="NAME")
    options = parser.parse_args()
    chosen = settings.load()
    try:
        if options.command == "restart":
            control.restart(chosen, options.names)
        else:
            _COMMANDS[options.command](chosen)
    except Failure as failure:
        print(f"lab: {failure}", file=sys.stderr)
        return 1
    if options.command in ("up", "start"):
        print(f"The lab is up: export OS_CLIENT_CONFIG_FILE={chosen.clouds} OS_CLOUD=lab")
    return 0


if __name__ == "__main__":
    sys.exit(main())
