"""`bench why --try`: run the playbook's experiment, alternating with the unchanged slow scenario, and judge the
result."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from benchhouse.analysis.playbooks.remedies import NoRemedy, Remedy, remedy
from benchhouse.api import execution
from benchhouse.api.answers import Diagnosis
from benchhouse.api.why import why
from benchhouse.documents.yaml_reader import load_yaml
from benchhouse.results.remedy_outcome import Tried, TriedNumber, judge, overall
from benchhouse.runs.records import open_run
from benchhouse.schema.errors import BenchError, Exit
from benchhouse.schema.layout import TrialFolder, WorkspaceFolder
from benchhouse.warehouse import queries
from benchhouse.warehouse.query import Warehouse

if TYPE_CHECKING:
    from benchhouse.api.workspace import Workspace
    from benchhouse.results.why import PointWhy, WhyAnswer

SUFFIX = "-try"
FEWEST_ROUNDS = 3


class TryKeywords(TypedDict, total=False):
    """Whether the playbook's experiment is run as well."""

    rounds: int | None
    """How many times to run it, alternating with the unchanged scenario; three or more."""
    progress: bool | execution.RunListener
    """Show progress."""


def diagnose(workspace: "Workspace", run_id: str, vs: str | None = None, **trying: Unpack[TryKeywords]) -> Diagnosis:
    """Return why a collected run got slower and, with `rounds`, the effect of the remedy."""
    folder, rounds = workspace.folder, trying.get("rounds")
    explained = why(folder, run_id, vs)
    if rounds is None:
        return Diagnosis(workspace, explained)
    listener = execution.listener_of(trying.get("progress", False))
    return Diagnosis(workspace, explained, try_remedy(folder, explained, rounds, listener))


def try_remedy(workspace: WorkspaceFolder, why: "WhyAnswer", rounds: int, listener: execution.RunListener) -> Tried:
    """Run the experiment of the most certain diagnosis of the first point that has one, `rounds` times each way."""
    point = next((point for point in why.points if point.diagnoses), None)
    if point is None:
        return Tried(outcome="impossible", reason=why.headline)
    diagnosis = point.diagnoses[0]
    slow = _scenario(workspace, why.run_id, point)
    try:
        change = remedy(diagnosis, slow, [trial.node for trial in point.trials if trial.node])
    except NoRemedy as error:
        tried = {"point": point.point, "cause": diagnosis.cause, "title": diagnosis.title}
        return Tried(**tried, outcome="impossible", reason=str(error))
    listener.note(f"try: {change.says}; {rounds} rounds, as it was and changed in turns")
    runs = _run_in_turns(workspace, slow, change, rounds, listener)
    numbers = _judge(workspace, why, point, runs)
    return Tried(
        point=point.point,
        cause=diagnosis.cause,
        title=diagnosis.title,
        remedy=change.says,
        outcome=overall(numbers),
        rounds=rounds,
        runs=[run for pair in runs for run in pair],
        numbers=numbers,
    )


def _scenario(workspace: WorkspaceFolder, run_id: str, point: "PointWhy") -> dict[str, Any]:
    """Return a scenario that repeats the worst trial. Its Slurm settings come from the scenario of the run."""
    path = TrialFolder(workspace.root / point.trials[0].folder).effective_config
    scenario: dict[str, Any] = dict(load_yaml(path).data)
    whole = workspace.run(run_id).scenario
    slurm = load_yaml(whole).data.get("slurm") if whole.is_file() else None
    return scenario | ({"slurm": dict(slurm)} if slurm else {})


def _run_in_turns(
    workspace: WorkspaceFolder, slow: Mapping[str, Any], change: Remedy, rounds: int, listener: execution.RunListener
) -> list[tuple[str, str]]:
    """Return the runs of each round, unchanged and changed. Which goes first alternates between rounds."""
    name = f"{str(slow['scenario']).removesuffix(SUFFIX)}{SUFFIX}"
    runs = []
    for at in range(rounds):
        seed = {"seed": int(slow.get("seed") or 0) + at, "scenario": name}
        sides: dict[bool, str] = {}
        for changed in (False, True) if at % 2 == 0 else (True, False):
            document = {**(change.scenario if changed else slow), **seed}
            prepared, path = execution.prepare_source(workspace, document, {})
            ledger = open_run(workspace, prepared, path, listener.note, new=True)
            execution.carry_out(workspace, ledger, prepared, listener=listener)
            sides[changed] = ledger.folder.run_id
        runs.append((sides[False], sides[True]))
    return runs


def _judge(
    workspace: WorkspaceFolder, why: "WhyAnswer", point: "PointWhy", runs: list[tuple[str, str]]
) -> list[TriedNumber]:
    every = [run for pair in runs for run in pair]
    with Warehouse.open(workspace) as warehouse:
        good = {
            (row["metric"], row["stat"]): list(row["values"])
            for row in queries.points(warehouse, [why.base]).dicts()
            if set(row["trials"]) <= set(point.base_trials)
        }
        tried = {
            (row["run_id"], row["metric"], row["stat"]): row["mean"] for row in queries.points(warehouse, every).dicts()
        }
    numbers = []
    for number in point.numbers:
        key = number.metric, number.stat
        pairs = [
            (tried[slow, *key], tried[changed, *key])
            for slow, changed in runs
            if (slow, *key) in tried and (changed, *key) in tried
        ]
        if key in good and len(pairs) >= FEWEST_ROUNDS:
            as_it_was, changed = ([pair[at] for pair in pairs] for at in (0, 1))
            numbers.append(judge(number, good[key], as_it_was, changed))
    if not numbers:
        raise BenchError(
            f"fewer than {FEWEST_ROUNDS} of {len(runs)} rounds have numbers of both ways: trials did not succeed",
            f"see why: bench status {every[-1]}",
            Exit.TRIAL_FAILED,
        )
    return numbers
