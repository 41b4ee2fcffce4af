"""Find the run that a user means: the one place that resolves `@last`, prefixes, and scenario names, for every verb."""

import re

from benchhouse.documents.problems import guess_hint
from benchhouse.runs.ledger import Ledger, list_runs
from benchhouse.schema.errors import BenchError, NotFoundError
from benchhouse.schema.layout import WorkspaceFolder
from benchhouse.warehouse.catalog import FILE_NAME
from benchhouse.warehouse.query import Warehouse

_LAST = re.compile(r"@last(?:[-~](\d+))?")
_WHOLE_ID = re.compile(r"\d{8}-\d{6}-[0-9a-f]+")
_SHOWN = 5


def local_and_pulled_runs(workspace: WorkspaceFolder) -> list[str]:
    """Return all runs of a workspace, oldest first: those run here, and those pulled into its tables."""
    return sorted({*list_runs(workspace), *_collected(workspace)})


def find_run(workspace: WorkspaceFolder, token: str) -> str:
    """Return a run id for `@last`, `@last-N`, `@last~N`, a unique prefix, or a scenario (its last run)."""
    if _WHOLE_ID.fullmatch(token) and workspace.run(token).record.is_file():
        return token
    runs = local_and_pulled_runs(workspace)
    if not runs:
        raise NotFoundError("there is no run in this workspace yet", "start one: bench run SCENARIO.yaml")
    if match := _LAST.fullmatch(token):
        back = int(match[1] or 0)
        if back >= len(runs):
            raise NotFoundError(f"there is no run {token}: this workspace has {len(runs)}", "see: bench status")
        return runs[-1 - back]
    matches = [run for run in runs if run.startswith(token)] if token else []
    if token in matches or len(matches) == 1:
        return token if token in matches else matches[0]
    if matches:
        more = f" and {len(matches) - _SHOWN} more" if len(matches) > _SHOWN else ""
        raise BenchError(f"'{token}' could be {', '.join(matches[:_SHOWN])}{more}", "give more of the id")
    scenarios = _scenarios(workspace)
    if token in scenarios:
        return scenarios[token]
    hint = guess_hint(token, [*scenarios, *runs, "@last"])
    raise NotFoundError(f"no run '{token}'", f"{hint}see: bench status")


def find_selector(workspace: WorkspaceFolder, selector: str) -> str:
    """Return `RUN`, `RUN:key=value,...`, or `RUN:...:METRIC` with the run's full id."""
    run, colon, rest = selector.partition(":")
    return f"{find_run(workspace, run)}{colon}{rest}"


def scenarios_of_runs(workspace: WorkspaceFolder) -> dict[str, str]:
    """Return the scenario of each known run. Ledgers are read only for runs that are not in the tables."""
    collected = _collected(workspace)
    others = [run for run in list_runs(workspace) if run not in collected]
    return collected | {run: Ledger(workspace.run(run)).record.scenario for run in others}


def _scenarios(workspace: WorkspaceFolder) -> dict[str, str]:
    """Return the newest run of each scenario."""
    return {scenario: run for run, scenario in sorted(scenarios_of_runs(workspace).items())}


def _collected(workspace: WorkspaceFolder) -> dict[str, str]:
    if not (workspace.warehouse / FILE_NAME).exists():
        return {}
    with Warehouse.open(workspace) as warehouse:
        return {run.run_id: run.scenario for run in warehouse.catalog.runs()}
