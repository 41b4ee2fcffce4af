"""Points in rows: which of them differ in one number only, so that they make a curve."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from benchhouse.results.invalid_trials import missing_number_reason
from benchhouse.results.matching import as_text, leaves, point_of
from benchhouse.schema.errors import BenchError
from benchhouse.schema.experiment import Direction
from benchhouse.warehouse.grouping import grouped

if TYPE_CHECKING:
    from benchhouse.results.content import Point
    from benchhouse.results.matching import MatchPoint

Row = Mapping[str, Any]
Column = tuple[str, str]
RESOURCES = "resources."
"""How the name of an axis over what a trial is given begins."""
_NAME = "target.name"


@dataclass(frozen=True)
class MetricSample:
    """What the trials of a point measured of one metric."""

    unit: str
    direction: Direction | None
    values: Sequence[float]
    trials: Sequence[str]
    error_bound: float | None = None
    """How far a value can be off, the most of its trials; None where none says."""


@dataclass
class FlatPoint:
    """A point, flat: everything that it was given by dotted name, and everything that it measured."""

    label: str
    run_id: str
    target_name: str
    digest: str
    """Of its instance."""
    given: dict[str, Any]
    """Experiment, target (`target.index`) and parameters (`concurrency`)."""
    samples: dict[Column, MetricSample] = field(default_factory=dict)
    at: int = 0
    """Its place among the points that it was taken from."""
    executor: str = ""
    refused: frozenset[Column] = frozenset()
    """Figures that are INVALID in every trial."""
    gone: str = ""
    """Why it has no number at all."""

    @property
    def case(self) -> dict[str, Any]:
        """What the target was put to: all but the target."""
        return {key: value for key, value in self.given.items() if not key.startswith("target.")}

    def together(self, x: Column, y: Column) -> tuple[list[float], list[float]]:
        """Both metrics of the trials that have both, trial by trial."""
        of_x, of_y = (dict(zip(s.trials, s.values, strict=True)) for s in (self.samples[x], self.samples[y]))
        both = [trial for trial in of_x if trial in of_y]
        return [of_x[trial] for trial in both], [of_y[trial] for trial in both]


@dataclass
class PointSeries:
    """Points in the order of the number along which they differ; without `along`, one point on its own."""

    name: str
    along: str
    members: list[FlatPoint]

    @property
    def case(self) -> str:
        """Equal for series that were put to the same test."""
        case = self.members[0].case
        return as_text({key: value for key, value in case.items() if key != self.along})

    def place(self, member: FlatPoint) -> float:
        return float(member.given[self.along]) if self.along else 0.0


def members_of_rows(rows: Iterable[Row], refused: Iterable[Row] = ()) -> list[FlatPoint]:
    """From rows of the points query, and of the figures that are INVALID throughout."""
    members = []
    gone = grouped(refused, itemgetter("run_id", "instance_digest"))
    for at, own in enumerate(grouped(rows, itemgetter("run_id", "instance_digest")).values()):
        point, run_id, executor = point_of(own[0]), own[0]["run_id"], own[0].get("executor") or ""
        given = _given(point.experiment, point)
        samples = {
            (row["metric"], row["stat"]): MetricSample(
                row["unit"], row["direction"], row["values"], row["trials"], row.get("error_bound")
            )
            for row in own
        }
        invalid = frozenset((row["metric"], row["stat"]) for row in gone.get((run_id, own[0]["instance_digest"]), []))
        own_facts = (point.label, run_id, point.target_name, point.digest)
        members.append(FlatPoint(*own_facts, given, samples, at, executor, invalid))
    return members


def members_of_points(points: "Sequence[Point]", experiments: Mapping[str, str]) -> list[FlatPoint]:
    """From points of a report; `experiments` by run."""
    members = []
    for at, point in enumerate(points):
        given = _given(experiments.get(point.run_id, ""), point)
        samples = {
            (number.metric, number.stat): MetricSample(
                number.cell.unit, number.direction, number.values, number.cell.trials, number.error_bound
            )
            for number in point.numbers
        }
        own_facts = (point.label, point.run_id, point.target_name, point.instance_digest)
        invalid = frozenset((figure.metric, figure.stat) for figure in point.refused)
        members.append(FlatPoint(*own_facts, given, samples, at, refused=invalid))
    return members


def without_number(trials: Iterable[Row], members: Iterable[FlatPoint]) -> list[FlatPoint]:
    """Points that were tried, by the rows of their trials, and are not among the members: no trial gave a number."""
    known = {(member.run_id, member.digest) for member in members}
    tried = grouped((row for row in trials if not row["warmup"]), itemgetter("run_id", "instance_digest"))
    points = {key: point_of(own[0]) for key, own in tried.items() if key not in known}
    return [
        FlatPoint(
            point.label,
            run_id,
            point.target_name,
            digest,
            _given(point.experiment, point),
            gone=missing_number_reason(row["outcome"] for row in tried[run_id, digest]),
        )
        for (run_id, digest), point in points.items()
    ]


def _given(experiment: str, point: "MatchPoint | Point") -> dict[str, Any]:
    of_target = {f"target.{key}": value for key, value in leaves(point.target).items()}
    varied = {key: value for key, value in point.axes.items() if key.startswith(RESOURCES)}
    return {"experiment": experiment, **leaves(point.parameters), **varied, **of_target}


def followers(members: Sequence[FlatPoint], along: str) -> set[str]:
    """What else differs where `along` does, and is the same where that is: in weak scaling, the size of the work."""
    pairs: dict[str, set[tuple[str, str]]] = {}
    for member in members:
        for key, value in member.given.items():
            pairs.setdefault(key, set()).add((as_text(member.given.get(along)), as_text(value)))
    places = {as_text(member.given.get(along)) for member in members}
    return {
        key for key, both in pairs.items()
        if key not in (along, _NAME) and len(both) == len(places) and len({value for _, value in both}) > 1
    }  # fmt: skip


def sweeps(members: Sequence[FlatPoint], along: str = "", beside: Collection[str] = ()) -> list[PointSeries]:
    """All points in series, each along one number; what no other point differs from in that alone stands alone.

    Without `along`, it is a number of the target (its search parameter) if one varies, else one of the workload.
    Where several vary, it is the one with most values. Points of a series may differ in what is `beside`, too.
    """
    if along:
        along = full_name(members, along)
        chosen = [(along, group) for group in _grouped(members, along, beside)]
    else:
        families = _families(members)
        own = any(key.startswith("target.") for family in families for key in _varying(family))
        chosen = [split for family in families for split in _best_split(family, own)]
    series = [
        PointSeries(
            "", key if len(group) > 1 else "", sorted(group, key=lambda member: _number(member.given.get(key)) or 0.0)
        )
        for key, group in chosen
    ]
    series.sort(key=lambda each: min(member.at for member in each.members))
    for each, name in zip(series, _names(series), strict=True):
        each.name = name
    return series


def case_names(members: Sequence[FlatPoint]) -> list[tuple[str, list[FlatPoint]]]:
    """Points put to the same test, together, under what tells their test from the others."""
    cases = grouped(members, lambda member: as_text(member.case)).values()
    given = [group[0].case for group in cases]
    telling = _telling(given)
    return [(_settings(own, telling), group) for own, group in zip(given, cases, strict=True)]


def _telling(given: Sequence[Mapping[str, Any]]) -> list[str]:
    """The names of what is not the same in all of these."""
    keys = dict.fromkeys(key for own in given for key in own)
    return [key for key in keys if len({as_text(own.get(key)) for own in given}) > 1]


def full_name(members: Sequence[FlatPoint], key: str) -> str:
    """`ef_search` for `target.ef_search`; a key that no point has, or that is no number, is refused."""
    known = {name for member in members for name in member.given}
    fitting = [name for name in sorted(known) if name in (key, f"target.{key}") or name.rpartition(".")[2] == key]
    numbers = [name for name in fitting if any(_number(member.given.get(name)) is not None for member in members)]
    if numbers:
        return numbers[0]
    varying = ", ".join(_varying(members)) or "none"
    what = "is no number" if fitting else "is not there"
    raise BenchError(f"no curve along {key}: it {what}; numbers that vary: {varying}")


def _families(members: Sequence[FlatPoint]) -> list[list[FlatPoint]]:
    """Points of one run whose words are the same: only numbers tell them apart, and targets' names."""

    def fixed(member: FlatPoint) -> str:
        kept = {key: value for key, value in member.given.items() if _number(value) is None and key != _NAME}
        return as_text({**kept, "run": member.run_id})

    return list(grouped(members, fixed).values())


