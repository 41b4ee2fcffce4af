"""Made-up report data: a vector search sweep with plausible numbers, or any text one likes in every field."""

import random
import statistics

from benchhouse.results.content import (
    FailureFacts,
    Point,
    PointNumber,
    ReportData,
    RunEnvironment,
    RunFacts,
    TrialFacts,
    WarningGroup,
)
from benchhouse.results.numbers import mean_interval, shaky
from benchhouse.results.rankings import make_headline, make_rankings
from benchhouse.schema.query import Cell, QueryInput, QuerySpec, cell_ref

EVIL = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\"'&|`\u2028"
RUN = "20260301T101500-ab12"
SQL = "SELECT run_id, metric, stat, avg(value) AS mean\nFROM measurements\nWHERE run_id IN ($runs)\nGROUP BY ALL"
SPEC = QuerySpec(
    name="points",
    sql=SQL,
    parameters={"run_ids": [RUN]},
    engine_version="1.4.0",
    inputs=[QueryInput(table="measurements", run_id=RUN, file=f"measurements/{RUN}.parquet", sha256="3f" * 32)],
)


def number(metric, stat, unit, direction, values, trials, key, samples=None, primary=True):
    mean = statistics.fmean(values)
    stdev = statistics.stdev(values) if len(values) > 1 else None
    interval = mean_interval(mean, stdev, len(values))
    key = {**key, "metric": metric, "stat": stat}
    cell = Cell(
        ref=cell_ref(SPEC.digest(), key, "mean"),
        query=SPEC.digest(),
        key=key,
        column="mean",
        value=mean,
        unit=unit,
        n=len(values),
        trials=trials,
    )
    return PointNumber(
        cell=cell,
        metric=metric,
        stat=stat,
        direction=direction,
        primary=primary,
        stdev=stdev,
        low=interval[0] if interval else None,
        high=interval[1] if interval else None,
        minimum=min(values),
        maximum=max(values),
        values=values,
        samples=samples,
        shaky=shaky(stat, samples) if samples else "",
    )


def point(index, axes, numbers, label=None, target=None):
    label = label or " ".join(f"{key}={value}" for key, value in axes.items())
    return Point(
        label=label,
        run_id=RUN,
        target_name=target or str(axes.get("index", "faiss")),
        target={"name": target or str(axes.get("index", "faiss"))},
        axes=axes,
        parameters=axes,
        instance_digest=f"{index:064x}",
        benchmark_case_id="c" * 16,
        workload_spec_digest=f"{index * 7:064x}",
        numbers=numbers,
    )


def assemble(points, trials, failures=(), **more):
    columns = ReportData(scenario="x", runs=[], points=points, trials=[], headline=[]).columns()
    rankings = make_rankings(points, columns)
    outcomes = {}
    for trial in trials:
        outcomes[trial.outcome] = outcomes.get(trial.outcome, 0) + 1
    run = RunFacts(
        run_id=RUN,
        started="2026-03-01T10:15:00.120+00:00",
        ended="2026-03-01T10:31:44.801+00:00",
        executor="local",
        runtime="process",
        plan_digest="9c" * 32,
        experiment="vector.search",
        version="1.0",
        distribution="benchhouse 0.1.0",
        outcomes=outcomes,
    )
    fields = {
        "scenario": "vector-search",
        "runs": [run],
        "points": points,
        "trials": trials,
        "headline": make_headline(points, columns, rankings, failures),
        "rankings": rankings,
        "failures": list(failures),
        "queries": [SPEC],
    }
    return ReportData(**{**fields, **more})


