"""Documents of a run for a search engine: its numbers and its logs, with stable ids."""

import contextlib
import json
from collections.abc import Iterator, Mapping

from benchhouse.runs.logs import JOURNAL, RunLogs, Selection, TrialLogs
from benchhouse.runs.search_engine import SearchDocument
from benchhouse.schema.digests import digest
from benchhouse.schema.errors import BenchError
from benchhouse.schema.layout import WorkspaceFolder
from benchhouse.schema.logs import LogLine
from benchhouse.warehouse.query import Warehouse

_NUMBERS = """
    SELECT m.run_id, t.scenario, m.trial_id, t.experiment, t.experiment_version, m.instance_digest, m.metric, m.stat,
           m.value, m.unit, m.direction, m.n, m.scope, m."window", m.repetition, m.warmup, m.outcome, t.started
    FROM measurement_fact m JOIN trial_fact t USING (trial_id) ORDER BY m.trial_id, m.metric, m.stat
"""
_NAMED_BY = ("trial_id", "metric", "stat", "scope", "window")


def documents(workspace: WorkspaceFolder, run_id: str, prefix: str, *, logs: bool) -> Iterator[SearchDocument]:
    """Yield all documents of a collected run, each with the labels of its scenario."""
    with Warehouse.open(workspace) as warehouse:
        rows = warehouse.query(_NUMBERS, runs=[run_id]).dicts()
        kept = warehouse.query("SELECT labels FROM benchmark_run_fact", runs=[run_id]).rows
    labels = json.loads(kept[0][0] or "{}") if kept else {}
    for row in rows:
        name = digest([str(row[key]) for key in _NAMED_BY])[:32]
        yield SearchDocument(f"{prefix}-measurements", name, {**row, "labels": labels})
    if logs:
        with contextlib.suppress(BenchError):  # the logs of a pulled run are elsewhere
            yield from _log_documents(workspace, run_id, f"{prefix}-logs", labels)


def _log_documents(
    workspace: WorkspaceFolder, run_id: str, index: str, labels: Mapping[str, str]
) -> Iterator[SearchDocument]:
    run = RunLogs(workspace, run_id)
    about = {"run_id": run_id, "scenario": run.scenario, "labels": labels}
    for folder in run.folders(Selection()):
        file = folder.open(JOURNAL)
        if file is None:
            continue
        attempt = folder.attempt if isinstance(folder, TrialLogs) else 0
        with file:
            for number, text in enumerate(file):
                with contextlib.suppress(ValueError):  # a line that a kill cut off
                    line = LogLine.model_validate_json(text).model_dump(exclude_unset=True)
                    name = digest([run_id, folder.path.name, attempt, number])[:32]
                    yield SearchDocument(index, name, line | about | {"attempt": attempt})
