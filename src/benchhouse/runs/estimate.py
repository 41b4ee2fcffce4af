"""Estimates for a plan from earlier trials: time, money, and disk space; and a check of free space."""

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from benchhouse.catalog.entries import plug
from benchhouse.evidence.folder import read_manifest
from benchhouse.evidence.manifest import Manifest
from benchhouse.plan.expand import Plan
from benchhouse.runs.budget import most_used
from benchhouse.runs.prepared_run import PreparedRun
from benchhouse.schema.errors import BenchError, Exit
from benchhouse.schema.layout import TrialFolder, WorkspaceFolder
from benchhouse.schema.quantities import show_bytes
from benchhouse.schema.site import Site
from benchhouse.sites.storage import Room, rooms
from benchhouse.warehouse.catalog import FILE_NAME

_BLOCK = 4096
_SAMPLE = 32
_LEAST = (40 << 10, 10)  # bytes and files of the smallest possible trial
_SMALL = (32 << 20, 2000)  # for a run below both, querying the filesystem is not worthwhile
_DURATIONS = """
SELECT instance_digest, avg(duration_s) AS mean, count(*) AS n FROM trial_fact
WHERE experiment = $experiment AND outcome = 'succeeded' GROUP BY 1
"""


@dataclass(frozen=True)
class PlanEstimate:
    """Duration and cost of a plan, estimated from history; None if there is none."""

    trials_known: int
    seconds: float | None
    cost: float | None
    basis: str
    node_hours: float | None = None
    gpu_hours: float | None = None


@dataclass(frozen=True)
class StorageNeed:
    """Disk usage of the results."""

    bytes: int
    files: int
    basis: str
    text: str
    """The same in words, with the free space."""


@dataclass(frozen=True)
class PlanSummary:
    """The contents of `bench plan`."""

    scenario: str
    experiment: str
    version: str
    distribution: str
    """The package that offers the experiment; empty if none is installed."""
    points: int
    repetitions: int
    until: Mapping[str, Any] | None
    warmup: int
    trials: int
    order: str
    seed: int
    axes: list[str]
    executor: str
    runtime: str
    resources: Mapping[str, Any]
    limits: Mapping[str, Any]
    budget: Mapping[str, Any]
    estimate: PlanEstimate
    storage: StorageNeed
    plan_digest: str
    first_points: list[dict[str, Any]]
    notes: list[str]


def estimate(workspace: WorkspaceFolder, plan: Plan, parallel: int) -> PlanEstimate:
    """Estimate from the mean duration of earlier trials: of the same instance, or otherwise of the experiment."""
    if not (workspace.warehouse / FILE_NAME).exists():
        return PlanEstimate(0, None, None, "no history in this workspace")
    from benchhouse.warehouse.query import Warehouse, own

    with Warehouse.open(workspace) as warehouse:
        rows = warehouse.query(own(_DURATIONS), {"experiment": plan.experiment.name}).rows
    if not rows:
        return PlanEstimate(0, None, None, f"no earlier trial of {plan.experiment.name} in this workspace")
    known = {digest: mean for digest, mean, _ in rows}
    trials = sum(count for _, _, count in rows)
    overall = sum(mean * count for _, mean, count in rows) / trials
    sample = list(islice(plan.instances(), 10_000))
    matched = [known[digest] for instance in sample if (digest := instance.digest()) in known]
    per_trial = (sum(matched) + overall * (len(sample) - len(matched))) / len(sample)
    seconds = per_trial * plan.trial_count / max(1, parallel)
    price = plan.scenario.price_per_hour
    hours, nodes, gpus = per_trial * plan.trial_count / 3600, *most_used(plan)
    cost = hours * price * nodes if price is not None else None
    basis = f"{len(matched)} of {len(sample)} points ran before" if matched else "mean of this experiment's trials"
    return PlanEstimate(trials, seconds, cost, basis, hours * nodes, hours * gpus)


def summarise(workspace: WorkspaceFolder, prepared: PreparedRun, points: int = 20) -> PlanSummary:
    """Return a plan for a person to review, with its first points."""
    plan, scenario = prepared.plan, prepared.plan.scenario
    need = needed(workspace, prepared, plan.trial_count)
    runtime, place = plug("runtimes", scenario.runtime.kind)(), prepared.place(workspace)
    return PlanSummary(
        scenario=scenario.scenario,
        experiment=plan.experiment.name,
        version=", ".join(item.experiment.version for item in plan.plans),
        distribution=f"{plan.experiment.distribution} {plan.experiment.distribution_version}".strip(),
        points=plan.points,
        repetitions=scenario.most_repetitions,
        until=scenario.until.model_dump() if scenario.until else None,
        warmup=scenario.warmup,
        trials=plan.trial_count,
        order=scenario.order,
        seed=scenario.seed,
        axes=plan.axes,
        executor=scenario.executor,
        runtime="; ".join(runtime.packages(spec, place) for spec in plan.runtimes),
        resources=plan.resources.model_dump(exclude_none=True),
        limits=plan.limits.model_dump(exclude_none=True),
        budget=scenario.budget.model_dump(exclude_none=True),
        estimate=estimate(workspace, plan, scenario.parallel),
        storage=StorageNeed(need.size, need.files, need.basis, room_text(need, workspace, prepared.site)),
        plan_digest=plan.digest,
        first_points=list(islice(plan.shown_points(), points)),
        notes=prepared.notes,
    )


