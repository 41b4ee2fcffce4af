"""Registered benchmarks: of the workspace, of installed packages and of a nexus; who uses each, and the last result."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchhouse.catalog.benchmarks import Registered, list_benchmarks
from benchhouse.catalog.listing import list_experiments
from benchhouse.catalog.nexus import BenchmarkInstance, Nexus, load_nexus
from benchhouse.documents.yaml_reader import load_yaml
from benchhouse.schema.errors import BenchError
from benchhouse.schema.layout import Workspace
from benchhouse.sites import places

if TYPE_CHECKING:
    from benchhouse.results.run_points import PointValue

_RUNS = """
SELECT scenario, target_name, run_id, max(ended) AS ended, count(*) AS trials,
       count(*) FILTER (WHERE outcome = 'succeeded') AS succeeded
FROM trial_fact WHERE NOT warmup GROUP BY 1, 2, 3 ORDER BY run_id DESC, target_name
"""


@dataclass(frozen=True)
class Wanted:
    """Which benchmarks; empty: all."""

    package: str | None = None
    model: str | None = None
    experiment: str | None = None

    def meets(self, row: dict[str, Any]) -> bool:
        return (
            self.package in (None, row["package"])
            and (self.model is None or self.model in row["models"])
            and (self.experiment is None or self.experiment in row["experiments"])
        )


@dataclass
class _Users:
    """Who says `uses:` what, and as which scenario and target each runs."""

    ids: dict[str, str] = field(default_factory=dict)  # a bare name of the nexus -> `package/name`
    by_name: dict[str, list[str]] = field(default_factory=dict)
    runs: dict[str, tuple[str, str]] = field(default_factory=dict)  # user -> (scenario, target; empty: any)

    def add(self, used: str, who: str, scenario: str, target: str = "") -> None:
        self.by_name.setdefault(self.ids.get(used, used), []).append(who)
        self.runs[who] = (scenario, target)

    def of(self, name: str) -> list[str]:
        return self.by_name.get(name, [])

    def all_of(self, name: str) -> set[str]:
        """Those that use it by way of another, too."""
        found, todo = set[str](), self.of(name)
        while todo:
            found.update(todo)
            todo = [who for user in todo for who in self.of(user) if who not in found]
        return found

    def runs_of(self, name: str) -> set[tuple[str, str]]:
        return {self.runs[who] for who in self.all_of(name)}

    def models_of(self, name: str) -> list[str]:
        return sorted({target for _, target in self.runs_of(name) if target})


def registered(
    workspace: Workspace, nexus: str | Path | None = None, wanted: Wanted | None = None
) -> list[dict[str, Any]]:
    """A row for each benchmark that is wanted, and for what can't be read."""
    good, unread = list_benchmarks(workspace.benchmarks)
    root = places.nexus(nexus, workspace.root)
    found = load_nexus(root) if root else Nexus(workspace.root, ())
    users = _users(workspace, found)
    rows = [_row(item, users) for item in good]
    rows += [_nexus_row(item, users) for item in found.instances()]
    rows = [row for row in rows if (wanted or Wanted()).meets(row)]
    for row, last in zip(rows, _last(workspace, [row.pop("runs") for row in rows]), strict=True):
        row["last"] = last
    return rows + [_empty(item.origin, item.place, item.error.message) for item in (*unread, *found.broken)]


def _row(item: Registered, users: _Users) -> dict[str, Any]:
    name, benchmark = item.benchmark.benchmark, item.benchmark
    return {
        "benchmark": name,
        "kind": "benchmark",
        "experiment": benchmark.experiment or f"uses {benchmark.uses}",
        "experiments": [benchmark.experiment or ""],
        "version": benchmark.version,
        "origin": item.origin,
        "package": item.origin,
        "models": users.models_of(name),
        "file": item.document.path,
        "description": benchmark.description,
        "used_by": users.of(name),
        "runs": users.runs_of(name),
        "broken": None,
    }


