"""`roost config check`: everything that a process would refuse at its start, and what it would not notice."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import yaml

from roost import config
from roost.api.app import default_rules
from roost.api.auth import KeystoneAuthenticator
from roost.api.permissions import Permissions
from roost.clusters import plugins
from roost.compute.groups import notifications
from roost.config import Settings
from roost.errors import RoostError
from roost.suggestions import nearest


def run(file: Path) -> int:
    """Print each problem of a configuration file on a line; 1 if there are any."""
    settings = config.load(file)
    found = list(_problems(settings))
    for problem in found:
        print(f"{file}: {problem}")
    if not found:
        print(f"{file}: nothing is wrong.")
    return 1 if found else 0


def _problems(settings: Settings) -> Iterator[str]:
    for check in _checks(settings):
        try:
            check()
        except Exception as error:  # the libraries of others have errors of their own
            yield error.message if isinstance(error, RoostError) else str(error)
    if settings.statement_seconds >= settings.request_seconds:
        yield "[database] statement_seconds must be less than [api] request_seconds."
    if settings.in_front_of_nova and not settings.clusters.os_cloud:
        yield "[clusters] cloud = openstack needs os_cloud: the cloud of clouds.yaml to use."
    yield from _unknown_permissions(settings)


def _checks(settings: Settings) -> Iterator[Callable[[], object]]:
    for listen in filter(None, (settings.listen, settings.engine_listen)):
        yield partial(config.address, listen)
    yield partial(plugins.load, settings)
    if settings.auth_strategy == "keystone":
        yield partial(KeystoneAuthenticator, settings)
    if notifications.wanted(settings):
        yield partial(notifications.sender, settings)


def _unknown_permissions(settings: Settings) -> Iterator[str]:
    """Names in policy.yaml that have no effect: not a permission, and not used by another rule."""
    known = {rule.name for rule in default_rules()}
    Permissions(settings, default_rules())
    found = settings.source.find_file(settings.source.oslo_policy.policy_file)
    if found is None:
        return
    try:
        written = yaml.safe_load(Path(found).read_text()) or {}
    except (OSError, yaml.YAMLError) as error:
        yield f"{found} cannot be read: {' '.join(str(error).split())}."
        return
    used = " ".join(map(str, written.values()))
    for name in written:
        if name not in known and f"rule:{name}" not in used:
            yield f"{found} has '{name}', which is no permission; {nearest(name, known)}"
