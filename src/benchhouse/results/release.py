"""Two releases side by side: numbers claimed for both, and which got better, got worse, or stayed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import Field

from benchhouse.analysis.compare import Pair, StatisticComparison, compare_many, hide_within
from benchhouse.analysis.ranking import holm
from benchhouse.results import noise_persistence
from benchhouse.results.numbers import SEED, name_of, quantity
from benchhouse.schema.model import Model, empty_list

Row = Mapping[str, Any]
Group = Literal["worse", "better", "different", "stayed"]
GROUPS: tuple[Group, ...] = ("worse", "better", "different", "stayed")
_WORDS: dict[str, str] = {"stayed": "without a sure difference"}
_UNSURE = "not sure after correction for all numbers of the view"


@dataclass(frozen=True)
class Claimed:
    """A claimed number of one release: its row of the points query, and the setup it was measured with."""

    claim_id: str
    label: str
    version: str
    model: str
    hardware: str
    test: tuple[str, ...]
    """Experiment, its version, digest of the workload, name of the target: both sides must share them."""
    row: Row

    @property
    def key(self) -> tuple[str, ...]:
        return (*self.test, self.model, self.hardware, *(str(self.row[name]) for name in ("metric", "stat", "unit")))


class ReleaseSide(Model):
    """A number of one release."""

    claim: str = Field(description="Its claim.")
    label: str = Field(description="PUBLICATION-GRADE or REALISM-GRADE.")
    version: str = Field(description="What was measured, in its own words of version.")
    run_id: str
    value: float
    n: int


class ReleaseRow(Model):
    """One number of both releases."""

    group: Group
    model: str = Field(description="Model that was asked, else the name of the target.")
    hardware: str
    test: str = Field(description="Scenario and point of the newer release.")
    metric: str
    stat: str
    unit: str
    direction: Literal["higher", "lower"] | None
    older: ReleaseSide
    newer: ReleaseSide
    change: float | None = Field(description="As a fraction of the older value; null where it has none.")
    change_interval: tuple[float, float] | None
    difference: float = Field(description="In the unit.")
    difference_interval: tuple[float, float] | None
    p_adjusted: float | None = Field(description="After Holm's correction for all numbers of the view.")
    verdict: str
    sentence: str


class Unpaired(Model):
    """A number for which only one release has a claim."""

    claim: str
    statement: str


class LeftOut(Model):
    """A claim that is not in the view."""

    claim: str
    reason: str


class ReleaseView(Model):
    """The answer of `bench views release`. Every number in it is a verified claim."""

    schema_version: Literal[1] = 1
    older: str
    newer: str
    by: tuple[str, str] = Field(description="By what the claims of each release are known: server version, run, ...")
    confidence: float
    rows: list[ReleaseRow]
    only_older: list[Unpaired] = Field(default_factory=empty_list)
    only_newer: list[Unpaired] = Field(default_factory=empty_list)
    left_out: list[LeftOut] = Field(default_factory=empty_list)
    notes: list[str] = Field(default_factory=empty_list)

    def group(self, name: Group) -> list[ReleaseRow]:
        return [row for row in self.rows if row.group == name]

    @property
    def headline(self) -> str:
        if not self.rows:
            return f"{self.older} and {self.newer} have no claimed number in common"
        counts = {name: len(self.group(name)) for name in GROUPS}
        words = [f"{count} {_WORDS.get(name, name)}" for name, count in counts.items() if count]
        listed = ", ".join(words)
        numbers = "1 claimed number" if len(self.rows) == 1 else f"{len(self.rows)} claimed numbers"
        return f"{self.newer} against {self.older}, {numbers}: {listed}"


def compare_releases(
    pairs: Sequence[tuple[Claimed, Claimed]],
    confidence: float,
    trials: Mapping[str, Row],
    earlier: noise_persistence.Earlier = lambda columns: (),
) -> tuple[list[ReleaseRow], list[str]]:
    """Return a row for each pair, worse ones first, and notes. Verdicts are corrected for the number of rows.

    Releases are measured one after the other, so intervals are widened if earlier runs show that noise persists.
    """
    numbers = [(older.row, newer.row) for older, newer in pairs]
    memories = noise_persistence.memories(numbers, trials, earlier)
    samples = [
        Pair(x["values"], y["values"], y["direction"], memory or 0.0)
        for (x, y), memory in zip(numbers, memories, strict=True)
    ]
    compared = [
        hide_within(result, x.get("error_bound"), y.get("error_bound"))
        for (x, y), result in zip(numbers, compare_many(samples, confidence=confidence, seed=SEED), strict=True)
    ]
    adjusted = holm({str(at): item.p_value for at, item in enumerate(compared) if item.p_value is not None})
    rows = [
        _row(older, newer, result, adjusted.get(str(at)))
        for at, ((older, newer), result) in enumerate(zip(pairs, compared, strict=True))
    ]
    rows.sort(key=lambda row: (GROUPS.index(row.group), row.model, row.hardware, row.test, row.metric, row.stat))
    names = [name_of(x["metric"], x["stat"]) for x, _ in numbers]
    return rows, noise_persistence.notes(list(zip(names, memories, strict=True)))


def _row(older: Claimed, newer: Claimed, result: StatisticComparison, adjusted: float | None) -> ReleaseRow:
    sure = adjusted is None or adjusted <= 1.0 - result.confidence
    group: Group = "stayed"
    if sure and result.verdict in ("worse", "better", "different"):
        group = result.verdict
    decided = result.verdict in ("worse", "better", "different")
    verdict = result.verdict if sure or not decided else f"{result.verdict}, but {_UNSURE}"
    row = newer.row
    return ReleaseRow(
        group=group,
        model=newer.model,
        hardware=newer.hardware,
        test=f"{row['scenario']} {row['point'] or ''}".strip(),
        metric=row["metric"],
        stat=row["stat"],
        unit=row["unit"],
        direction=row["direction"],
        older=_side(older),
        newer=_side(newer),
        change=result.change,
        change_interval=result.change_interval and tuple(result.change_interval),
        difference=result.difference,
        difference_interval=result.difference_interval and tuple(result.difference_interval),
        p_adjusted=adjusted,
        verdict=verdict,
        sentence=result.sentence(older.version, newer.version),
    )


def _side(claimed: Claimed) -> ReleaseSide:
    row = claimed.row
    return ReleaseSide(
        claim=claimed.claim_id,
        label=claimed.label,
        version=claimed.version,
        run_id=row["run_id"],
        value=row["mean"],
        n=row["n"],
    )


def table_cells(row: ReleaseRow) -> tuple[str, ...]:
    """Return the row as cells of a table, in the order of TABLE_HEADS."""
    ends, change = row.change_interval, "-"
    if row.change is not None and ends is not None:
        change = f"{row.change:+.1%} ({ends[0] * 100:+.1f} to {ends[1] * 100:+.1f})"
    elif row.difference_interval is not None:
        low, high = row.difference_interval
        change = f"{row.difference:+.4g} ({low:+.4g} to {high:+.4g})"
    values = [f"{quantity(side.value, row.unit)} (n={side.n})" for side in (row.older, row.newer)]
    marks = ["~" if side.label == "REALISM-GRADE" else "" for side in (row.older, row.newer)]
    claims = " ".join(f"{mark}{side.claim[:8]}" for mark, side in zip(marks, (row.older, row.newer), strict=True))
    versions = " -> ".join(dict.fromkeys((row.older.version, row.newer.version)))
    name = name_of(row.metric, row.stat)
    return row.model, row.hardware, versions, row.test, name, *values, change, row.verdict, claims


TABLE_HEADS = ("model", "hardware", "version", "test", "number", "older", "newer", "change", "verdict", "claims")
