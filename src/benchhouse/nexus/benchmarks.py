"""Registered benchmarks of the workspace, installed packages, and a nexus, with their users and last results."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchhouse.catalog.benchmarks import Registered, list_benchmarks
from benchhouse.catalog.listing import list_experiments
from benchhouse.catalog.nexus import BenchmarkInstance, Nexus, load_nexus
from benchhouse.documents.yaml_reader import load_yaml
from benchhouse.schema.errors import BenchError
from benchhouse.schema.layout import WorkspaceFolder
from benchhouse.sites import places

if TYPE_CHECKING:
    from benchhouse.results.run_points import PointValue

_RUNS = """
SELECT scenario, target_name, run_id, max(ended) AS ended, count(*) AS trials,
       count(*) FILTER (WHERE outcome = 'succeeded') AS succeeded
FROM trial_fact WHERE NOT warmup GROUP BY 1, 2, 3 ORDER BY run_id DESC, target_name
"""


@dataclass(frozen=True)
class FirstResult:
    """The experiment's first metric at the first point of a run."""

    metric: str
    stat: str
    unit: str
    mean: float
    stdev: float | None
    n: int
    point: str
    points: int
    """Number of points that the run has for the target."""


@dataclass(frozen=True)
class LastRun:
    """The newest run of a benchmark, for one target."""

    run_id: str
    ended: Any
    trials: int
    succeeded: int
    target_name: str
    result: FirstResult | None = None
    """None if no trial succeeded."""


@dataclass(frozen=True)
class ListedBenchmark:
    """A registered benchmark with its experiments, models, and users, or a file that can't be read (`broken`)."""

    benchmark: str = ""
    kind: str = ""
    """`benchmark`, `scenario`, or `space`."""
    experiment: str = ""
    experiments: list[str] = field(default_factory=list)
    version: str | list[str] | None = None
    origin: str = ""
    """`workspace`, `nexus`, or the distribution."""
    package: str = ""
    models: list[str] = field(default_factory=list)
    file: str = ""
    description: str = ""
    used_by: list[str] = field(default_factory=list)
    broken: str | None = None
    last: LastRun | None = None


@dataclass
class _Users:
    """The scenarios and benchmarks that name a benchmark in `uses:`, and the scenario and target of each."""

    ids: dict[str, str] = field(default_factory=dict)  # bare name in the nexus -> `package/name`
    by_name: dict[str, list[str]] = field(default_factory=dict)
    runs: dict[str, tuple[str, str]] = field(default_factory=dict)  # user -> (scenario, target; empty: any)

    def add(self, used: str, who: str, scenario: str, target: str = "") -> None:
        self.by_name.setdefault(self.ids.get(used, used), []).append(who)
        self.runs[who] = (scenario, target)

    def of(self, name: str) -> list[str]:
        return self.by_name.get(name, [])

    def all_of(self, name: str) -> set[str]:
        """Return all users, including those that use it through another benchmark."""
        users, todo = set[str](), self.of(name)
        while todo:
            users.update(todo)
            todo = [who for user in todo for who in self.of(user) if who not in users]
        return users

    def runs_of(self, name: str) -> set[tuple[str, str]]:
        return {self.runs[who] for who in self.all_of(name)}

    def models_of(self, name: str) -> list[str]:
        return sorted({target for _, target in self.runs_of(name) if target})


def registered(
    workspace: WorkspaceFolder,
    nexus: str | Path | None = None,
    package: str | None = None,
    model: str | None = None,
    experiment: str | None = None,
) -> list[ListedBenchmark]:
    """Return each benchmark of the package, model, and experiment (default: all), and each file that can't be read."""
    good, unread = list_benchmarks(workspace.benchmarks)
    root = places.nexus(nexus, workspace.root)
    whole = load_nexus(root) if root else Nexus(workspace.root, ())
    users = _users(workspace, whole)
    rows = [(_row(item, users), users.runs_of(item.benchmark.benchmark)) for item in good]
    rows += [
        (_nexus_row(item, users), users.runs_of(item.id) | {(_scenario(item), item.target)})
        for item in whole.instances()
    ]
    kept = [
        (row, runs)
        for row, runs in rows
        if package in (None, row.package) and model in (None, *row.models) and experiment in (None, *row.experiments)
    ]
    last_runs = _last_runs(workspace, [runs for _, runs in kept])
    listed = [replace(row, last=last) for (row, _), last in zip(kept, last_runs, strict=True)]
    return listed + [
        ListedBenchmark(origin=item.origin, package=item.origin, file=item.place, broken=item.error.message)
        for item in (*unread, *whole.broken)
    ]