def _best_split(family: list[FlatPoint], of_target: bool) -> list[tuple[str, list[FlatPoint]]]:
    """The family along the number of its target, or of its workload, that makes the longest series of it."""
    keys = [key for key in _varying(family) if key.startswith("target.") == of_target]

    def length(key: str) -> tuple[int, int]:
        groups = _grouped(family, key)
        return max(len(group) for group in groups), -len(groups)

    if not keys:
        return [("", [member]) for member in family]
    best = max(keys, key=length)
    return [(best, group) for group in _grouped(family, best)]


def _grouped(members: Sequence[FlatPoint], along: str, beside: Collection[str] = ()) -> list[list[FlatPoint]]:
    """Points that differ in `along` alone. Names of targets tell them apart too, unless each point has its own."""

    def key(member: FlatPoint) -> str:
        given = {name: value for name, value in member.given.items() if name not in (along, _NAME, *beside)}
        return as_text({**given, "run": member.run_id, "numeric": _number(member.given.get(along)) is not None})

    split = []
    for group in grouped(members, key).values():
        by_name = grouped(group, lambda member: member.target_name)
        places = {as_text(member.given.get(along)) for member in group}
        apart = len(places) < len(group) or any(len(same) > 1 for same in by_name.values())
        # What has no such number stands alone.
        if any(_number(member.given.get(along)) is None for member in group):
            split += [[member] for member in group]
        else:
            split += list(by_name.values()) if apart else [group]
    return split


