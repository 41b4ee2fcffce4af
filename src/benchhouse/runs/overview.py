"""One run at a glance: what ran, where, how it ended, and which commands look closer."""

from dataclasses import dataclass

from benchhouse.runs.ledger import Ledger
from benchhouse.runs.status import status
from benchhouse.schema.layout import WorkspaceFolder
from benchhouse.warehouse.catalog import FILE_NAME

_HOSTS = """
SELECT DISTINCT host FROM trial_fact WHERE run_id = $run AND host IS NOT NULL ORDER BY host
""".strip()


@dataclass(frozen=True)
class RunOverview:
    """What `bench show RUN` says beside the table of points."""

    run_id: str
    scenario: str
    scenario_file: str
    experiment: str
    version: str
    distribution: str
    state: str
    created: str
    executor: str
    runtime: str
    site: str | None
    submitted_from: str
    hosts: tuple[str, ...]
    """Where its trials ran, as far as they are collected."""
    points: int
    trials: int
    done: int
    outcomes: tuple[tuple[str, int], ...]
    plan_digest: str
    next_commands: tuple[str, ...]


def overview(workspace: WorkspaceFolder, run_id: str) -> RunOverview:
    """What ran, where, and how it stands."""
    record, state = Ledger(workspace.run(run_id)).record, status(workspace, run_id)
    code = record.experiment
    return RunOverview(
        run_id=run_id,
        scenario=record.scenario,
        scenario_file=record.scenario_file,
        experiment=code.name,
        version=code.version,
        distribution=f"{code.distribution} {code.distribution_version}".strip(),
        state=state.state,
        created=record.created,
        executor=record.executor,
        runtime=record.runtime,
        site=record.site,
        submitted_from=record.host,
        hosts=_hosts(workspace, run_id),
        points=record.points,
        trials=record.trials,
        done=state.done,
        outcomes=tuple(state.outcomes.items()),
        plan_digest=record.plan_digest,
        next_commands=_next_commands(run_id, state.next),
    )


def _hosts(workspace: WorkspaceFolder, run_id: str) -> tuple[str, ...]:
    if not (workspace.warehouse / FILE_NAME).exists():
        return ()
    from benchhouse.warehouse.query import Warehouse

    with Warehouse.open(workspace) as warehouse:
        return tuple(row[0] for row in warehouse.query(_HOSTS, {"run": run_id}).rows)


def _next_commands(run_id: str, first: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys((first, f"bench report {run_id}", f"bench logs {run_id}", f"bench verify {run_id}")))
