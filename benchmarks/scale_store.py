"""A large workspace for benchmarks: runs with ledgers, tables by the real writer, and evidence of the newest runs.

    python benchmarks/scale_store.py FOLDER [--runs 1000] [--trials 100] [--metrics 25]

A run has 20 points x 5 repetitions; a trial has `metrics` x 4 statistics. Of the newest 20 runs every trial is a sealed
folder, collected as ever; the rows of the others are made of real ones and go through the real writer of tables, as if
their evidence had gone to a store. One scenario has two fifths of the runs, six share the rest; levels change, trials
fail. The runs began half an hour after each other, the last one just now. What is there already is used as it is.
"""

import argparse
import dataclasses
import json
import multiprocessing
import random
import sys
import tempfile
import time
import uuid
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path

from benchhouse.api.workspace import Workspace
from benchhouse.runs.ledger import Ledger, RunRecord
from benchhouse.schema.layout import TrialFolder, WorkspaceFolder
from benchhouse.schema.measurement import Measurement
from benchhouse.schema.trial import ExperimentRef
from benchhouse.warehouse.ingest import collect, open_catalog, store
from benchhouse.warehouse.rows import TrialRows, read_folder

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "warehouse"))
from trial_maker import START, make_trial  # type: ignore[import-not-found]

POINTS = [(target, ef) for target in ("flat", "hnsw") for ef in (8, 16, 24, 32, 48, 64, 96, 128, 192, 256)]
STATS = {"mean": 1.0, "p50": 0.9, "p90": 1.6, "p99": 3.1}
EVERY = timedelta(minutes=30)
SEALED_RUNS = 20
LEADERBOARD = """
logicalBenchmark:
  benchmarkIdentifier: search
  target: {identifier: index}
  properties: [{identifier: data}]
  metrics: [p99]
bindings:
- benchmarkIdentifier: search
  experiment: {actuatorIdentifier: benchhouse, experimentIdentifier: vector.search}
  targetMapping: target.name
  propertyMapping: [{benchmark: {identifier: data}, experiment: {identifier: data}}]
  metricMapping: [{benchmark: {identifier: p99}, experiment: {identifier: phase00_latency.p99}}]
""".lstrip()
REF = ExperimentRef(
    name="vector.search", version="1.0", object="x:y", distribution="benchhouse", distribution_version="0.1.0"
)


@dataclasses.dataclass(frozen=True)
class Size:
    """How much there is."""

    runs: int = 1000
    trials: int = 100
    metrics: int = 25

    @property
    def measurements(self) -> int:
        return self.runs * self.trials * self.metrics * len(STATS)


def made(folder: Path, size: Size) -> WorkspaceFolder:
    """The store in this folder; where there is none, it is made, which takes minutes."""
    workspace, note = WorkspaceFolder(folder / "workspace"), folder / "size.json"
    if note.exists():
        if json.loads(note.read_text()) != dataclasses.asdict(size):
            raise SystemExit(f"{folder} holds another store: {note.read_text()}")
        return workspace
    workspace.root.mkdir(parents=True)
    workspace.runs.mkdir(parents=True)
    open_catalog(workspace).close()
    newest = datetime.now(UTC) - timedelta(minutes=1)
    jobs = [(workspace, size, at, newest - EVERY * (size.runs - 1 - at)) for at in range(size.runs)]
    with ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as pool:
        for at, _ in enumerate(pool.map(make_run, jobs), start=1):
            if sys.stderr.isatty() or at % 50 == 0:
                print(f"{at}/{size.runs} runs", file=sys.stderr, flush=True)
    furnish(workspace)
    note.write_text(json.dumps(dataclasses.asdict(size)))
    return workspace


def furnish(workspace: WorkspaceFolder) -> None:
    """A leaderboard, an alarm, an accepted baseline, claims and a published report."""
    (workspace.root / "benchmarks").mkdir(exist_ok=True)
    (workspace.root / "benchmarks" / "search.yaml").write_text(LEADERBOARD)
    case = "nightly/name=hnsw ef=64"
    (workspace.root / "alarms.yaml").write_text(
        f"alarms: [{{name: slow, case: '{case}', metric: phase00_latency, above: 99, tell: [me]}}]\n"
        "channels: {me: {command: [cat]}}\n"
    )
    there = Workspace(workspace.root)
    there.baselines.accept(case)
    newest = there.runs(made_here=True)[-3:]
    for run in newest:
        there.claims.make(f"{run.id}:name=hnsw,ef=64:phase00_latency.p99", realism=True)
    newest[0].report()


