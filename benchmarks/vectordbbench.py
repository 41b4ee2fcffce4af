"""Our search load beside VectorDBBench 2.0: one PostgreSQL, one table, one HNSW index, the same queries, 8 at a time.

The table is made once; VectorDBBench sees it through a view, and both only search. Each measures 10 s in a process of
its own and then says recall over all queries. At least 1.1 times the queries a second that it reports, recall equal to
3 digits, at most 15 s from start to end. Rounds alternate; the median counts. VectorDBBench divides by a time in which
its processes still connect, so what its processes counted by themselves is shown as well.

    scripts/install-peers.sh vectordbbench          once, outside the repository
    python benchmarks/vectordbbench.py [--rounds 3] [--seconds 10] [--json]

Exit code 1 when missed, 2 without VectorDBBench or a PostgreSQL with pgvector.
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

LEAST_QPS, MOST_WALL_S, MOST_RECALL_GAP = 1.1, 15.0, 0.0005
VECTORS, QUERIES, DIMENSIONS, K, IN_FLIGHT = 20_000, 1_000, 64, 10, 8
HNSW = {"m": 16, "ef_construction": 100, "ef_search": 64}
TABLE, ITS_TABLE = "benchhouse_figure", "vdbbench_table_test"
OURS, PEER = "benchhouse", "vectordbbench"
CACHE = Path(os.environ.get("BENCH_TEST_CACHE") or Path.home() / ".cache" / "benchhouse-tests")
PEER_HOME = CACHE / "peers" / "vectordbbench"


def driver(endpoint: str) -> Any:
    from benchhouse.drivers.pgvector import PgVector
    from benchhouse.load.protocols.vector import Collection

    return PgVector(endpoint, Collection(TABLE, DIMENSIONS, "l2", "hnsw", HNSW))


def make_data(folder: Path) -> Any:
    """Vectors, and in the folder queries and exact neighbours, in the files that VectorDBBench wants."""
    import numpy
    import pyarrow
    from pyarrow import parquet

    random = numpy.random.default_rng(0)
    vectors = random.standard_normal((VECTORS, DIMENSIONS), dtype=numpy.float32)
    queries = random.standard_normal((QUERIES, DIMENSIONS), dtype=numpy.float32)
    far = (vectors.astype(float) ** 2).sum(axis=1) - 2 * queries.astype(float) @ vectors.T.astype(float)
    truth = numpy.argsort(far, axis=1)[:, :100]
    numpy.savez(folder / "queries.npz", queries=queries, truth=truth[:, :K])
    ids = list(range(QUERIES))
    parquet.write_table(pyarrow.table({"id": ids, "emb": list(queries)}), folder / "test.parquet")
    parquet.write_table(pyarrow.table({"id": ids, "neighbors_id": list(truth)}), folder / "neighbors.parquet")
    parquet.write_table(pyarrow.table({"id": [0], "emb": [vectors[0]]}), folder / "train.parquet")  # is not loaded
    return vectors


def benchhouse(endpoint: str, folder: Path, seconds: float) -> dict[str, float]:
    """In this process: the engine, driver and callers of `vector.search`, on the table that is there."""
    import numpy

    from benchhouse.experiments.vector.search_load import AnswerTally, Searcher
    from benchhouse.experiments.vector.workload import VectorWorkload
    from benchhouse.load.engine import run_load
    from benchhouse.load.source import Planned, RequestPool

    kept = numpy.load(folder / "queries.npz")
    calls = [query[None] for query in kept["queries"]]
    shape = VectorWorkload(concurrency=IN_FLIGHT, duration=seconds, warmup=1.0, k=K)
    pool = RequestPool([Planned(number) for number in range(len(calls))], seed=0)
    book = run_load(lambda: Searcher(driver(endpoint), calls, K, None), pool, shape, AnswerTally)
    if book.failed:
        raise SystemExit(f"{book.failed} searches failed: {book.details}")
    answers = book.tally.kept()
    found = [len(set(ids[0].tolist()) & set(kept["truth"][number].tolist())) / K for number, ids in answers]
    if len(found) < QUERIES:
        raise SystemExit(f"only {len(found)} of {QUERIES} queries were asked: lengthen --seconds")
    qps = book.completed_in_window / seconds
    return {"qps": qps, "own_qps": qps, "recall": statistics.fmean(found)}


def vectordbbench(endpoint: str, folder: Path, seconds: float) -> dict[str, float]:
    """Its own command, in a folder that takes its logs and results."""
    at = urlsplit(endpoint)
    home = Path(tempfile.mkdtemp(dir=folder))
    command = [PEER_HOME / "bin" / "vectordbbench", "pgvectorhnsw", "--skip-drop-old", "--skip-load"]
    command += ["--case-type", "PerformanceCustomDataset", "--custom-case-name", "figure"]
    command += ["--custom-dataset-name", "figure", "--custom-dataset-dir", folder, "--custom-dataset-size", VECTORS]
    command += ["--custom-dataset-dim", DIMENSIONS, "--custom-dataset-metric-type", "L2"]
    command += ["--custom-dataset-file-count", 1, "--custom-dataset-with-gt", "--k", K]
    command += ["--num-concurrency", IN_FLIGHT, "--concurrency-duration", round(seconds)]
    command += ["--m", HNSW["m"], "--ef-construction", HNSW["ef_construction"], "--ef-search", HNSW["ef_search"]]
    command += ["--user-name", "postgres", "--password", "none", "--host", at.hostname, "--port", at.port]
    command += ["--db-name", at.path.strip("/")]
    environment = os.environ | {
        "RESULTS_LOCAL_DIR": str(home / "results"),
        "DATASET_LOCAL_DIR": str(home),
        "LOG_FILE": str(home / "log"),
    }
    done = subprocess.run([*map(str, command)], cwd=home, env=environment, capture_output=True, text=True, check=False)
    said = done.stdout + done.stderr + (home / "log").read_text() if (home / "log").exists() else done.stderr
    results = sorted((home / "results").rglob("*.json"))
    if not results:
        raise SystemExit(f"VectorDBBench left no result (exit code {done.returncode}):\n{said[-3000:]}")
    metrics = json.loads(results[-1].read_text())["results"][0]["metrics"]
    each = set(re.findall(r"(SpawnProcess-\S+).*qps in this process: ([\d.]+)", said))
    return {"qps": metrics["qps"], "own_qps": sum(float(rate) for _, rate in each), "recall": metrics["recall"]}


def measure(endpoint: str, folder: Path, rounds: int, seconds: float) -> dict[str, Any]:
    taken: dict[str, list[dict[str, float]]] = {OURS: [], PEER: []}
    for _ in range(rounds):
        for name, found in taken.items():
            command = [sys.executable, __file__, "--client", name, "--endpoint", endpoint, "--folder", folder]
            began = time.monotonic()
            done = subprocess.run(
                [*map(str, command), "--seconds", str(seconds)], check=True, stdout=subprocess.PIPE, text=True
            )
            found.append(json.loads(done.stdout.splitlines()[-1]) | {"wall_s": time.monotonic() - began})
    ratios = [ours["qps"] / peer["qps"] for ours, peer in zip(taken[OURS], taken[PEER], strict=True)]
    to_own = [ours["qps"] / peer["own_qps"] for ours, peer in zip(taken[OURS], taken[PEER], strict=True)]
    medians = {
        name: {key: statistics.median(each[key] for each in found) for key in found[0]} for name, found in taken.items()
    }
    ratio, wall = statistics.median(ratios), medians[OURS]["wall_s"]
    gap = abs(medians[OURS]["recall"] - medians[PEER]["recall"])
    return {
        "in_flight": IN_FLIGHT,
        "rounds": rounds,
        "load_average": os.getloadavg()[0],
        "clients": medians,
        "qps_ratio": {"median": ratio, "min": min(ratios), "max": max(ratios), "at_least": LEAST_QPS},
        "qps_ratio_to_its_processes": {"median": statistics.median(to_own), "min": min(to_own), "max": max(to_own)},
        "recall_gap": {"value": gap, "at_most": MOST_RECALL_GAP},
        "wall_s": {"value": wall, "at_most": MOST_WALL_S * max(seconds / 10, 1)},
        "passed": ratio >= LEAST_QPS and gap < MOST_RECALL_GAP and wall <= MOST_WALL_S * max(seconds / 10, 1),
    }


def table(found: dict[str, Any]) -> str:
    lines = [
        f"{name:<14} {each['qps']:>7.0f} queries/s ({each['own_qps']:.0f} by its clients' own clocks)  "
        f"recall {each['recall']:.4f}  {each['wall_s']:>6.1f} s from start to end"
        for name, each in found["clients"].items()
    ]
    ratio, own = found["qps_ratio"], found["qps_ratio_to_its_processes"]
    spread = f"{ratio['min']:.3f} to {ratio['max']:.3f}"
    lines += [
        f"queries/s, ours to its: median {ratio['median']:.3f}, {spread}  (at least {LEAST_QPS:g})",
        f"  and to what its processes count themselves: {own['median']:.3f}",
        f"recall apart by {found['recall_gap']['value']:.5f}  (less than {MOST_RECALL_GAP:g})",
        f"ours takes {found['wall_s']['value']:.1f} s  (at most {found['wall_s']['at_most']:g})",
    ]
    return "\n".join([*lines, "passed" if found["passed"] else "MISSED"])


def prepare(endpoint: str, folder: Path) -> None:
    """The table and its index, and the view by which VectorDBBench sees both."""
    import psycopg

    vectors = make_data(folder)
    with psycopg.connect(endpoint, autocommit=True) as connection:
        connection.execute("ALTER SYSTEM SET max_parallel_maintenance_workers = 0")
        connection.execute("ALTER SYSTEM SET maintenance_work_mem = '256MB'")
        connection.execute("SELECT pg_reload_conf()")
    one = driver(endpoint)
    one.open()
    one.create()
    one.ingest(0, vectors, None)
    one.build()
    one.close()
    with psycopg.connect(endpoint, autocommit=True) as connection:
        connection.execute(f"CREATE VIEW {ITS_TABLE} AS SELECT id, vector AS embedding FROM {TABLE}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="Alternating rounds.")
    parser.add_argument("--seconds", type=float, default=10.0, help="Measured time of a client in a round.")
    parser.add_argument("--json", action="store_true", help="Print JSON.")
    for name in ("--client", "--endpoint", "--folder"):  # how it calls itself, for one client
        parser.add_argument(name, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.client:
        client = benchhouse if options.client == OURS else vectordbbench
        print(json.dumps(client(options.endpoint, Path(options.folder), options.seconds)))
        return 0
    if not (PEER_HOME / ".made").exists():
        print("no VectorDBBench: scripts/install-peers.sh vectordbbench", file=sys.stderr)
        return 2
    from benchhouse.recipes.postgres import RECIPE
    from benchhouse.schema.errors import BenchError
    from benchhouse.schema.experiment import ExperimentFailed
    from benchhouse.worker.services import single_server

    with tempfile.TemporaryDirectory(prefix="vectordbbench-") as place:
        try:
            with single_server(RECIPE, Path(place)) as service:
                prepare(service.endpoint, Path(place))
                found = measure(service.endpoint, Path(place), options.rounds, options.seconds)
        except (ExperimentFailed, BenchError) as reason:
            print(f"no PostgreSQL with pgvector: {reason}", file=sys.stderr)
            return 2
    print(json.dumps(found, indent=2) if options.json else table(found))
    return 0 if found["passed"] else 1


if __name__ == "__main__":
    sys.exit(main())
