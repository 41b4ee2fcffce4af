"""The gate of a pipeline: is NEW worse than BASE by more than is tolerated?"""

from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from benchhouse.analysis.compare import HIDDEN
from benchhouse.analysis.gating import MeasuredChange, Ruling, rule
from benchhouse.evidence import journals
from benchhouse.evidence.writing import now
from benchhouse.results import selftest_record
from benchhouse.results.comparison import CompareOptions, ComparisonTable, PointRow
from benchhouse.results.comparisons import compare, scenario_of
from benchhouse.results.metric_names import declared_primary
from benchhouse.schema.errors import BenchError, Exit
from benchhouse.schema.experiment import Direction
from benchhouse.schema.layout import TrialFolder, WorkspaceFolder
from benchhouse.schema.quality import RegressionRecord
from benchhouse.warehouse import queries
from benchhouse.warehouse.query import Warehouse


class NoBaselineError(BenchError):
    """There is no run to compare with: this is the first one."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message, hint, Exit.NO_BASELINE)


@dataclass(frozen=True)
class GateRules:
    """The rules for what counts as worse."""

    mde: float = 0.03
    """The smallest worsening that matters, as a share."""
    metrics: tuple[str, ...] = ()
    """`metric` or `metric.stat`; if empty, the experiment's primary metrics decide."""
    confidence: float = 0.95
    outliers: Literal["keep", "mad"] = "keep"


@dataclass(frozen=True)
class Gated:
    """One number at the gate."""

    row: PointRow
    ruling: Ruling


@dataclass(frozen=True)
class Gate:
    """The result of a gate: a single regression decides it, then a single "can't tell"."""

    table: ComparisonTable
    mde: float
    rows: list[Gated]
    missing: list[str]
    """Points that BASE has and NEW lacks, and numbers that are INVALID: neither can be judged."""
    selftest: str
    metrics: tuple[str, ...] = ()
    """The metrics that decided."""

    @property
    def judgement(self) -> str:
        judgements = {item.ruling.judgement for item in self.rows}
        if "regression" in judgements:
            return "regression"
        return "can't tell" if self.missing or "can't tell" in judgements else "good"

    @property
    def exit_code(self) -> Exit:
        return {"regression": Exit.REGRESSION, "can't tell": Exit.UNDECIDED}.get(self.judgement, Exit.GOOD)

    @property
    def needed(self) -> int | None:
        """Repetitions per side that would allow a judgement of every number."""
        counts = [item.ruling.needed for item in self.rows if item.ruling.judgement == "can't tell"]
        return max((count for count in counts if count), default=None)

    def as_dict(self) -> dict[str, Any]:
        shown = ("point", "metric", "stat", "n_a", "n_b", "sentence", "p_adjusted")
        rows = [{name: getattr(item.row, name) for name in shown} | asdict(item.ruling) for item in self.rows]
        return {
            "base": self.table.a, "new": self.table.b, "mde": self.mde, "judgement": self.judgement, "rows": rows,
            "metrics": list(self.metrics), "missing": self.missing, "repetitions_needed": self.needed,
            "selftest": self.selftest, "differences": [asdict(item) for item in self.table.differences],
            "notes": self.table.notes, "exit_code": int(self.exit_code),
        }  # fmt: skip


def gate(
    workspace: WorkspaceFolder, base: str, new: str, rules: GateRules | None = None, *, record: bool = True
) -> Gate:
    """Compare NEW with BASE by the metrics that decide; each side is a run's full id, or `RUN:key=value`."""
    rules = rules or GateRules()
    metrics = rules.metrics or tuple(_primary(workspace, new))
    options = CompareOptions(tuple(metrics), rules.confidence, outliers=rules.outliers)
    table = compare(workspace, base, new, options)
    rows = [_gated(row, row.direction, rules) for row in table.rows if row.direction]
    if not rows:
        raise BenchError(
            "nothing to judge: no number that both sides have says which way is better",
            hint="Give the experiment's metrics a direction, or look: bench compare",
        )
    scenario = scenario_of(workspace, new)
    note = _keep(workspace, table, rows, rules, scenario) if record else ""
    if note:
        table = replace(table, notes=[*table.notes, note])
    missing = [*table.only_a, *table.invalid_metrics]
    return Gate(table, rules.mde, rows, missing, selftest_record.sentence(workspace, scenario), metrics)


def _primary(workspace: WorkspaceFolder, selector: str) -> list[str]:
    with Warehouse.open(workspace) as warehouse:
        trials = queries.trials(warehouse, [selector.partition(":")[0]]).dicts()
    good = [row for row in trials if row["outcome"] == "succeeded" and not row["warmup"]]
    return declared_primary(TrialFolder(workspace.root / row["folder"]) for row in good)


def _gated(row: PointRow, direction: Direction, rules: GateRules) -> Gated:
    if row.trials_a == row.trials_b:  # a run compared with itself: no repetition could show a difference
        return Gated(row, Ruling("good", 0.0, 0.0, 0.0, None, None))
    certain = row.p_adjusted is not None and row.p_adjusted <= 1.0 - rules.confidence
    n = min(row.n_a, row.n_b)
    change = MeasuredChange(row.change, row.change_interval, row.difference_interval, direction, n, certain)
    ruling = rule(change, mde=rules.mde, confidence=rules.confidence)
    if row.verdict == HIDDEN and ruling.judgement == "regression":  # repetitions cannot resolve that
        ruling = replace(ruling, judgement="can't tell", needed=None)
    return Gated(row, ruling)


def _keep(
    workspace: WorkspaceFolder, table: ComparisonTable, rows: list[Gated], rules: GateRules, scenario: str
) -> str:
    """Record every ruling as a row of `regression_fact`. Return the reason if it can't be recorded, otherwise ""."""
    cited, time = selftest_record.last(workspace, scenario), now()
    lines = [
        RegressionRecord(
            time=time,
            base_run_id=table.a,
            run_id=table.b.partition(":")[0],
            selection=table.b,
            scenario=scenario,
            point=item.row.point,
            metric=item.row.metric,
            stat=item.row.stat,
            unit=item.row.unit,
            direction=item.row.direction,
            p_adjusted=item.row.p_adjusted,
            method=item.row.method,
            judgement=item.ruling.judgement,
            worse=item.ruling.worse,
            low=item.ruling.low,
            high=item.ruling.high,
            mde=rules.mde,
            confidence=rules.confidence,
            n_base=item.row.n_a,
            n=item.row.n_b,
            selftest_run_id=cited.run_id if cited else None,
        )
        for item in rows
    ]
    return journals.note(workspace.regression_journal, lines, f"bench gate {table.a}..{table.b}")
