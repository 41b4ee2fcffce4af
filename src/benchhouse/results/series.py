"""Series of points that differ in only one number, so that they form a curve."""

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
"""Prefix of axis names for the resources of a trial."""
_NAME = "target.name"


@dataclass(frozen=True)
class MetricSample:
    """The values of one metric that the trials of a point measured."""

    unit: str
    direction: Direction | None
    values: Sequence[float]
    trials: Sequence[str]
    error_bound: float | None = None
    """How far a value can be off: the largest of its trials. None if no trial reports it."""


@dataclass
class FlatPoint:
    """A point, flat: all its settings by dotted name, and all its measurements."""

    label: str
    run_id: str
    target_name: str
    digest: str
    """Digest of its instance."""
    given: dict[str, Any]
    """Experiment, target (`target.index`), and parameters (`concurrency`)."""
    samples: dict[Column, MetricSample] = field(default_factory=dict)
    at: int = 0
    """Its place among the points that it was taken from."""
    executor: str = ""
    refused: frozenset[Column] = frozenset()
    """Numbers that are INVALID in every trial."""
    gone: str = ""
    """Why it has no number at all; empty if it has one."""

    @property
    def case(self) -> dict[str, Any]:
        """The test that the target ran: all settings except those of the target."""
        return {key: value for key, value in self.given.items() if not key.startswith("target.")}

    def together(self, x: Column, y: Column) -> tuple[list[float], list[float]]:
        """Return the values of both metrics for the trials that have both, in the same order."""
        of_x, of_y = (dict(zip(s.trials, s.values, strict=True)) for s in (self.samples[x], self.samples[y]))
        both = [trial for trial in of_x if trial in of_y]
        return [of_x[trial] for trial in both], [of_y[trial] for trial in both]


@dataclass
class PointSeries:
    """Points in the order of the number in which they differ; without `along`, a single point."""

    name: str
    along: str
    members: list[FlatPoint]

    @property
    def case(self) -> str:
        """Equal for series that ran the same test."""
        case = self.members[0].case
        return as_text({key: value for key, value in case.items() if key != self.along})

    def place(self, member: FlatPoint) -> float:
        return float(member.given[self.along]) if self.along else 0.0


def members_of_rows(rows: Iterable[Row], refused: Iterable[Row] = ()) -> list[FlatPoint]:
    """Return points from rows of the points query, and of numbers that are INVALID in every trial."""
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
    """Return points from points of a report; `experiments` are by run."""
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
    """Return points that were tried, by the rows of their trials, but are not among the members: no trial gave a
    number.
    """
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
    """Return what else varies with `along`, with one value for each of its values: in weak scaling, the size of the
    work.
    """
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
    """Return all points in series, each along one number; a point that no other differs from in that number alone is a
    series.

    Without `along`, it is a number of the target (its search parameter) if one varies, otherwise one of the workload.
    If several vary, it is the one with most values. Points of a series may also differ in the settings in `beside`.
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
    """Return points grouped by test, with a name that distinguishes their test from the others."""
    cases = grouped(members, lambda member: as_text(member.case)).values()
    given = [group[0].case for group in cases]
    telling = _telling(given)
    return [(_settings(own, telling), group) for own, group in zip(given, cases, strict=True)]


def _telling(given: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the names of settings that differ between these."""
    keys = dict.fromkeys(key for own in given for key in own)
    return [key for key in keys if len({as_text(own.get(key)) for own in given}) > 1]


def full_name(members: Sequence[FlatPoint], key: str) -> str:
    """Return the full name, `target.ef_search` for `ef_search`. Raise BenchError if no point has the key, or it is not
    a number.
    """
    known = {name for member in members for name in member.given}
    fitting = [name for name in sorted(known) if name in (key, f"target.{key}") or name.rpartition(".")[2] == key]
    numbers = [name for name in fitting if any(_number(member.given.get(name)) is not None for member in members)]
    if numbers:
        return numbers[0]
    varying = ", ".join(_varying(members)) or "none"
    what = "is no number" if fitting else "is not there"
    raise BenchError(f"no curve along {key}: it {what}; numbers that vary: {varying}")


