"""trusted.yaml of a workspace, read with the place of every mistake."""

import os
import pwd
import socket

from benchhouse.documents.validation_errors import validated
from benchhouse.documents.yaml_reader import load_yaml
from benchhouse.schema.errors import BenchError, Exit
from benchhouse.schema.layout import WorkspaceFolder
from benchhouse.schema.roles import Role, may
from benchhouse.schema.trust import TrustedFile


def read_trusted(workspace: WorkspaceFolder) -> TrustedFile | None:
    """Return the contents of the file; None if there is none: then there are no limits, as on a laptop."""
    if not workspace.trusted.is_file():
        return None
    return validated(load_yaml(workspace.trusted), TrustedFile)


def login() -> str:
    """Return the login of this process's user, whatever its environment says."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())


def account() -> str:
    """Return the login and the host of this process. Two names under one account are one person."""
    return f"{login()}@{socket.gethostname()}"


def current_submitter() -> str:
    """Return the person at a command line or in a program: $BENCH_AS, or otherwise the login."""
    return os.environ.get("BENCH_AS") or login()


def require(workspace: WorkspaceFolder, role: Role, what: str, who: str = "") -> None:
    """Raise BenchError if a person, by default the user of this process, has less than that role."""
    trusted = read_trusted(workspace)
    if trusted is None:
        return
    who = who or current_submitter()
    person = trusted.people.get(who)
    if person is None or not may(person.role, role):
        has = f"has the role {person.role}" if person else "is not in the file"
        raise BenchError(
            f"{what} needs the role {role}, and {who} {has}: {workspace.trusted}",
            "ask somebody who has it, or for a change of that file",
            Exit.NEEDS_APPROVAL,
        )
