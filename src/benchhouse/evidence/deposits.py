"""A journal of the other places that have a run's evidence: stores that it was pushed to, and packets that hold it."""

from collections.abc import Iterable
from typing import Literal

from pydantic import Field

from benchhouse.evidence import journals
from benchhouse.evidence.writing import now
from benchhouse.schema.layout import WorkspaceFolder
from benchhouse.schema.model import Model


class Deposit(Model):
    """A line of .bench/deposits.jsonl."""

    time: str
    kind: Literal["store", "packet"]
    run_id: str
    uri: str
    sha256: str = Field("", description="Of a packet.")


def note(
    workspace: WorkspaceFolder, kind: Literal["store", "packet"], uris: dict[str, str], sha256: str = ""
) -> list[str]:
    """Record deposits that are not known yet, by run and URI. Return the runs whose deposit is new."""
    known = {(item.run_id, item.uri, item.sha256) for item in deposits(workspace)}
    new = [run_id for run_id, uri in uris.items() if (run_id, uri, sha256) not in known]
    lines = [Deposit(time=now(), kind=kind, run_id=run_id, uri=uris[run_id], sha256=sha256) for run_id in new]
    journals.append(workspace.deposit_journal, lines, "the same command again: what is there already is not moved")
    return new


def deposits(workspace: WorkspaceFolder, runs: Iterable[str] | None = None) -> list[Deposit]:
    """Return all deposits, or those of some runs, oldest first."""
    lines, _ = journals.read(workspace.deposit_journal, Deposit)
    wanted = None if runs is None else set(runs)
    return [line for line in lines if wanted is None or line.run_id in wanted]