def _row(item: Registered, users: _Users) -> ListedBenchmark:
    name, benchmark = item.benchmark.benchmark, item.benchmark
    return ListedBenchmark(
        benchmark=name,
        kind="benchmark",
        experiment=benchmark.experiment or f"uses {benchmark.uses}",
        experiments=[benchmark.experiment or ""],
        version=benchmark.version,
        origin=item.origin,
        package=item.origin,
        models=users.models_of(name),
        file=item.document.path,
        description=benchmark.description,
        used_by=users.of(name),
    )


def _nexus_row(item: BenchmarkInstance, users: _Users) -> ListedBenchmark:
    data = item.document.data
    return ListedBenchmark(
        benchmark=item.id,
        kind=item.kind,
        experiment=", ".join(ref.name for ref in item.experiments) or f"uses {item.uses}",
        experiments=[ref.name for ref in item.experiments],
        version=", ".join(ref.version for ref in item.experiments if ref.version) or None,
        origin="nexus",
        package=item.package,
        models=[item.target] if item.target else users.models_of(item.id),
        file=item.document.path,
        description=str(data.get("description") or (data.get("metadata") or {}).get("description") or ""),
        used_by=users.of(item.id),
    )


def _scenario(item: BenchmarkInstance) -> str:
    """Return the scenario under which its results are filed; for a space, the name of its folder."""
    return str(item.document.data.get("scenario", item.name))


def _users(workspace: WorkspaceFolder, nexus: Nexus) -> _Users:
    """Collect users from scenarios in the workspace's own folders and from the whole nexus."""
    users = _Users({item.name: item.id for package in nexus.packages for item in package.instances})
    for folder in (workspace.root, workspace.root / "scenarios", workspace.root / "examples"):
        for path in sorted(folder.glob("*.yaml")):
            try:
                data = load_yaml(path).data
            except BenchError:
                continue  # not a scenario, or a broken one, which `bench validate` reports
            if "uses" in data and "scenario" in data:
                users.add(str(data["uses"]), str(data["scenario"]), str(data["scenario"]))
    for item in nexus.instances():
        if item.uses:
            users.add(item.uses, item.id, _scenario(item), item.target)
    return users


def _last_runs(workspace: WorkspaceFolder, wanted: list[set[tuple[str, str]]]) -> list[LastRun | None]:
    """Return the newest run of each set of (scenario, target), with its successful trials and a first result."""
    if not any(wanted) or not (workspace.warehouse / "catalog.sqlite").exists():
        return [None] * len(wanted)
    from benchhouse.results.run_points import points as points_of
    from benchhouse.warehouse.query import Warehouse, own

    with Warehouse.open(workspace) as warehouse:
        runs = warehouse.query(own(_RUNS)).dicts()
    newest = [_newest(runs, pairs) for pairs in wanted]
    points = points_of(workspace, sorted({run.run_id for run in newest if run}))
    order = {(item.name, metric["name"]): at for item in list_experiments(places.cache())
             for at, metric in enumerate(item.metrics)}  # fmt: skip
    points = [point for point in points if point.headline]
    points.sort(key=lambda point: (order.get((point.experiment, point.metric), len(order)), point.metric))
    return [replace(run, result=_first_result(points, run)) if run else None for run in newest]


def _newest(runs: Iterable[dict[str, Any]], pairs: set[tuple[str, str]]) -> LastRun | None:
    """Return the first run that matches; `runs` come newest first."""
    for row in runs:
        if (row["scenario"], row["target_name"]) in pairs or (row["scenario"], "") in pairs:
            return LastRun(row["run_id"], row["ended"], row["trials"], row["succeeded"], row["target_name"])
    return None


def _first_result(points: "list[PointValue]", run: LastRun) -> FirstResult | None:
    own = [point for point in points if (point.run_id, point.target_name) == (run.run_id, run.target_name)]
    if not own:
        return None
    first, count = own[0], len({point.instance_digest for point in own})
    return FirstResult(first.metric, first.stat, first.unit, first.mean, first.stdev, first.n, first.point, count)
