"""Match the points of one side with those of the other. A pair is never guessed."""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from benchhouse.schema.digests import canonical_json
from benchhouse.schema.imported import IMPORTED
from benchhouse.schema.quoting import printable
from benchhouse.schema.trial import VERSION_AXIS
from benchhouse.warehouse.grouping import grouped

Row = Mapping[str, Any]


@dataclass
class MatchPoint:
    """All rows of one instance of one run."""

    label: str
    target_name: str
    experiment: str
    digest: str
    case: str
    target: dict[str, Any]
    axes: dict[str, Any]
    parameters: dict[str, Any]
    rows: dict[tuple[str, str], Row] = field(default_factory=dict)


Matched = tuple[MatchPoint, MatchPoint]


def points_of(rows: Iterable[Row]) -> list[MatchPoint]:
    points: dict[tuple[str, str], MatchPoint] = {}
    for row in rows:
        key = (row["run_id"], row["instance_digest"])
        if key not in points:  # decodes three documents
            points[key] = point_of(row)
        points[key].rows[row["metric"], row["stat"]] = row
    return list(points.values())


def point_of(row: Row) -> MatchPoint:
    return MatchPoint(
        label=row["point"] or row["target_name"],
        target_name=row["target_name"],
        experiment=row["experiment"],
        digest=row["instance_digest"],
        case=row["benchmark_case_id"],
        target=_mapping(row["target"]),
        axes=_mapping(row["axes"]),
        parameters=_mapping(row["parameters"]),
    )


def _mapping(value: Any) -> dict[str, Any]:
    content = json.loads(value) if isinstance(value, str) else value
    return dict(content) if isinstance(content, Mapping) else {"name": content}


def look_up(point: MatchPoint, key: str) -> Any:
    """Return an axis, `target` (the name), `instance` (the digest), or a key of the target or parameters, dotted if
    nested.
    """
    if key in point.axes:
        return point.axes[key]
    bare = {name.rpartition(".")[2]: value for name, value in point.axes.items()}
    if key in bare:
        return bare[key]
    if key in ("target", "instance"):
        return point.target_name if key == "target" else point.digest
    of_workload = _inside(point.parameters, key.removeprefix("workload."))
    return of_workload if of_workload is not None else _inside(point.target, key.removeprefix("target."))


def _inside(values: Any, path: str) -> Any:
    """Return the value at a dotted path of nested mappings; None if there is none."""
    for part in path.split("."):
        values = values.get(part) if isinstance(values, Mapping) else None
    return values


def as_text(value: Any) -> str:
    return value if isinstance(value, str) else canonical_json(value).decode()


def one_line(value: Any) -> str:
    r"""Return a value on one line, as in tables: a line break becomes `\n`."""
    return printable(as_text(value))


def fits(value: Any, wanted: str) -> bool:
    """Whether `wanted` means this value when a person types it: whitespace around a value is hard to type or to see."""
    return wanted in {as_text(value), as_text(value).strip(), one_line(value)}


def leaves(values: Mapping[str, Any], path: str = "") -> dict[str, Any]:
    """Return nested mappings as a flat one: dotted path -> value."""
    flat: dict[str, Any] = {}
    for key, value in values.items():
        flat |= leaves(value, f"{path}{key}.") if isinstance(value, Mapping) and value else {f"{path}{key}": value}
    return flat


def without(values: Mapping[str, Any], selected: set[str]) -> dict[str, Any]:
    """Return the axes or parameters without the selected ones, whether a key is dotted or leads into a mapping."""
    bare = {_bare(key) for key in selected}
    return {
        key: _emptied(value, key, bare)
        for key, value in values.items()
        if _bare(key) not in bare and key.rpartition(".")[2] not in bare
    }


def _emptied(value: Any, path: str, bare: set[str]) -> Any:
    if not isinstance(value, Mapping):
        return value
    inner = {f"{path}.{key}": (key, item) for key, item in value.items()}
    return {key: _emptied(item, dotted, bare) for dotted, (key, item) in inner.items() if dotted not in bare}


