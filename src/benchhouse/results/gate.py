"""The gate of a pipeline: is NEW worse than BASE by more than is tolerated?"""

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from benchhouse.analysis.gating import Ruling, rule
from benchhouse.evidence import journals
from benchhouse.evidence.writing import now
from benchhouse.results import selftest_record
from benchhouse.results.comparisons import CompareOptions, compare, scenario_of
from benchhouse.schema.errors import BenchError, Exit
from benchhouse.schema.layout import Workspace
from benchhouse.schema.quality import RegressionRecord

if TYPE_CHECKING:
    from benchhouse.results.comparison import ComparisonTable, PointRow


@dataclass(frozen=True)
class Gated:
    """One number at the gate."""

    row: "PointRow"
    ruling: Ruling


@dataclass(frozen=True)
class Gate:
    """What the gate says: regression before can't tell before good."""

    table: "ComparisonTable"
    mde: float
    rows: list[Gated]
    missing: list[str]
    """Points that BASE has and NEW lacks: nothing can be said of them."""
    selftest: str

    @property
    def judgement(self) -> str:
        said = {item.ruling.judgement for item in self.rows}
        if "regression" in said:
            return "regression"
        return "can't tell" if self.missing or "can't tell" in said else "good"

    @property
    def exit_code(self) -> Exit:
        return {"regression": Exit.REGRESSION, "can't tell": Exit.UNDECIDED}.get(self.judgement, Exit.GOOD)

    @property
    def needed(self) -> int | None:
        """Repetitions a side that would let every number be judged."""
        asked = [item.ruling.needed for item in self.rows if item.ruling.judgement == "can't tell"]
        return max((count for count in asked if count), default=None)

    def as_dict(self) -> dict[str, Any]:
        rows = [
            {"point": item.row.point, "metric": item.row.metric, "stat": item.row.stat, "n_a": item.row.n_a,
             "n_b": item.row.n_b, "sentence": item.row.sentence, "p_adjusted": item.row.p_adjusted,
             **asdict(item.ruling)}
            for item in self.rows
        ]  # fmt: skip
        return {
            "base": self.table.a, "new": self.table.b, "mde": self.mde, "judgement": self.judgement, "rows": rows,
            "missing": self.missing, "repetitions_needed": self.needed, "selftest": self.selftest,
            "differences": [asdict(item) for item in self.table.differences], "notes": self.table.notes,
            "exit_code": int(self.exit_code),
        }  # fmt: skip


def gate(
    workspace: Workspace, base: str, new: str, mde: float, metrics: list[str], confidence: float, outliers: str = "keep"
) -> Gate:
    """NEW against BASE, every headline number that has a direction; each is a run or `RUN:key=value`."""
    table = compare(workspace, base, new, CompareOptions(tuple(metrics), confidence, outliers="mad" if outliers == "mad" else "keep"))
    rows = []
    for row in table.rows:
        if row.direction not in ("higher", "lower"):
            continue
        certain = row.p_adjusted is not None and row.p_adjusted <= 1.0 - confidence
        ruled = rule(
            row.change, row.change_interval, "higher" if row.direction == "higher" else "lower",
            mde=mde, n=min(row.n_a, row.n_b), certain=certain, difference=row.difference_interval,
            confidence=confidence,
        )  # fmt: skip
        rows.append(Gated(row, ruled))
    if not rows:
        raise BenchError(
            "nothing to judge: no number that both sides have says which way is better",
            hint="Give the experiment's metrics a direction, or look: bench compare",
        )
    scenario = scenario_of(workspace, new)
    note = _keep(workspace, table, rows, mde, confidence, scenario)
    if note:
        table = replace(table, notes=[*table.notes, note])
    return Gate(table, mde, rows, table.only_a, selftest_record.sentence(workspace, scenario))


def _keep(
    workspace: Workspace, table: "ComparisonTable", rows: list[Gated], mde: float, confidence: float, scenario: str
) -> str:
    """Every ruling is a row of `regression_fact`; says why where it can't be."""
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
            direction="higher" if item.row.direction == "higher" else "lower",
            judgement=item.ruling.judgement,
            worse=item.ruling.worse,
            low=item.ruling.low,
            high=item.ruling.high,
            mde=mde,
            confidence=confidence,
            p_adjusted=item.row.p_adjusted,
            n_base=item.row.n_a,
            n=item.row.n_b,
            method=item.row.method,
            selftest_run_id=cited.run_id if cited else None,
        )
        for item in rows
    ]
    return journals.note(journals.regressions(workspace), lines, f"bench gate {table.a}..{table.b}")
