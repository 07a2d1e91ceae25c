"""Runs `openstack ...` commands of python-senlinclient, many in one process: its imports take longer than its work.

It is run by the Python of .venv-senlin, whose osc-lib still lets that client print. One command a line, as a JSON list
of words, on standard input; for each a JSON object with its status, output and errors on standard output.
"""

import contextlib
import io
import json
import sys

from openstackclient import shell


def run(words: list[str]) -> dict[str, object]:
    """One command, as if typed."""
    output, errors = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
        try:
            status = shell.main(words)
        except SystemExit as exit:
            status = exit.code
    return {"status": status, "output": output.getvalue(), "errors": errors.getvalue()}


for line in sys.stdin:
    print(json.dumps(run(json.loads(line))), file=sys.__stdout__, flush=True)