def sweep(repetitions=5, seed=1, failures=1):
    """Three indexes along ef_search, with slow drift and one percentile from too few samples."""
    random.seed(seed)
    trials, points = [], []
    grid = [(index, ef) for index in ("hnsw", "ivf", "flat") for ef in (16, 32, 64, 128, 256)]
    ids = {}
    for repetition in range(repetitions):
        for at in range(len(grid)):
            ids[at, repetition] = f"{len(trials):08x}-5a1c-5c1a-9d6e-0f4b1c3a7e52"
            folder = f"results/vector-search/{ids[at, repetition]}"
            trials.append(TrialFacts(trial_id=ids[at, repetition], run_id=RUN, outcome="succeeded", folder=folder))
    for at, (index, ef) in enumerate(grid):
        mine = [ids[at, repetition] for repetition in range(repetitions)]
        base = {"hnsw": 21000, "ivf": 12500, "flat": 1900}[index] * ((16 / ef) ** (0.55 if index != "flat" else 0))
        top = {"hnsw": 0.998, "ivf": 0.985, "flat": 1.0}[index]
        recall = top - (0 if index == "flat" else 0.32 * (16 / ef) ** 0.9)
        qps = [base * random.gauss(1, 0.03) * (1 - 0.004 * r) for r in range(repetitions)]
        recalls = [min(1.0, random.gauss(recall, 0.002)) if index != "flat" else 1.0 for _ in mine]
        p50 = [8000 / value * random.gauss(1, 0.02) for value in qps]
        mean = [value * 1.12 for value in p50]
        p99 = [value * random.gauss(2.7, 0.2) for value in p50]
        key = {"run_id": RUN, "instance_digest": f"{at:064x}"}
        numbers = [
            number("qps", "value", "1/s", "higher", qps, mine, key),
            number("recall", "value", "1", "higher", recalls, mine, key),
            number("latency", "mean", "ms", "lower", mean, mine, key),
            number("latency", "p50", "ms", "lower", p50, mine, key, 40),
            number("latency", "p99", "ms", "lower", p99, mine, key, 40),
            number("latency", "max", "ms", "lower", [v * 1.4 for v in p99], mine, key, primary=False),
        ]
        points.append(point(at, {"index": index, "ef_search": ef}, numbers))
    failed = []
    for at in range(failures):
        trial = f"ffff{at:04x}-5a1c-5c1a-9d6e-0f4b1c3a7e52"
        trials.insert(17 + at, TrialFacts(trial_id=trial, run_id=RUN, outcome="out_of_memory"))
        failed.append(
            FailureFacts(
                trial_id=trial,
                run_id=RUN,
                point="index=hnsw ef_search=256",
                outcome="out_of_memory",
                code="memory_limit",
                message="the trial's processes passed 2.0 GiB of memory and were killed",
                log_tail="building index: 400000 of 1000000 vectors\nbuilding index: 500000 of 1000000 vectors\nKilled",
                folder=f"results/vector-search/{trial}",
                rerun=f"bench run .bench/runs/{RUN}/scenario.yaml --only {trial}",
            )
        )
    return assemble(
        points,
        trials,
        failed,
        description="How the three indexes trade recall for speed on 100,000 clustered vectors.",
        warnings=[
            WarningGroup(code="few_samples", count=75, messages=["p99 from 40 samples; 100 are needed"]),
            WarningGroup(code="cpu_frequency", count=3, messages=["the clock fell below its base frequency for 2.1 s"]),
        ],
        configuration=(
            "scenario: vector-search\nexperiment: vector.search\nworkload:\n  vectors: 100000\n  dimensions: 96\n"
            "axes:\n- grid:\n    index: [hnsw, ivf, flat]\n    ef_search: [16, 32, 64, 128, 256]\nrepetitions: 5\n"
        ),
        environments=[
            RunEnvironment(
                run_id=RUN,
                trial_id=trials[0].trial_id,
                hosts=["node-17"],
                cpu="AMD EPYC 9354 32-Core Processor, 8 of 64 threads",
                memory="62.7 GiB",
                kernel="Linux 6.8.0-45-generic",
                python="3.11.7",
                package_lock_digest="b1" * 32,
                git_commit="89ae838f00112233445566778899aabbccddeeff",
                git_dirty=True,
                limits={"memory": "2 GiB, held by cgroup v2", "wall": "120 s, held by worker timer"},
                other={"GPU driver": "none"},
            )
        ],
    )


def large(count=2000, repetitions=5):
    """Many points on three axes."""
    random.seed(3)
    trials, points = [], []
    for at in range(count):
        mine = []
        for repetition in range(repetitions):
            trial = f"{at:08x}-{repetition:04x}"
            mine.append(trial)
            trials.append(TrialFacts(trial_id=trial, run_id=RUN, outcome="succeeded", folder=f"results/large/{trial}"))
        axes = {"batch": 2 ** (at % 10), "threads": 1 + (at // 10) % 20, "model": f"m{at // 200}"}
        key = {"run_id": RUN, "instance_digest": f"{at:064x}"}
        base = axes["batch"] ** 0.7 * axes["threads"] ** 0.8 * (1 + at // 200)
        numbers = [
            number("throughput", "value", "1/s", "higher", [base * random.gauss(1, 0.02) for _ in mine], mine, key),
            number("latency", "mean", "ms", "lower", [9 * random.gauss(1, 0.05) for _ in mine], mine, key),
        ]
        points.append(point(at, axes, numbers, target=axes["model"]))
    return assemble(points, trials)


def hostile():
    """A report in which every text field tries to break out."""
    spec = QuerySpec(
        name=EVIL,
        sql=EVIL,
        parameters={EVIL: EVIL},
        engine=EVIL,
        engine_version=EVIL,
        quantile_definition=EVIL,
        inputs=[QueryInput(table=EVIL, run_id=EVIL, file=EVIL, sha256=EVIL)],
    )
    value = number(EVIL, EVIL, EVIL, "higher", [1.0, 2.0], [EVIL, EVIL + "2"], {"k": EVIL})
    cell = Cell(**{**value.cell.model_dump(), "ref": EVIL, "query": EVIL, "column": EVIL})
    value = value.model_copy(update={"cell": cell, "shaky": EVIL})
    first = point(1, {EVIL: EVIL}, [value], label=EVIL, target=EVIL)
    ids = {"run_id": EVIL, "instance_digest": EVIL, "benchmark_case_id": EVIL, "workload_spec_digest": EVIL}
    other = first.model_copy(update={"axes": {EVIL: EVIL + "x"}, "label": EVIL + "x", **ids})
    texts = (
        "run_id",
        "started",
        "ended",
        "executor",
        "runtime",
        "plan_digest",
        "experiment",
        "version",
        "distribution",
    )
    return assemble(
        [first, other],
        [TrialFacts(trial_id=EVIL, run_id=EVIL, outcome=EVIL, started=EVIL, folder=EVIL)],
        [FailureFacts(**dict.fromkeys(FailureFacts.model_fields, EVIL))],
        scenario=EVIL,
        description=EVIL,
        runs=[RunFacts(**dict.fromkeys(texts, EVIL), outcomes={EVIL: 1})],
        warnings=[WarningGroup(code=EVIL, count=1, messages=[EVIL])],
        configuration=EVIL,
        environments=[
            RunEnvironment(
                **dict.fromkeys(("run_id", "trial_id", "cpu", "memory", "kernel", "python"), EVIL),
                hosts=[EVIL],
                package_lock_digest=EVIL,
                git_commit=EVIL,
                limits={EVIL: {EVIL: EVIL}},
                other={EVIL: [EVIL]},
            )
        ],
        queries=[spec],
        headline=[EVIL],
    )
