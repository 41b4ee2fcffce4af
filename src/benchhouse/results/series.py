"""Points in rows: which of them differ in one number only, so that they make a curve."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from benchhouse.results.matching import as_text, leaves, point_of
from benchhouse.schema.errors import BenchError
from benchhouse.schema.experiment import Direction

if TYPE_CHECKING:
    from benchhouse.results.content import Point

Row = Mapping[str, Any]
Column = tuple[str, str]
_NAME = "target.name"


@dataclass(frozen=True)
class Sample:
    """What the trials of a point measured of one metric."""

    unit: str
    direction: Direction | None
    values: Sequence[float]
    trials: Sequence[str]


@dataclass
class Member:
    """A point, flat: everything that it was given by dotted name, and everything that it measured."""

    label: str
    run_id: str
    target_name: str
    digest: str
    """Of its instance."""
    given: dict[str, Any]
    """Experiment, target (`target.index`) and parameters (`concurrency`)."""
    samples: dict[Column, Sample] = field(default_factory=dict)
    at: int = 0
    """Its place among the points that it was taken from."""
    executor: str = ""

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
class Series:
    """Points in the order of the number along which they differ; without `along`, one point on its own."""

    name: str
    along: str
    members: list[Member]

    @property
    def case(self) -> str:
        """Equal for series that were put to the same test."""
        case = self.members[0].case
        return as_text({key: value for key, value in case.items() if key != self.along})

    def place(self, member: Member) -> float:
        return float(member.given[self.along]) if self.along else 0.0


def members_of_rows(rows: Iterable[Row]) -> list[Member]:
    """From rows of the points query."""
    found: dict[tuple[str, str], Member] = {}
    for row in rows:
        key = row["run_id"], row["instance_digest"]
        if key not in found:
            point = point_of(row)
            given = _given(point.experiment, point.target, point.parameters)
            found[key] = Member(point.label, row["run_id"], point.target_name, point.digest, given, at=len(found))
            found[key].executor = row.get("executor") or ""
        sample = Sample(row["unit"], row["direction"], row["values"], row["trials"])
        found[key].samples[row["metric"], row["stat"]] = sample
    return list(found.values())


def members_of_points(points: "Sequence[Point]", experiments: Mapping[str, str]) -> list[Member]:
    """From points of a report; `experiments` by run."""
    found = []
    for at, point in enumerate(points):
        given = _given(experiments.get(point.run_id, ""), point.target, point.parameters)
        member = Member(point.label, point.run_id, point.target_name, point.instance_digest, given, at=at)
        for number in point.numbers:
            cell = number.cell
            member.samples[number.metric, number.stat] = Sample(cell.unit, number.direction, number.values, cell.trials)
        found.append(member)
    return found


def _given(experiment: str, target: Mapping[str, Any], parameters: Mapping[str, Any]) -> dict[str, Any]:
    of_target = {f"target.{key}": value for key, value in leaves(target).items()}
    return {"experiment": experiment, **leaves(parameters), **of_target}


def sweeps(members: Sequence[Member], along: str = "", *, of_target: bool = True) -> list[Series]:
    """All points in series, each along one number; what no other point differs from in that alone stands alone.

    Without `along`, it is a number of the target (its search parameter) if one varies, else one of the workload;
    `of_target=False` leaves targets whole. Where several vary, it is the one with most values.
    """
    if along:
        along = _full_name(members, along)
        chosen = [(along, group) for group in _grouped(members, along)]
    else:
        families = _families(members, of_target)
        own = of_target and any(key.startswith("target.") for family in families for key in _varying(family))
        chosen = [found for family in families for found in _best_split(family, own)]
    found = [
        Series("", key if len(group) > 1 else "", sorted(group, key=lambda one: _number(one.given.get(key)) or 0.0))
        for key, group in chosen
    ]
    found.sort(key=lambda series: min(member.at for member in series.members))
    for series, name in zip(found, _names(found), strict=True):
        series.name = name
    return found


def case_names(members: Sequence[Member]) -> list[tuple[str, list[Member]]]:
    """Points put to the same test, together, under what tells their test from the others."""
    cases: dict[str, list[Member]] = {}
    for member in members:
        cases.setdefault(as_text(member.case), []).append(member)
    given = [group[0].case for group in cases.values()]
    keys = dict.fromkeys(key for one in given for key in one)
    telling = [key for key in keys if len({as_text(one.get(key)) for one in given}) > 1]
    return [
        (" ".join(_told(key, one[key]) for key in telling if key in one), group)
        for one, group in zip(given, cases.values(), strict=True)
    ]


def _full_name(members: Sequence[Member], key: str) -> str:
    """`ef_search` for `target.ef_search`; a key that no point has, or that is no number, is refused."""
    known = {name for member in members for name in member.given}
    fitting = [name for name in sorted(known) if name in (key, f"target.{key}") or name.rpartition(".")[2] == key]
    numbers = [name for name in fitting if any(_number(member.given.get(name)) is not None for member in members)]
    if numbers:
        return numbers[0]
    varying = ", ".join(_varying(members)) or "none"
    what = "is no number" if fitting else "is not there"
    raise BenchError(f"no curve along {key}: it {what}; numbers that vary: {varying}")


def _families(members: Sequence[Member], of_target: bool) -> list[list[Member]]:
    """Points of one run whose words are the same: only numbers tell them apart, and targets' names."""

    def words(member: Member) -> str:
        kept = {
            key: value
            for key, value in member.given.items()
            if _number(value) is None and (key != _NAME or not of_target)
        }
        return as_text({**kept, "run": member.run_id})

    families: dict[str, list[Member]] = {}
    for member in members:
        families.setdefault(words(member), []).append(member)
    return list(families.values())


