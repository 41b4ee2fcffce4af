"""The status of runs that were pulled into the tables: they were run elsewhere and have no ledger here."""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence

from benchhouse.runs.status import RunOverview, RunStatus, UnsuccessfulTrial
from benchhouse.schema.layout import WorkspaceFolder
from benchhouse.warehouse import queries
from benchhouse.warehouse.catalog import FILE_NAME, RunEntry
from benchhouse.warehouse.query import Warehouse

_UNSUCCESSFUL = """
SELECT run_id, trial_id, outcome, coalesce(failure_code, ''), coalesce(failure_message, ''), point FROM trial_fact
WHERE outcome <> 'succeeded' ORDER BY started, trial_id"""
_MOST_KEPT = 4096
_known: dict[tuple[str, RunEntry], RunStatus] = {}  # by workspace and entry: a run that grows gets another entry


def entries(workspace: WorkspaceFolder, made_here: Collection[str]) -> list[RunEntry]:
    """Return the runs of the tables, except those that were run here."""
    if not (workspace.warehouse / FILE_NAME).exists():
        return []
    with Warehouse.open(workspace) as warehouse:
        return [entry for entry in warehouse.catalog.runs() if entry.run_id not in made_here]


def status(workspace: WorkspaceFolder, run_id: str) -> RunStatus | None:
    """Return the status of a pulled run; None if the run was run here or is not in the tables."""
    if workspace.run(run_id).record.is_file():
        return None
    return next(iter(statuses(workspace, [item for item in entries(workspace, ()) if item.run_id == run_id])), None)


def overview(workspace: WorkspaceFolder, run_id: str) -> RunOverview | None:
    """Return the overview of a pulled run, or None as `status`. Fields that only its ledger has are empty."""
    state = status(workspace, run_id)
    if state is None:
        return None
    with Warehouse.open(workspace) as warehouse:
        trials = queries.trials(warehouse, [run_id]).dicts()
    first = trials[0]
    return RunOverview(
        run_id=run_id,
        scenario=state.scenario,
        scenario_file="",
        experiment=first["experiment"],
        version=first["experiment_version"],
        distribution=f"{first['distribution']} {first['distribution_version']}".strip(),
        state=state.state,
        created=state.created,
        executor=state.executor,
        runtime=first["runtime"],
        site=None,
        submitted_from="",
        hosts=tuple(sorted({row["host"] for row in trials if row["host"]})),
        points=len({row["instance_digest"] for row in trials}),
        trials=state.trials,
        done=state.done,
        outcomes=tuple(state.outcomes.items()),
        plan_digest=first["plan_digest"],
        next_commands=(state.next, f"bench verify {run_id}"),
    )


def statuses(workspace: WorkspaceFolder, runs: Sequence[RunEntry]) -> list[RunStatus]:
    """Return each status as far as the tables have it; failures are read once per run."""
    place = str(workspace.root)
    new = [run for run in runs if (place, run) not in _known]
    if len(_known) + len(new) > _MOST_KEPT:
        _known.clear()
        new = list(runs)
    failed = _unsuccessful(workspace, [run.run_id for run in new if run.failed])
    _known.update(((place, run), _status(run, failed[run.run_id])) for run in new)
    return [_known[place, run] for run in runs]


def _status(run: RunEntry, unsuccessful: list[UnsuccessfulTrial]) -> RunStatus:
    outcomes = Counter({"succeeded": run.succeeded} if run.succeeded else {})
    outcomes.update(trial.outcome for trial in unsuccessful)
    return RunStatus(
        run_id=run.run_id,
        scenario=run.scenario,
        experiment=f"{run.experiment} {run.experiment_version}",
        executor=run.executor,
        state="pulled",
        owner_pid=None,
        created=run.started,
        trials=run.trials,
        done=run.trials,
        outcomes=dict(outcomes),
        states=dict(outcomes),
        retries=0,
        unread_events=0,
        running=[],
        running_points=[],
        queue=None,
        estimated_left_s=None,
        failures=[trial for trial in unsuccessful if trial.outcome != "invalid"],
        invalid=[trial for trial in unsuccessful if trial.outcome == "invalid"],
        next=f"bench report {run.run_id}",
    )


def _unsuccessful(workspace: WorkspaceFolder, runs: Iterable[str]) -> dict[str, list[UnsuccessfulTrial]]:
    of_run: dict[str, list[UnsuccessfulTrial]] = defaultdict(list)
    wanted = sorted(runs)
    if not wanted:
        return of_run
    with Warehouse.open(workspace) as warehouse:
        for run_id, trial_id, outcome, code, message, point in warehouse.query(_UNSUCCESSFUL, runs=wanted).rows:
            trial = UnsuccessfulTrial(trial_id, outcome, code, message.partition("\n")[0], point, message)
            of_run[run_id].append(trial)
    return of_run
