"""What the load engine costs a search: queries a second of `vector.search` beside a tight loop of the same client.

One FAISS HNSW index (M 16, efConstruction 64, ef 64), in this process. Ours is what the experiment runs: its callers in
threads of the load engine, its tally with all answers for recall. The tight loop is as many threads that call
`index.search` of FAISS and count. Rounds are short, many, and alternate. Neighbours on the machine only ever slow a
round down, so the rate that the fastest tenth of the rounds reached is compared, ours with the tight loop's; the median
of the rounds' ratios is told beside it. At least 0.95 of the tight loop's queries a second, with 1 thread and with 8.

    python benchmarks/vector_overhead.py [--vectors 50000] [--dimensions 128] [--rounds 31] [--seconds 0.5] [--json]

Exit code 1 when missed.
"""

import argparse
import json
import os
import statistics
import sys
import threading
import time
from typing import Any

LEAST = 0.95
THREADS = (1, 8)
K = 10
WARMUP_S = 0.2


def ours(driver: Any, calls: list[Any], threads: int, seconds: float) -> dict[str, float]:
    from benchhouse.experiments.load.engine import run_load
    from benchhouse.experiments.load.source import Planned, Pool
    from benchhouse.experiments.vector.searching import AnswerTally, Searcher
    from benchhouse.experiments.vector.workload import VectorWorkload

    shape = VectorWorkload(concurrency=threads, duration=seconds, warmup=WARMUP_S)
    pool = Pool([Planned(number) for number in range(len(calls))], seed=0)
    book = run_load(lambda: Searcher(driver, calls, K, None), pool, shape, AnswerTally)
    if book.failed:
        raise SystemExit(f"{book.failed} searches failed: {book.details}")
    return {
        "qps": book.answers_per_s(open_loop=False),
        "cpu_us": book.cpu_all_ns / book.succeeded / 1e3,  # of the window
        "answers": len(book.tally.answers),
    }


def tight_loop(index: Any, calls: list[Any], threads: int, seconds: float) -> dict[str, float]:
    import faiss

    counts = [0] * threads
    begin = time.monotonic() + WARMUP_S
    end = begin + seconds

    def work(number: int) -> None:
        faiss.omp_set_num_threads(1)
        search, count, size, at = index.search, 0, len(calls), number * len(calls) // threads
        while time.monotonic() < begin:
            search(calls[at % size], K)
            at += 1
        while time.monotonic() < end:
            search(calls[at % size], K)
            at += 1
            count += 1
        counts[number] = count

    crew = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
    cpu = time.process_time()
    for thread in crew:
        thread.start()
    for thread in crew:
        thread.join()
    taken = time.monotonic() - begin
    cpu = time.process_time() - cpu
    return {"qps": (sum(counts) or 1) / taken, "cpu_us": cpu / (sum(counts) * (1 + WARMUP_S / seconds) or 1) * 1e6}


def build(vectors: int, dimensions: int) -> tuple[Any, list[Any]]:
    from benchhouse.drivers.faiss import Faiss
    from benchhouse.experiments.vector.data import Synthetic
    from benchhouse.schema.vector import Collection

    data = Synthetic(dimensions=dimensions).load(vectors, 10_000, None)  # type: ignore[arg-type]
    options = {"m": 16, "ef_construction": 64, "ef_search": 64}
    driver = Faiss("", Collection("overhead", dimensions, "l2", "hnsw", options, threads=os.cpu_count() or 1))
    driver.open()
    driver.create()
    driver.ingest(0, data.vectors, None)
    driver.build()
    driver._collection = Collection("overhead", dimensions, "l2", "hnsw", options, threads=1)
    return driver, [data.queries[number : number + 1] for number in range(len(data.queries))]


def measure(vectors: int, dimensions: int, rounds: int, seconds: float) -> dict[str, Any]:
    driver, calls = build(vectors, dimensions)
    found: dict[str, Any] = {"vectors": vectors, "dimensions": dimensions, "load_average": os.getloadavg()[0]}
    for threads in THREADS:
        taken: dict[str, list[dict[str, float]]] = {"ours": [], "tight": []}
        for number in range(rounds):
            for name in ("ours", "tight") if number % 2 else ("tight", "ours"):
                taken[name].append(
                    ours(driver, calls, threads, seconds)
                    if name == "ours"
                    else tight_loop(driver._index, calls, threads, seconds)
                )
        fast = {name: statistics.quantiles([each["qps"] for each in row], n=10)[-1] for name, row in taken.items()}
        ratios = [a["qps"] / b["qps"] for a, b in zip(taken["ours"], taken["tight"], strict=True)]
        costs = [a["cpu_us"] - b["cpu_us"] for a, b in zip(taken["ours"], taken["tight"], strict=True)]
        found[f"threads_{threads}"] = {
            "qps": fast["ours"],
            "tight_qps": fast["tight"],
            "ratio": {"fast": fast["ours"] / fast["tight"], "median": statistics.median(ratios), "at_least": LEAST},
            "extra_cpu_us_per_query": statistics.median(costs),
        }
    found["passed"] = all(found[f"threads_{threads}"]["ratio"]["fast"] >= LEAST for threads in THREADS)
    return found


def table(found: dict[str, Any]) -> str:
    lines = [f"FAISS HNSW, {found['vectors']} x {found['dimensions']}, load average {found['load_average']:.1f}"]
    for threads in THREADS:
        each = found[f"threads_{threads}"]
        ratio = each["ratio"]
        lines.append(
            f"{threads} threads: {each['qps']:>7.0f} queries/s, tight loop {each['tight_qps']:>7.0f}; ratio "
            f"{ratio['fast']:.3f} (at least {LEAST:g}), median of the rounds {ratio['median']:.3f}; "
            f"{each['extra_cpu_us_per_query']:+.1f} us CPU a query"
        )
    return "\n".join([*lines, "passed" if found["passed"] else "MISSED"])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vectors", type=int, default=50_000)
    parser.add_argument("--dimensions", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=31, help="Alternating rounds, at least 10.")
    parser.add_argument("--seconds", type=float, default=0.5, help="Measured time of each in a round.")
    parser.add_argument("--json", action="store_true", help="Print JSON.")
    options = parser.parse_args()
    found = measure(options.vectors, options.dimensions, max(10, options.rounds), options.seconds)
    print(json.dumps(found, indent=2) if options.json else table(found))
    return 0 if found["passed"] else 1


if __name__ == "__main__":
    sys.exit(main())