def _nexus_row(item: BenchmarkInstance, users: _Users) -> dict[str, Any]:
    data = item.document.data
    return {
        "benchmark": item.id,
        "kind": item.kind,
        "experiment": ", ".join(ref.name for ref in item.experiments) or f"uses {item.uses}",
        "experiments": [ref.name for ref in item.experiments],
        "version": ", ".join(ref.version for ref in item.experiments if ref.version) or None,
        "origin": "nexus",
        "package": item.package,
        "models": [item.target] if item.target else users.models_of(item.id),
        "file": item.document.path,
        "description": str(data.get("description") or (data.get("metadata") or {}).get("description") or ""),
        "used_by": users.of(item.id),
        "runs": users.runs_of(item.id) | {(_scenario(item), item.target)},
        "broken": None,
    }


def _empty(origin: str, place: str, message: str) -> dict[str, Any]:
    empty: dict[str, Any] = {"benchmark": "", "kind": "", "experiment": "", "experiments": [], "version": None}
    more: dict[str, Any] = {"package": origin, "models": [], "description": "", "used_by": [], "last": None}
    return {**empty, **more, "origin": origin, "file": place, "broken": message}


def _scenario(item: BenchmarkInstance) -> str:
    """What its results are filed under; a space's are under the name of its folder."""
    return str(item.document.data.get("scenario", item.name))


def _users(workspace: Workspace, nexus: Nexus) -> _Users:
    """From scenarios in the workspace's own folders, and from all of the nexus."""
    found = _Users({item.name: item.id for package in nexus.packages for item in package.instances})
    for folder in (workspace.root, workspace.root / "scenarios", workspace.root / "examples"):
        for path in sorted(folder.glob("*.yaml")):
            try:
                data = load_yaml(path).data
            except BenchError:
                continue  # not a scenario of ours, or a broken one: `bench validate` tells
            if "uses" in data and "scenario" in data:
                found.add(str(data["uses"]), str(data["scenario"]), str(data["scenario"]))
    for item in nexus.instances():
        if item.uses:
            found.add(item.uses, item.id, _scenario(item), item.target)
    return found


def _last(workspace: Workspace, wanted: list[set[tuple[str, str]]]) -> list[dict[str, Any] | None]:
    """The newest run of each set of (scenario, target): when, how many trials succeeded, and a first number of it."""
    if not any(wanted) or not (workspace.warehouse / "catalog.sqlite").exists():
        return [None] * len(wanted)
    from benchhouse.results.run_points import points as points_of
    from benchhouse.warehouse.query import Warehouse

    with Warehouse.open(workspace) as warehouse:
        runs = warehouse.query(_RUNS).dicts()
    newest = [_newest(runs, pairs) for pairs in wanted]
    points = points_of(workspace, sorted({row["run_id"] for row in newest if row}))
    order = {(item.name, metric["name"]): at for item in list_experiments(places.cache())
             for at, metric in enumerate(item.metrics)}  # fmt: skip
    points = [point for point in points if point.headline]
    points.sort(key=lambda point: (order.get((point.experiment, point.metric), len(order)), point.metric))
    return [row and row | {"result": _first_number(points, row)} for row in newest]


def _newest(runs: Iterable[dict[str, Any]], pairs: set[tuple[str, str]]) -> dict[str, Any] | None:
    """Runs come newest first."""
    for row in runs:
        if (row["scenario"], row["target_name"]) in pairs or (row["scenario"], "") in pairs:
            return {key: row[key] for key in ("run_id", "ended", "trials", "succeeded", "target_name")}
    return None


def _first_number(points: "list[PointValue]", last: dict[str, Any]) -> dict[str, Any] | None:
    """The experiment's first metric at the first of its points; None where no trial succeeded."""
    own = [point for point in points if (point.run_id, point.target_name) == (last["run_id"], last["target_name"])]
    if not own:
        return None
    keys = ("metric", "stat", "unit", "mean", "stdev", "n", "point")
    return {key: getattr(own[0], key) for key in keys} | {"points": len({point.instance_digest for point in own})}
