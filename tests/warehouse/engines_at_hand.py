"""Engines for tests: a database of its own in a real PostgreSQL, ClickHouse in a folder, a second lake."""

from pathlib import Path

from services.postgres import new_database as new_database
from trial_maker import make_run, make_trial

from benchhouse.schema.layout import WorkspaceFolder
from benchhouse.warehouse.ingest import collect

RUNS = ["run-a", "run-b"]


def filled(root: Path) -> WorkspaceFolder:
    """Two runs with telemetry, warm-ups and a failure, text that is hard to carry among it."""
    workspace = WorkspaceFolder(root)
    for at, run in enumerate(RUNS):
        folders = make_run(workspace, run, cores=1.5 + at / 3, minute=at)
        reason = ("boom", 'a "quoted", text;\n\tü\\N {x,NULL}\r\nend')
        folders.append(make_trial(workspace, run, 9, ef=3, outcome="failed", reason=reason, minute=at))
        collect(workspace, run, folders)
    return workspace
