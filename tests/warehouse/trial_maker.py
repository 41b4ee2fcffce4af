"""Real sealed trial folders, made with the same functions that the worker uses."""

from datetime import UTC, datetime, timedelta
from multiprocessing.synchronize import Barrier
from pathlib import Path

from benchhouse.analysis.summary import summarise_histogram
from benchhouse.evidence.folder import seal, write_metrics_csv
from benchhouse.evidence.writing import write_model, write_text
from benchhouse.schema.histogram import RELATIVE_ERROR, Histogram
from benchhouse.schema.layout import WorkspaceFolder
from benchhouse.schema.measurement import (
    ErrorCounts,
    Extras,
    HistogramEntry,
    HistogramsFile,
    LatencyMs,
    Measurement,
    MetricsFile,
    ResourceUse,
    Throughput,
)
from benchhouse.schema.resources import Limits, Resources, RuntimeSettings
from benchhouse.schema.telemetry import OwnCost, Phase, ScopeSummary, SeriesSummary, Stats, TelemetrySummary
from benchhouse.schema.topology import Cluster, Topology
from benchhouse.schema.trial import (
    MEASURED,
    Attempt,
    ExperimentRef,
    Failure,
    Instance,
    Meta,
    TrialSpec,
    TrialWarning,
    trial_id,
)
from benchhouse.warehouse.ingest import collect
from benchhouse.worker.monitors.sampler import Recording
from benchhouse.worker.monitors.store import write as write_telemetry

START = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


def telemetry(cores: float, started: str) -> TelemetrySummary:
    stats = Stats(n=2, avg=cores, min=cores, max=cores, p50=cores, p95=cores, p99=cores, growth=2 * cores)
    cpu = SeriesSummary(unit="1", kind="counter", family="process", phases={"trial": stats})
    return TelemetrySummary(
        schema_version=1,
        energy_j=None,
        started=started,
        duration_s=2.0,
        interval_s=1.0,
        ticks_missed=0,
        cost=OwnCost(samples=3, cpu_s=0.0003, cpu_us_per_sample=100.0, cores=0.00015),
        phases=[Phase(name="trial", begin_s=0.0, end_s=2.0)],
        scopes={"trial": ScopeSummary(file="trial.parquet", samples=3, series={"cpu": cpu})},
    )


