"""Run the programs of providers as argument lists; their output goes to stderr, like progress messages."""

import os
import shutil
import subprocess
from collections.abc import Callable, Sequence

from benchhouse.schema.errors import BenchError, Exit
from benchhouse.sites.infra.providers import Command

_TOFU = ("tofu", "terraform")
_FROM = {
    "{tofu}": "install OpenTofu (opentofu.org) or Terraform",
    "aws": "install the AWS command line (aws.amazon.com/cli)",
    "bash": "install bash",
    "kind": "install kind (kind.sigs.k8s.io), which needs Docker or Podman",
    "kubectl": "install kubectl (kubernetes.io/docs/tasks/tools)",
}


def resolved(commands: Sequence[Command]) -> list[Command]:
    """Return the commands with installed programs. Raise BenchError if one is missing, before anything runs."""
    return [(_program(command[0]), *command[1:]) for command in commands]


def shown(commands: Sequence[Command]) -> list[Command]:
    """Return the commands as a person would type them, even if the programs are not installed."""
    tofu = next(filter(shutil.which, _TOFU), _TOFU[0])
    return [tuple(tofu if word == "{tofu}" else word for word in command) for command in commands]


def _program(name: str) -> str:
    names = _TOFU if name == "{tofu}" else (name,)
    found = next(filter(shutil.which, names), None)
    if found is None:
        raise BenchError(f"{' or '.join(names)} is not on PATH: nothing was run", _FROM[name])
    return found


def run(commands: Sequence[Command], note: Callable[[str], None]) -> None:
    """Run the commands in order; raise BenchError at the first that fails.

    They receive Ctrl-C too: wait until they have ended cleanly.
    """
    for command in commands:
        note(f"$ {' '.join(command)}")
        interrupted = False
        with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=2, env=os.environ) as child:
            while True:
                try:
                    code = child.wait()
                    break
                except KeyboardInterrupt:
                    interrupted = True
                    note(f"waiting for {command[0]} to end; what it made is in its state")
        if interrupted:
            raise KeyboardInterrupt
        if code:
            raise BenchError(
                f"{command[0]} ended with exit code {code}", "its words are above; the same command goes on from there",
                Exit.TRIAL_FAILED,
            )  # fmt: skip