def _families(members: Sequence[FlatPoint]) -> list[list[FlatPoint]]:
    """Return groups of points of one run that differ only in numbers and in targets' names."""

    def fixed(member: FlatPoint) -> str:
        kept = {key: value for key, value in member.given.items() if _number(value) is None and key != _NAME}
        return as_text({**kept, "run": member.run_id})

    return list(grouped(members, fixed).values())


def _best_split(family: list[FlatPoint], of_target: bool) -> list[tuple[str, list[FlatPoint]]]:
    """Split the family along the number, of its target or of its workload, that gives the longest series."""
    keys = [key for key in _varying(family) if key.startswith("target.") == of_target]

    def length(key: str) -> tuple[int, int]:
        groups = _grouped(family, key)
        return max(len(group) for group in groups), -len(groups)

    if not keys:
        return [("", [member]) for member in family]
    best = max(keys, key=length)
    return [(best, group) for group in _grouped(family, best)]


def _grouped(members: Sequence[FlatPoint], along: str, beside: Collection[str] = ()) -> list[list[FlatPoint]]:
    """Return groups of points that differ only in `along`. Target names also distinguish them, unless each point has
    its own.
    """

    def key(member: FlatPoint) -> str:
        given = {name: value for name, value in member.given.items() if name not in (along, _NAME, *beside)}
        return as_text({**given, "run": member.run_id, "numeric": _number(member.given.get(along)) is not None})

    split = []
    for group in grouped(members, key).values():
        by_name = grouped(group, lambda member: member.target_name)
        places = {as_text(member.given.get(along)) for member in group}
        apart = len(places) < len(group) or any(len(same) > 1 for same in by_name.values())
        # A point without such a number is a group of its own.
        if any(_number(member.given.get(along)) is None for member in group):
            split += [[member] for member in group]
        else:
            split += list(by_name.values()) if apart else [group]
    return split


def _varying(members: Sequence[FlatPoint]) -> list[str]:
    """Return the numbers that vary."""
    return [key for key, values in numbers_given(members).items() if len(values) > 1]


def numbers_given(members: Sequence[FlatPoint]) -> dict[str, set[float]]:
    """Return the values of each number, in the order of the points."""
    numbers: dict[str, set[float]] = {}
    for member in members:
        for key, value in member.given.items():
            if (number := _number(value)) is not None:
                numbers.setdefault(key, set()).add(number)
    return numbers


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _names(series: Sequence[PointSeries]) -> list[str]:
    """Return names that distinguish the series: the target's name, or the settings if targets differ within a
    series.
    """
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
    # numbers of a target are named only if necessary: those of targets of another kind are defaults
    if not parts:
        of_target = (fixed.get(key) for key in telling if key.startswith("target."))
        parts = [value for value in of_target if isinstance(value, str) and value]
    of_case = [key for key in telling if not key.startswith("target.") and key in fixed and fixed[key] not in parts]
    parts.append(_settings(fixed, of_case))
    alone = fixed.get("experiment") if series.along else ""  # the label of a point contains the varying number
    return " ".join(filter(None, parts)) or _settings(fixed, telling) or alone or series.members[0].label


def _fixed(series: PointSeries) -> dict[str, Any]:
    """Return the settings that all its points share."""
    first, *rest = (member.given for member in series.members)
    return {
        key: value
        for key, value in first.items()
        if key not in (_NAME, series.along) and all(as_text(other.get(key)) == as_text(value) for other in rest)
    }


def _settings(given: Mapping[str, Any], keys: Iterable[str]) -> str:
    """Return text such as `index=hnsw ef=16`, for those keys that have a value."""
    return " ".join(f"{key.removeprefix('target.')}={as_text(given[key])}" for key in keys if key in given)