@dataclass(frozen=True)
class Need:
    """Expected and least disk usage of a number of trials."""

    size: int
    files: int
    least_size: int
    least_files: int
    basis: str

    def text(self) -> str:
        return f"about {show_bytes(self.size)} in {self.files:,} files"


def needed(workspace: WorkspaceFolder, prepared: PreparedRun, trials: int) -> Need:
    """Estimate from trials of this scenario, or of this experiment, or otherwise from the smallest possible trial."""
    sizes = [_size_of(manifest) for manifest in islice(_earlier(workspace, prepared), _SAMPLE)]
    basis = f"as {len(sizes)} earlier trials" if len(sizes) > 1 else "as one earlier trial"
    if not sizes:
        sizes, basis = [_LEAST], "at least: there is no earlier trial here"
    columns = list(zip(*sizes, strict=True))
    size, files = (round(sum(column) / len(sizes) * trials) for column in columns)
    least_size, least_files = (min(column) * trials for column in columns)
    return Need(size, files, least_size, least_files, basis)


def _earlier(workspace: WorkspaceFolder, prepared: PreparedRun) -> Iterator[Manifest]:
    scenario, experiment = prepared.plan.scenario.scenario, prepared.plan.experiment.name
    own = [manifest for _, manifest in islice(_sealed(workspace.results / scenario), _SAMPLE)]
    yield from own
    for home in _folders(workspace.results) if not own else ():
        first = next(_sealed(home), None)  # a scenario has one experiment, so one folder is enough to identify it
        if first and _experiment(first[0]) == experiment:
            yield from (manifest for _, manifest in islice(_sealed(home), _SAMPLE))


def _sealed(home: Path) -> Iterator[tuple[TrialFolder, Manifest]]:
    for path in _folders(home):
        folder = TrialFolder(path)
        try:
            yield folder, read_manifest(folder)
        except (OSError, ValueError):
            continue  # unfinished or damaged, which `bench verify` reports


def _folders(path: Path) -> Iterator[Path]:
    try:
        with os.scandir(path) as entries:
            yield from (Path(entry.path) for entry in entries if entry.name[0] != "." and entry.is_dir())
    except OSError:
        return


def _experiment(folder: TrialFolder) -> str:
    try:
        return str(json.loads(folder.spec.read_bytes())["experiment"]["name"])
    except (OSError, ValueError, KeyError, TypeError):
        return ""


def _size_of(manifest: Manifest) -> tuple[int, int]:
    """Return bytes and files on disk: whole blocks, the folders, and the manifest itself."""
    inner = {name[:at] for name in manifest.files for at, char in enumerate(name) if char == "/"}
    blocks, others = sum(-(-entry.bytes // _BLOCK) for entry in manifest.files.values()), len(inner) + 2
    return (blocks + others) * _BLOCK, len(manifest.files) + others


def _tightest(need: Need, rooms: list[Room]) -> Room:
    def share(room: Room) -> float:
        size = need.size / max(room.size, 1) if room.size is not None else 0.0
        return max(size, need.files / max(room.files, 1) if room.files is not None else 0.0)

    return max(rooms, key=share)


def check_room(workspace: WorkspaceFolder, prepared: PreparedRun, trials: int) -> str:
    """Return a warning if the trials may not fit, or ''. Raise BenchError if they can't, even at the smallest size."""
    need = needed(workspace, prepared, trials)
    if need.size < _SMALL[0] and need.files < _SMALL[1]:
        return ""
    limits = rooms(workspace.results, prepared.site)
    for room in limits:
        if _over(need.least_size, room.size) or _over(need.least_files, room.files):
            raise BenchError(
                f"the results can't fit: {trials:,} trials need {need.text()} ({need.basis}); "
                f"there is room for {_left(room)} ({room.basis})",
                "make room (bench logs prune), choose another folder (bench -C DIR), or plan fewer trials",
                Exit.TRIAL_FAILED,
            )
    room = _tightest(need, limits)
    if _over(need.size, room.size) or _over(need.files, room.files):
        return f"the results may not fit: {need.text()} ({need.basis}), room for {_left(room)} ({room.basis})"
    return ""


def _over(need: int, most: int | None) -> bool:
    return most is not None and need > most


def _left(room: Room) -> str:
    left = [show_bytes(room.size)] if room.size is not None else []
    return " and ".join([*left, f"{room.files:,} files"] if room.files is not None else left)


def room_text(need: Need, workspace: WorkspaceFolder, site: Site) -> str:
    """Return a text for people: the disk usage of the results, and the free space."""
    room = _tightest(need, rooms(workspace.results, site))
    return f"{need.text()} ({need.basis}); {_left(room)} left ({room.basis})"
