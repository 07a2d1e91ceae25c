"""Runs where Nova 34 is installed, and needs nothing else: are these answers what Nova's own schemas say?

From standard input, one JSON array a line: module of nova.api.openstack.compute.schemas, kind of answer, minor version,
the answer. To standard output, a line for each that is not. With `versions` as its argument, the minor versions in
which any of the schemas changes.
"""

import importlib
import json
import re
import sys
from typing import Any

MODULES = (
    "aggregates",
    "availability_zone",
    "flavor_access",
    "flavors",
    "flavors_extraspecs",
    "hypervisors",
    "instance_actions",
    "keypairs",
    "limits",
    "migrations",
    "quota_classes",
    "quota_sets",
    "server_groups",
    "server_metadata",
    "servers",
    "services",
    "versions",
)


def responses(module: str) -> dict[str, dict[int, Any]]:
    """The schemas of a module's answers, by kind and by the minor version since when they hold."""
    found: dict[str, dict[int, Any]] = {}
    schemas = importlib.import_module(f"nova.api.openstack.compute.schemas.{module}")
    for name, schema in vars(schemas).items():
        match = re.fullmatch(r"([a-z_]+)_response(?:_v2(\d+))?", name)
        if match and isinstance(schema, dict):
            found.setdefault(match[1], {})[int(match[2] or 1)] = schema
    return found


def main() -> None:
    """Validate, or name the versions."""
    known = {module: responses(module) for module in MODULES}
    if sys.argv[1:] == ["versions"]:
        print(json.dumps(sorted({minor for kinds in known.values() for kind in kinds.values() for minor in kind})))
        return
    from jsonschema import Draft202012Validator

    formats = importlib.import_module("nova.api.validation.validators")._FORMAT_CHECKER
    for line in sys.stdin:
        module, kind, minor, answer = json.loads(line)
        versions = known[module][kind]
        schema = versions[max(since for since in versions if since <= minor)]
        for error in Draft202012Validator(schema, format_checker=formats).iter_errors(answer):
            place = "/".join(str(step) for step in error.absolute_path)
            print(f"{module} {kind} 2.{minor}: {place}: {error.message[:400]}")


if __name__ == "__main__":
    main()
