"""Find what need not be measured again: instances that an earlier run has whole, under the same conditions."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cached_property

from benchhouse.plan.expand import Plan
from benchhouse.runs.conditions import conditions
from benchhouse.runs.ledger import Ledger, RunRecord
from benchhouse.runs.prepared_run import PreparedRun
from benchhouse.runs.selection import scenarios_of_runs
from benchhouse.schema.layout import WorkspaceFolder
from benchhouse.schema.trial import trial_id


class EarlierRuns:
    """The runs of a workspace, searched for reusable instances; each ledger is read once."""

    def __init__(self, workspace: WorkspaceFolder) -> None:
        self.workspace = workspace

    def measured(self, prepared: PreparedRun) -> dict[int, str]:
        """Return the instances of a plan that exist, by their number in it, with the newest run that has each."""
        plan = prepared.plan
        runs = [ledger for ledger, record in self._alike(prepared) if record.experiment == plan.experiment]
        measured: dict[int, str] = {}
        if not runs:
            return measured
        digests = [instance.digest() for instance in plan.instances()]
        for ledger in runs:
            succeeded = _succeeded(ledger)
            for number, digest in enumerate(digests):
                if number not in measured and _is_whole(plan, ledger, digest, succeeded):
                    measured[number] = ledger.folder.run_id
        return measured

    def _alike(self, prepared: PreparedRun) -> list[tuple[Ledger, RunRecord]]:
        """Return the runs of the same scenario, place, and conditions, newest first."""
        there = self._by_scenario.get(prepared.plan.scenario.scenario, ())
        known = [(ledger, ledger.record) for ledger in map(self._ledger, there) if ledger.folder.record.is_file()]
        here = prepared.plan.scenario.executor, prepared.site_name
        known = [item for item in known if (item[1].executor, item[1].site) == here]
        now = conditions(prepared) if known else {}
        return [item for item in known if item[1].conditions == now]

    def _ledger(self, run_id: str) -> Ledger:
        return Ledger(self.workspace.run(run_id))

    @cached_property
    def _by_scenario(self) -> dict[str, Sequence[str]]:
        runs: dict[str, list[str]] = defaultdict(list)
        for run_id, scenario in sorted(scenarios_of_runs(self.workspace).items(), reverse=True):
            runs[scenario].append(run_id)
        return dict(runs)


def _succeeded(ledger: Ledger) -> dict[str, bool]:
    """Return whether each trial succeeded in the end."""
    ended = (event for event in ledger.events() if event.event == "ended")
    return {event.trial_id: event.outcome == "succeeded" for event in ended if event.trial_id}


def _is_whole(plan: Plan, ledger: Ledger, digest: str, succeeded: Mapping[str, bool]) -> bool:
    """Return whether all its repetitions succeeded; with a stopping rule, those of a finished run."""
    numbers = range(plan.scenario.most_repetitions)
    names = (trial_id(ledger.folder.run_id, digest, number, warmup=False) for number in numbers)
    ended = [succeeded.get(name) for name in names]
    if plan.scenario.until and ledger.last_event() == "finished":
        ended = [item for item in ended if item is not None]
    return bool(ended) and all(ended)