def _varying(members: Sequence[FlatPoint]) -> list[str]:
    """Numbers that are not the same everywhere."""
    return [key for key, values in numbers_given(members).items() if len(values) > 1]


def numbers_given(members: Sequence[FlatPoint]) -> dict[str, set[float]]:
    """The values of each number, in the order in which the points have them."""
    numbers: dict[str, set[float]] = {}
    for member in members:
        for key, value in member.given.items():
            if (number := _number(value)) is not None:
                numbers.setdefault(key, set()).add(number)
    return numbers


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _names(series: Sequence[PointSeries]) -> list[str]:
    """What tells a series from the others: its target's name, or what it is made of where the name tells its points."""
    several_runs = len({each.members[0].run_id for each in series}) > 1
    given = [_fixed(each) for each in series]
    telling = _telling(given)
    names = [
        _name(each, own, telling) + (f" ({each.members[0].run_id})" if several_runs else "")
        for each, own in zip(series, given, strict=True)
    ]
    return [
        f"{name} {_settings(own, telling)}".rstrip() if names.count(name) > 1 else name
        for name, own in zip(names, given, strict=True)
    ]


def _name(series: PointSeries, fixed: Mapping[str, Any], telling: Sequence[str]) -> str:
    targets = {member.target_name for member in series.members}
    parts = [next(iter(targets))] if len(targets) == 1 else []
    if not parts:  # numbers of a target are named only where they must: those of another kind are its defaults
        of_target = (fixed.get(key) for key in telling if key.startswith("target."))
        parts = [value for value in of_target if isinstance(value, str) and value]
    of_case = [key for key in telling if not key.startswith("target.") and key in fixed and fixed[key] not in parts]
    parts.append(_settings(fixed, of_case))
    alone = fixed.get("experiment") if series.along else ""  # the label of a point has the number that varies
    return " ".join(filter(None, parts)) or _settings(fixed, telling) or alone or series.members[0].label


def _fixed(series: PointSeries) -> dict[str, Any]:
    """What all its points were given alike."""
    first, *rest = (member.given for member in series.members)
    return {
        key: value
        for key, value in first.items()
        if key not in (_NAME, series.along) and all(as_text(other.get(key)) == as_text(value) for other in rest)
    }


def _settings(given: Mapping[str, Any], keys: Iterable[str]) -> str:
    """`index=hnsw ef=16`, of those keys that are given."""
    return " ".join(f"{key.removeprefix('target.')}={as_text(given[key])}" for key in keys if key in given)
