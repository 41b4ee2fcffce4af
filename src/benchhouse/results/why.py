"""Why a run got slower: affected points, abnormal nodes, ranks, and series, and the raw evidence of each.

Everything is joined on identity: trial ids of the compared numbers, and windows that each trial records by its own
clock, in seconds since its start. Clocks of two nodes are never compared with each other.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from benchhouse.analysis.playbooks import diagnose
from benchhouse.analysis.playbooks.signals import Way, find_shift
from benchhouse.analysis.playbooks.values import ComparedNumber, PointDiagnosis, Signal, SignalEvidence
from benchhouse.results.cases import Gathered, correct_waits
from benchhouse.results.comparison import ComparisonTable, PointRow
from benchhouse.results.request_files import SCOPE, add_holds, files_of, slowest
from benchhouse.schema.layout import TrialFolder, WorkspaceFolder
from benchhouse.schema.model import Model, empty_list
from benchhouse.warehouse.grouping import grouped
from benchhouse.warehouse.query import Warehouse, own

Row = Mapping[str, Any]
_MOST_MOVED = 8
_MOST_TRIALS = 3
_NOTABLE = 0.1

BASES = own(
    """
SELECT run_id, plan_digest, scenario, started, succeeded, benchmark_case_ids FROM benchmark_run_fact
ORDER BY started, run_id
""".strip()
)


class TrialReference(Model):
    """A trial to look at, and where its bytes are."""

    trial_id: str
    node: str
    number: str = Field(description="The point's worst number.")
    unit: str
    value: float = Field(description="What this trial had of it.")
    folder: str = Field(description="Relative to the workspace; sealed.")
    files: list[str] = Field(description="Of the evidence that moved: telemetry of its scopes, relative to the folder.")
    requests: str = Field("", description="File with one row a request or a second, where there is one.")
    slow: list[str] = Field(default_factory=empty_list, description="The slowest requests or fullest seconds in it.")
    logs: str = Field(description="Command that prints its log.")
    trace: str = Field(description="Command that walks it back to its bytes.")


class PointWhy(Model):
    """One workload point that got worse."""

    point: str
    numbers: list[ComparedNumber] = Field(description="Those that are worse for sure.")
    diagnoses: list[PointDiagnosis] = Field(description="The surest first; none: no evidence.")
    moved: list[SignalEvidence] = Field(description="Series that moved far outside their repetitions' spread.")
    trials: list[TrialReference] = Field(description="The worst first.")
    repro: str = Field(description="Command that runs one of its trials again.")
    base_trials: list[str] = Field(description="Trials of the base that it is compared with.")


class FailedTrial(Model):
    """A trial without a number."""

    trial_id: str
    point: str
    outcome: str
    code: str
    message: str
    folder: str
    logs: str
    rerun: str


class WhyAnswer(Model):
    """The answer of `bench why`."""

    schema_version: Literal[1] = 1
    run_id: str
    base: str = Field(description="The run that it is compared with; empty where there is none.")
    base_chosen: str = Field(description="How the base was chosen, in words.")
    scenario: str
    compared: int = Field(description="Numbers that were compared.")
    points: list[PointWhy] = Field(description="Points that got worse.")
    better: list[str] = Field(default_factory=empty_list, description="Numbers that got better, in words.")
    differences: list[str] = Field(default_factory=empty_list, description="What else is not the same in both runs.")
    failures: list[FailedTrial] = Field(default_factory=empty_list)
    pending: dict[str, int] = Field(
        default_factory=dict, description="Why trials wait or waited, by the batch system's words: of how many at most."
    )
    notes: list[str] = Field(default_factory=empty_list)
    scenario_file: str = Field("", description="What to run again.")

    @property
    def diagnosed(self) -> list[PointDiagnosis]:
        return [diagnosis for point in self.points for diagnosis in point.diagnoses]

    @property
    def headline(self) -> str:
        """The result in one sentence."""
        if not self.base:
            return f"{self.run_id}: there is no earlier run of this plan to compare with"
        if not self.points:
            return f"{self.run_id} is not slower than {self.base}: no number is worse for sure"
        if not self.diagnosed:
            return f"{self.run_id} got worse at {len(self.points)} of its points; no playbook has evidence for a cause"
        best = self.diagnosed[0]
        return f"{best.title} ({best.certainty} evidence, playbook {best.playbook})"


def abnormal_nodes(trials: Sequence[Row]) -> list[str]:
    """Return one line per node that was abnormal among its peers within a trial, the most frequent first."""
    messages: dict[str, list[str]] = {}
    for row in trials:
        for warning in row["warnings"] or []:
            code, _, message = warning.partition(": ")
            if code == "abnormal_node":
                messages.setdefault(message.partition(" ")[0], []).append(message)
    ordered = sorted(messages.items(), key=lambda item: (-len(item[1]), item[0]))
    return [f"In {len(rows)} of {len(trials)} trials {rows[-1]}" for _, rows in ordered]


def choose_base(warehouse: Warehouse, run_id: str) -> tuple[str, str]:
    """Return the newest earlier run with a successful trial, of the same plan or otherwise of the same case; and the
    reason, in words.
    """
    rows = warehouse.query(BASES, name="bases").dicts()
    own = next((row for row in rows if row["run_id"] == run_id), None)
    if own is None:
        return "", f"run {run_id} has no collected trial"
    earlier = [
        row for row in rows if (row["started"], row["run_id"]) < (own["started"], run_id) and row["succeeded"] > 0
    ]
    # sorted last, so preferred: runs of the same scenario; among equals the newest
    earlier.sort(key=lambda row: row["scenario"] == own["scenario"])
    same = [row for row in earlier if row["plan_digest"] == own["plan_digest"]]
    if same:
        return same[-1]["run_id"], "the newest earlier run of the same plan"
    cases = set(own["benchmark_case_ids"] or [])
    alike = [row for row in earlier if cases & set(row["benchmark_case_ids"] or [])]
    if alike:
        return alike[-1]["run_id"], "the newest earlier run with the same benchmark case; its plan is another"
    return "", "no earlier run has the same plan or benchmark case"


def explain(
    warehouse: Warehouse, table: ComparisonTable, run_id: str, base: str, reasons: Mapping[str, int]
) -> list[PointWhy]:
    """Return the points of a comparison that are significantly worse, each with the diagnoses of the playbooks and its
    evidence.
    """
    by_point = grouped(table.rows, lambda row: row.point)
    gathered = Gathered(warehouse, table, base, run_id)
    cases = correct_waits([gathered.case(point, rows, reasons) for point, rows in by_point.items()], len(table.rows))
    whys = []
    for case, (point, rows) in zip(cases, by_point.items(), strict=True):
        worse = [number for number in [*case.numbers, *([case.wait] if case.wait else [])] if number.worse]
        if not worse:
            continue
        complete = add_holds(warehouse.workspace, case, gathered.facts, rows[0].trials_a, rows[0].trials_b)
        diagnoses, moved = diagnose(complete), _moved(complete.signals)
        shown = [evidence for item in diagnoses for evidence in item.evidence] or moved
        trials = _worst(warehouse.workspace, rows, gathered, shown)
        repro = f"bench run {trials[0].folder}/effective_config.yaml"
        whys.append(
            PointWhy(
                point=point,
                numbers=worse,
                diagnoses=diagnoses,
                moved=moved,
                trials=trials,
                repro=repro,
                base_trials=list(rows[0].trials_a),
            )
        )
    return whys


def _moved(signals: Iterable[Signal]) -> list[SignalEvidence]:
    """Return series that shifted by at least a tenth, the farthest first, at most _MOST_MOVED."""
    ways: tuple[Way, ...] = ("up", "down")
    shifts = (find_shift(signal, way, 0.0, _NOTABLE, "avg", None) for signal in signals for way in ways)
    moved = filter(None, shifts)
    return sorted(moved, key=lambda shift: (-shift.distance, shift.scope, shift.series))[:_MOST_MOVED]


def _worst(
    workspace: WorkspaceFolder, rows: Sequence[PointRow], gathered: Gathered, shown: Sequence[SignalEvidence]
) -> list[TrialReference]:
    """Return the trials of the run, worst first by its worst number; trials that the evidence refers to come first."""
    facts = gathered.facts
    row = max(rows, key=lambda row: (row.verdict == "worse", abs(row.change or 0.0)))
    value = {trial: gathered.values[trial, row.metric, row.stat] for trial in row.trials_b}
    named = set(shown[0].trials[: shown[0].hits]) if shown else set()
    sign = -1.0 if row.direction == "lower" else 1.0
    order = sorted(value, key=lambda trial: (trial not in named, sign * value[trial], trial))
    worst = []
    for trial in order[:_MOST_TRIALS]:
        folder = TrialFolder(workspace.root / facts[trial]["folder"])
        files = ["telemetry/summary.json"] if folder.telemetry_summary.is_file() else []
        files += [
            f"telemetry/{path.name}"
            for scope in dict.fromkeys(evidence.scope for evidence in shown)
            for path in _files_of(folder.telemetry, scope)
        ]
        files += files_of(folder) if any(evidence.scope == SCOPE for evidence in shown) else []
        requests, slow = slowest(folder)
        worst.append(
            TrialReference(
                trial_id=trial,
                node=facts[trial]["host"] or "",
                number=row.name,
                unit=row.unit,
                value=value[trial],
                folder=facts[trial]["folder"],
                files=files,
                requests=requests,
                slow=slow,
                logs=f"bench logs tail {facts[trial]['run_id']} --trial {trial}",
                trace=f"bench trace {trial}",
            )
        )
    return worst


def _files_of(folder: Path, scope: str) -> list[Path]:
    """Return the telemetry files of a scope, as monitors name them: service.postgres.parquet for `service:postgres`,
    node02.*.parquet for a node.
    """
    name = re.sub(r"[^A-Za-z0-9_-]+", ".", scope).strip(".")
    own = folder / f"{name}.parquet"
    return [own] if own.is_file() else sorted(folder.glob(f"{name}.*.parquet"))


def filled_in(why: WhyAnswer, lines: list[str]) -> list[str]:
    """Return lines of a diagnosis with `{run}`, `{base}`, and `{scenario}` replaced by the names of its run."""
    names = {"{run}": why.run_id, "{base}": why.base, "{scenario}": why.scenario_file or "SCENARIO.yaml"}
    return [re.sub(r"\{(?:run|base|scenario)\}", lambda match: names[match[0]], line) for line in lines]