def _bare(key: str) -> str:
    return key.removeprefix("target.").removeprefix("workload.")


def match(
    a: list[MatchPoint], b: list[MatchPoint], selected: set[str]
) -> tuple[list[Matched], list[MatchPoint], list[MatchPoint]]:
    """Pair points, the most reliable criterion first. Return the pairs and the remaining points of either side.

    A criterion counts if it identifies one point on each side. If the selectors leave one point on one side and several
    on the other, that one is compared with each of them: `index=flat` with three of `index=hnsw`.
    """
    by_target = any(_of_target(key, point) for key in selected for point in (*a, *b))

    def axes(point: MatchPoint) -> str:
        kept = without(point.axes, selected)
        return as_text({key: value for key, value in kept.items() if not (by_target and _of_target(key, point))})

    def workload(point: MatchPoint) -> tuple[str, str]:
        short = {axis for axis in point.axes if axis.rpartition(".")[2] in selected}  # `level` for `values.level`
        return point.experiment, as_text(without(point.parameters, selected | short))

    ways: list[Callable[[MatchPoint], Any]] = [
        lambda point: point.digest,
        lambda point: (point.case, axes(point), point.target_name),
        lambda point: (point.case, axes(point)),
        lambda point: (workload(point), axes(point), point.target_name),
        lambda point: (workload(point), axes(point)),
    ]
    if selected & {VERSION_AXIS, VERSION_AXIS.rpartition(".")[2]}:  # a version may have inputs that another lacks
        ways += [lambda point: (point.experiment, axes(point), point.target_name)]
    pairs: list[Matched] = []
    rest_a, rest_b = list(a), list(b)
    for way in ways:
        groups = grouped(rest_a, way), grouped(rest_b, way)
        shared = [key for key in groups[0] if len(groups[0][key]) == len(groups[1].get(key, ())) == 1]
        pairs += [(groups[0][key][0], groups[1][key][0]) for key in shared]
        rest_a, rest_b = _unused(rest_a, rest_b, pairs)
    if any(point.experiment == IMPORTED for point in (*a, *b)):
        rest_a, rest_b = _pair_imported(rest_a, rest_b, pairs)
    if selected:
        groups = grouped(rest_a, ways[-1]), grouped(rest_b, ways[-1])
        for key, group in groups[0].items():
            others = groups[1].get(key, [])
            if 1 in (len(group), len(others)):
                pairs += [(x, y) for x in group for y in others]
        rest_a, rest_b = _unused(rest_a, rest_b, pairs)
    order = {id(point): at for at, point in enumerate(a)}
    return sorted(pairs, key=lambda pair: order[id(pair[0])]), rest_a, rest_b


def _pair_imported(
    a: list[MatchPoint], b: list[MatchPoint], pairs: list[Matched]
) -> tuple[list[MatchPoint], list[MatchPoint]]:
    """Pair points that another tool measured with those of a third tool or ours: by target name, or if each side has
    only one.

    Their workloads have no keys in common; their definitions decide which of their numbers mean the same.
    """
    groups = [grouped(side, lambda point: point.target_name) for side in (a, b)]
    pairs += [
        (groups[0][name][0], groups[1][name][0])
        for name in groups[0]
        if len(groups[0][name]) == len(groups[1].get(name, ())) == 1
    ]
    a, b = _unused(a, b, pairs)
    if len(a) == len(b) == 1 and not pairs:
        pairs.append((a[0], b[0]))
    return _unused(a, b, pairs)


def _of_target(key: str, point: MatchPoint) -> bool:
    """Whether an axis, or the key of a selector, distinguishes targets and not workloads."""
    only_there = _inside(point.target, key) is not None and _inside(point.parameters, key) is None
    return key == "target" or key.startswith("target.") or only_there


def _unused(
    a: list[MatchPoint], b: list[MatchPoint], pairs: list[Matched]
) -> tuple[list[MatchPoint], list[MatchPoint]]:
    used = {id(point) for pair in pairs for point in pair}
    return [point for point in a if id(point) not in used], [point for point in b if id(point) not in used]