def make_run(job: tuple[WorkspaceFolder, Size, int, datetime]) -> str:
    """One run, its ledger and its tables."""
    workspace, size, at, begun = job
    scenario = "nightly" if at % 5 < 2 else f"sweep-{at % 6}"
    run_id = f"{begun:%Y%m%d-%H%M%S}-{at:07x}"
    ledger = Ledger.create(workspace, _record(run_id, scenario, size, begun), {"scenario": _text(scenario)})
    ledger.tell("started")
    factor = 1 + random.Random(at).gauss(0, 0.01) + (0.08 if at >= size.runs - 12 else 0.0)
    if at >= size.runs - SEALED_RUNS:
        folders = [
            make_trial(workspace, run_id, repetition, target=target, ef=ef, scenario=scenario,
                       parameters={"data": scenario}, minute=int((begun - START).total_seconds() // 60),
                       numbers=numbers(size, factor, (at, ef, repetition)),
                       outcome="failed" if _fails(at, place) else "succeeded")
            for place, (target, ef, repetition) in enumerate(_places(size))
        ]  # fmt: skip
        for path in folders:
            trial = read_folder(workspace, TrialFolder(path)).trial
            _ended(ledger, trial["trial_id"], trial["outcome"], trial["artifact_manifest_digest"])
        collect(workspace, run_id, folders)
    else:
        rows = multiply(_models(scenario, size), run_id, size.trials, begun, factor)
        for trial in (one.trial for one in rows.values()):
            _ended(ledger, trial["trial_id"], trial["outcome"], trial["artifact_manifest_digest"])
        with open_catalog(workspace) as catalog:
            store(catalog, run_id, rows, [])
    ledger.tell("finished")
    ledger.release()
    return run_id


def multiply(
    models: Sequence[TrialRows], run_id: str, count: int, begun: datetime, factor: float = 1.0
) -> dict[str, TrialRows]:
    """`count` trials with ids, times and values of their own, made of real ones."""
    trials, dice = {}, random.Random(run_id)
    for at in range(count):
        model = models[at % len(models)]
        name = str(uuid.uuid5(uuid.NAMESPACE_OID, f"{run_id}/{at}"))
        own = {"trial_id": name, "run_id": run_id}
        began = begun + timedelta(seconds=at)
        times = {"started": began, "ended": began + (model.trial["ended"] - model.trial["started"])}
        more = {"repetition": at // len(models) + 1, "folder": f"results/{model.trial['scenario']}/{name}"}
        scale = factor * (1 + dice.gauss(0, 0.02))
        trials[name] = dataclasses.replace(
            model,
            trial=model.trial | own | times | more,
            measurements=[
                row | own | {"repetition": more["repetition"], "value": row["value"] * scale}
                for row in model.measurements
            ],
        )
    return trials


def numbers(size: Size, factor: float, seed: tuple[int, int, int]) -> list[Measurement]:
    """What a trial measures."""
    dice = random.Random(repr(seed))
    scale = factor * (1 + seed[1] / 100) * (1 + dice.gauss(0, 0.02))
    return [
        Measurement(metric=f"phase{at:02d}_latency", stat=stat, value=(1 + at) * share * scale, unit="ms",
                    direction="lower", n=2000)
        for at in range(size.metrics)
        for stat, share in STATS.items()
    ]  # fmt: skip


@cache
def _models(scenario: str, size: Size) -> list[TrialRows]:
    """A real sealed trial of each point, read as ever."""
    with tempfile.TemporaryDirectory(prefix="bench-model-") as folder:
        workspace = WorkspaceFolder(Path(folder))
        paths = [
            make_trial(workspace, "model", 1, target=target, ef=ef, scenario=scenario, parameters={"data": scenario},
                       numbers=numbers(size, 1.0, (0, ef, 1)))
            for target, ef in POINTS
        ]  # fmt: skip
        return [read_folder(workspace, TrialFolder(path)) for path in paths]


def _places(size: Size) -> list[tuple[str, int, int]]:
    return [(*POINTS[at % len(POINTS)], at // len(POINTS) + 1) for at in range(size.trials)]


def _fails(run: int, place: int) -> bool:
    """One trial of every tenth run."""
    return run % 10 == 3 and place == 7


def _record(run_id: str, scenario: str, size: Size, begun: datetime) -> RunRecord:
    return RunRecord(
        run_id=run_id,
        scenario=scenario,
        scenario_file=f"scenarios/{scenario}.yaml",
        created=begun.isoformat(timespec="milliseconds"),
        plan_digest=f"{scenario:0<64}",
        points=min(size.trials, len(POINTS)),
        trials=size.trials,
        experiment=REF,
        executor="local",
        runtime="process",
        host="node1",
        command=["bench", "run", f"scenarios/{scenario}.yaml"],
    )


def _text(scenario: str) -> str:
    return f"scenario: {scenario}\nexperiment: vector.search\nworkload: {{data: {scenario}}}\nrepetitions: 5\n"


def _ended(ledger: Ledger, trial_id: str, outcome: str, manifest: str) -> None:
    ledger.tell("ended", trial_id=trial_id, attempt=1, outcome=outcome, manifest=manifest, duration_s=2.0, cpu_s=1.5)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    for field in dataclasses.fields(Size):
        parser.add_argument(f"--{field.name}", type=int, default=field.default)
    options = parser.parse_args()
    began = time.monotonic()
    size = Size(options.runs, options.trials, options.metrics)
    workspace = made(options.folder, size)
    print(f"{workspace.root}: {size.measurements:,} measurements, {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