def make_trial(
    workspace: WorkspaceFolder,
    run_id: str = "run-a",
    repetition: int = 1,
    *,
    ef: int = 16,
    target: str = "hnsw",
    value: float = 100.0,
    outcome: str = "succeeded",
    warmup: bool = False,
    scenario: str = "demo",
    minute: int = 0,
    sealed: bool = True,
    samples: bool | list[float] = False,
    cores: float | None = None,
    histogram: Histogram | None = None,
    histogram_file: Histogram | None = None,
    reason: tuple[str, str] = ("boom", "it broke"),
    component: str = "vector",
    numbers: list[Measurement] | None = None,
    parameters: dict[str, object] | None = None,
    submitted: str | None = None,
    topology: Topology | None = None,
    cluster: Cluster | None = None,
    executor: str = "local",
    recording: Recording | None = None,
    host: str = "node1",
    axes: tuple[str, ...] = ("target.name", "ef"),
) -> Path:
    """Write one trial folder; returns where it lies. `histogram_file` is a lie about `histogram`, sealed like truth.

    With `cores` it has telemetry: so many were busy; with `recording`, all of that, written as a worker does.
    `numbers` are measured instead of the usual ones, and `samples` may be the latencies themselves, in ms.
    """
    ref = ExperimentRef(
        name="vector.search", version="1.0", object="x:y", distribution="benchhouse", distribution_version="0.1.0"
    )
    instance = Instance(
        experiment=ref.name,
        version=ref.version,
        target={"name": target} if target else {},
        parameters={"ef": ef, "k": 10} | (parameters or {}),
    )
    name = trial_id(run_id, instance.digest(), repetition, warmup)
    final = workspace.trial(scenario, name).path
    folder = workspace.partial(scenario, name, 1)
    folder.path.mkdir(parents=True)
    started = START + timedelta(minutes=minute, seconds=repetition)
    times = {"started": started.isoformat(timespec="milliseconds")}
    times["ended"] = (started + timedelta(seconds=2)).isoformat(timespec="milliseconds")
    spec = TrialSpec(
        trial_id=name,
        run_id=run_id,
        scenario=scenario,
        plan_digest="p" * 64,
        instance_digest=instance.digest(),
        benchmark_case_id=instance.case_id(),
        workload_spec_digest=instance.workload_digest(),
        experiment=ref,
        component=component,
        service="faiss",
        target=instance.target,
        parameters=instance.parameters,
        axes=list(axes),
        repetition=repetition,
        warmup=warmup,
        seed=2**63 + repetition,
        resources=Resources(),
        limits=Limits(),
        executor=executor,
        runtime=RuntimeSettings(),
        submitted=submitted,
        cluster=cluster,
        cache="/tmp/cache",
        final=str(final),
    )
    failed = outcome not in MEASURED
    meta = Meta(
        trial_id=name,
        run_id=run_id,
        scenario=scenario,
        outcome=outcome,
        failure=Failure(code=reason[0], message=reason[1]) if outcome != "succeeded" else None,
        warnings=[TrialWarning(code="small-n", message="few samples")],
        attempts=[Attempt(attempt=1, outcome=outcome)],
        **times,
        duration_s=2.0,
        timestamp=times["started"],
        host=host,
        git_commit="c" * 40,
        git_dirty=False,
        seed=spec.seed,
        experiment=ref,
        package_lock_digest="l" * 64,
        packages={"benchhouse": "0.1.0"},
        python="3.11",
        hardware={},
        topology=topology,
        drivers={},
        limits={},
        usage={"cpu_s": 1.5, "peak_memory_bytes": 1 << 20},
    )
    measurements = [] if failed else measure(value) if numbers is None else list(numbers)
    if histogram:
        stats = summarise_histogram(histogram, "ms").stats()
        measurements += [
            Measurement(metric="wait", stat=stat, value=number, unit="ms", direction="lower", n=histogram.n)
            for stat, number in stats.items()
        ]
    extras = Extras(
        run_id=run_id,
        instance_digest=spec.instance_digest,
        repetition=repetition,
        warmup=warmup,
        outcome=outcome,
        experiment=ref.name,
        version=ref.version,
        measurements=measurements,
    )
    if cores is not None:
        folder.telemetry.mkdir()
        (folder.telemetry / "trial.parquet").write_bytes(b"not read here")
        write_model(folder.telemetry_summary, telemetry(cores, times["started"]))
    if recording is not None:
        lasts_s = (recording.samples - 1) * recording.interval_s
        steady = Phase(name="steady", begin_s=0.1 * lasts_s, end_s=0.95 * lasts_s)
        write_telemetry(folder.telemetry, recording, times["started"], lasts_s, [steady])
    metrics = MetricsFile(
        trial_id=name,
        timestamp=times["started"],
        component=spec.component,
        service=spec.service,
        config=spec.parameters,
        throughput=Throughput(value=None if failed else value, unit="items_per_s"),
        latency_ms=LatencyMs(p50=None, p90=None, p99=None),
        resource=ResourceUse(gpu_util=None, gpu_mem_mb=None, cpu_util=None, ram_mb=None),
        errors=ErrorCounts(rate=None, timeouts=0),
        notes="",
        benchhouse=extras,
    )
    write_model(folder.spec, spec)
    write_model(folder.meta, meta)
    write_model(folder.metrics, metrics)
    write_metrics_csv(folder.metrics_csv, spec, measurements)
    if samples:
        planted = [1000 / value] * 18 + [3000 / value] * 2  # of which p50 and p99 are what `measure` says
        latencies = planted if samples is True else samples
        lines = [f"latency,,{at},{latency!r},ms" for at, latency in enumerate(latencies)] + ["other,,0,1.0,1"]
        write_text(folder.samples, "\n".join(["metric,window,index,value,unit", *lines]) + "\n")
    if histogram:
        content = (histogram_file or histogram).to_json()
        entry = HistogramEntry(metric="wait", unit="ms", relative_error=RELATIVE_ERROR, nanoseconds=content)
        write_model(folder.histograms, HistogramsFile(histograms=[entry]))
    return seal(folder, spec, outcome) if sealed else folder.path


def measure(value: float) -> list[Measurement]:
    return [
        Measurement(metric="qps", stat="value", value=value, unit="1/s", direction="higher"),
        Measurement(metric="latency", stat="p50", value=1000 / value, unit="ms", direction="lower", n=20),
        Measurement(metric="latency", stat="p99", value=3000 / value, unit="ms", direction="lower", n=20),
        Measurement(metric="qps", stat="value", value=value / 2, unit="1/s", direction="higher", window="first second"),
    ]


def make_run(workspace: WorkspaceFolder, run_id: str = "run-a", repetitions: int = 3, **options: object) -> list[Path]:
    """Two targets, two values of ef, and a warm-up."""
    folders = [make_trial(workspace, run_id, 1, warmup=True, value=1.0, **options)]
    for target in ("flat", "hnsw"):
        for ef in (16, 64):
            for at in range(1, repetitions + 1):
                value = 100.1 + 7.3 * at + ef + len(target)
                folders.append(make_trial(workspace, run_id, at, target=target, ef=ef, value=value, **options))
    return folders


def lake_bytes(workspace: WorkspaceFolder) -> dict[str, bytes]:
    return {
        path.relative_to(workspace.warehouse).as_posix(): path.read_bytes()
        for path in sorted(workspace.warehouse.glob("*/*.parquet"))
    }


def flip_byte(path: Path, at: int = -2) -> None:
    """Change one bit, keeping the size."""
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(bytes(content))


def collect_growing(root: Path, run_id: str, folders: list[Path], barrier: Barrier) -> None:
    """Collect the first folder, the first two, ...; stands here so that a process of its own can import it."""
    barrier.wait()
    for at in range(len(folders)):
        collect(WorkspaceFolder(root), run_id, folders[: at + 1])