def _best_split(family: list[Member], of_target: bool) -> list[tuple[str, list[Member]]]:
    """The family along the number of its target, or of its workload, that makes the longest series of it."""
    keys = [key for key in _varying(family) if key.startswith("target.") == of_target]

    def length(key: str) -> tuple[int, int]:
        groups = _grouped(family, key)
        return max(len(group) for group in groups), -len(groups)

    if not keys:
        return [("", [member]) for member in family]
    best = max(keys, key=length)
    return [(best, group) for group in _grouped(family, best)]


def _grouped(members: Sequence[Member], along: str) -> list[list[Member]]:
    """Points that differ in `along` alone. Names of targets tell them apart too, unless each point has its own."""

    def key(member: Member) -> str:
        given = {name: value for name, value in member.given.items() if name not in (along, _NAME)}
        return as_text({**given, "run": member.run_id, "numeric": _number(member.given.get(along)) is not None})

    groups: dict[str, list[Member]] = {}
    for member in members:
        groups.setdefault(key(member), []).append(member)
    found = []
    for group in groups.values():
        by_name: dict[str, list[Member]] = {}
        for member in group:
            by_name.setdefault(member.target_name, []).append(member)
        places = {as_text(member.given.get(along)) for member in group}
        apart = len(places) < len(group) or any(len(same) > 1 for same in by_name.values())
        # What has no such number stands alone.
        if any(_number(member.given.get(along)) is None for member in group):
            found += [[member] for member in group]
        else:
            found += list(by_name.values()) if apart else [group]
    return found


def _varying(members: Sequence[Member]) -> list[str]:
    """Numbers that are not the same everywhere, in the order in which the points have them."""
    found: dict[str, set[float]] = {}
    for member in members:
        for key, value in member.given.items():
            if (number := _number(value)) is not None:
                found.setdefault(key, set()).add(number)
    return [key for key, values in found.items() if len(values) > 1]


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _names(found: Sequence[Series]) -> list[str]:
    """What tells a series from the others: its target's name, or what it is made of where the name tells its points."""
    several_runs = len({series.members[0].run_id for series in found}) > 1
    given = [_fixed(series) for series in found]
    keys = dict.fromkeys(key for one in given for key in one)
    telling = [key for key in keys if len({as_text(one.get(key)) for one in given}) > 1]
    names = [_name(series, one, telling) for series, one in zip(found, given, strict=True)]
    names = [
        f"{name} ({series.members[0].run_id})" if several_runs else name
        for series, name in zip(found, names, strict=True)
    ]
    twins = {name for name in names if names.count(name) > 1}
    return [
        " ".join([name, *(_told(key, one[key]) for key in telling if key in one)]) if name in twins else name
        for name, one in zip(names, given, strict=True)
    ]


def _name(series: Series, fixed: Mapping[str, Any], telling: Sequence[str]) -> str:
    targets = {member.target_name for member in series.members}
    words = [next(iter(targets))] if len(targets) == 1 else []
    if not words:  # numbers of a target are told only where they must: those of another kind are its defaults
        words = [
            fixed[key]
            for key in telling
            if key.startswith("target.") and isinstance(fixed.get(key), str) and fixed[key]
        ]
    of_case = [key for key in telling if not key.startswith("target.") and key in fixed]
    words += [_told(key, fixed[key]) for key in of_case if fixed[key] not in words]
    words = list(filter(None, words)) or [_told(key, fixed[key]) for key in telling if key in fixed]
    return " ".join(words) or series.members[0].label


def _fixed(series: Series) -> dict[str, Any]:
    """What all its points were given alike."""
    first, *rest = (member.given for member in series.members)
    return {
        key: value
        for key, value in first.items()
        if key not in (_NAME, series.along) and all(as_text(other.get(key)) == as_text(value) for other in rest)
    }


def _told(key: str, value: Any) -> str:
    return f"{key.removeprefix('target.')}={as_text(value)}"
