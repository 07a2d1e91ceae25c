"""Sample files for operators, printed by the libraries that will read them."""

import importlib.util
import sys

from oslo_config import cfg, generator
from oslo_policy import generator as policy_generator


def print_config() -> None:
    """Every option with its help and default."""
    conf = cfg.ConfigOpts()
    generator.register_cli_opts(conf)
    namespaces = ["roost", "oslo.policy"]
    if importlib.util.find_spec("keystonemiddleware"):
        namespaces.append("keystonemiddleware.auth_token")
    arguments = [word for namespace in namespaces for word in ("--namespace", namespace)]
    conf(arguments, default_config_files=[], default_config_dirs=[])
    generator.generate(conf)


def print_policy() -> None:
    """Every rule with what it guards and who has it."""
    policy_generator.generate_sample(["--namespace", "roost"], cfg.ConfigOpts())
    sys.stdout.flush()
