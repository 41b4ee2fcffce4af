"""What the load engine costs a search: queries a second of `vector.search` beside a tight loop of the same client.

One FAISS HNSW index (M 16, efConstruction 64, ef 64), in this process. Ours is what the experiment runs: its callers in
threads of the load engine, its tally with all answers for recall. The tight loop is as many threads that call
`index.search` of FAISS and count. Rounds are short, many, and alternate. Neighbours on the machine only ever slow a
round down, so the rate that the fastest tenth of the rounds reached is compared, ours with the tight loop's; the median
of the rounds' ratios is told beside it. At least 0.95 of the tight loop's queries a second, with 1 thread and with 8.

Two more loops tell where a difference comes from. `stamped` is the tight loop that also reads the clock before and
after each search and keeps answer and stamps in a list: no measurement can do less. `driver` is that through our driver
instead of FAISS's index: it prepares single queries, and hands them to the library below FAISS's own Python. A bar that
even `stamped` misses is told as the client's, and is missed all the same: threads that share an interpreter wait for
each other longer, the more each does between two searches.

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
from collections.abc import Callable
from typing import Any

LEAST = 0.95
THREADS = (1, 8)
K = 10
WARMUP_S = 0.2


def ours(driver: Any, calls: list[Any], threads: int, seconds: float) -> dict[str, float]:
    from benchhouse.experiments.vector.search_load import AnswerTally, Searcher
    from benchhouse.experiments.vector.workload import VectorWorkload
    from benchhouse.load.engine import run_load
    from benchhouse.load.source import Planned, RequestPool

    shape = VectorWorkload(concurrency=threads, duration=seconds, warmup=WARMUP_S)
    pool = RequestPool([Planned(number) for number in range(len(calls))], seed=0)
    book = run_load(lambda: Searcher(driver, calls, K, None), pool, shape, AnswerTally)
    if book.failed:
        raise SystemExit(f"{book.failed} searches failed: {book.details}")
    return {
        "qps": book.answers_per_s(open_loop=False),
        "cpu_us": book.cpu_all_ns / book.succeeded / 1e3,  # of the window
        "answers": len(book.tally.answers),
    }


def count(search: Any, calls: list[Any], at: int, until: int) -> int:
    size, first, clock = len(calls), at, time.monotonic_ns
    while clock() < until:
        search(calls[at % size], K)
        at += 1
    return at - first


def stamp(search: Any, calls: list[Any], at: int, until: int) -> int:
    size, first, clock, now = len(calls), at, time.monotonic_ns, 0
    made: list[tuple[int, int, Any]] = []
    while now < until:
        sent = clock()
        answer = search(calls[at % size], K)
        now = clock()
        made.append((sent, now, answer))
        at += 1
    return at - first


def stamp_prepared(search: Any, calls: list[Any], at: int, until: int) -> int:
    """As `stamp`, of what a driver prepared: it takes the number of a call."""
    size, first, clock, now = len(calls), at, time.monotonic_ns, 0
    made: list[tuple[int, int, Any]] = []
    while now < until:
        sent = clock()
        answer = search(at % size)
        now = clock()
        made.append((sent, now, answer))
        at += 1
    return at - first


def tight_loop(
    loop: Callable[..., int], make: Callable[[], Any], calls: list[Any], threads: int, seconds: float
) -> dict[str, float]:
    """That loop in so many threads; `make` gives each of them what it searches with."""
    import faiss

    counts = [0] * threads
    begin = time.monotonic_ns() + round(WARMUP_S * 1e9)
    end = begin + round(seconds * 1e9)

    def work(number: int) -> None:
        faiss.omp_set_num_threads(1)
        at, search = number * len(calls) // threads, make()
        at += loop(search, calls, at, begin)
        counts[number] = loop(search, calls, at, end)

    crew = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
    cpu = time.process_time()
    for thread in crew:
        thread.start()
    for thread in crew:
        thread.join()
    taken = (time.monotonic_ns() - begin) / 1e9
    cpu = time.process_time() - cpu
    return {"qps": (sum(counts) or 1) / taken, "cpu_us": cpu / (sum(counts) * (1 + WARMUP_S / seconds) or 1) * 1e6}


def build(vectors: int, dimensions: int) -> tuple[Any, list[Any]]:
    from benchhouse.drivers.faiss import Faiss
    from benchhouse.experiments.vector.data import Synthetic
    from benchhouse.load.protocols.vector import Collection

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
    found: dict[str, Any] = {"vectors": vectors, "dimensions": dimensions, "load_average": os.getloadavg()[0]}
    driver, calls = build(vectors, dimensions)
    loops: dict[str, Callable[[int], dict[str, float]]] = {
        "tight": lambda threads: tight_loop(count, lambda: driver._index.search, calls, threads, seconds),
        "stamped": lambda threads: tight_loop(stamp, lambda: driver._index.search, calls, threads, seconds),
        "driver": lambda threads: tight_loop(stamp_prepared, lambda: driver.prepare(calls, K), calls, threads, seconds),
        "ours": lambda threads: ours(driver, calls, threads, seconds),
    }
    for threads in THREADS:
        taken: dict[str, list[dict[str, float]]] = {name: [] for name in loops}
        for number in range(rounds):
            for name in list(loops)[:: 1 if number % 2 else -1]:
                taken[name].append(loops[name](threads))
        fast = {name: statistics.quantiles([each["qps"] for each in row], n=10)[-1] for name, row in taken.items()}
        found[f"threads_{threads}"] = {
            name: {
                "qps": fast[name],
                "ratio": fast[name] / fast["tight"],
                "median_ratio": statistics.median(_ratios(taken, name, "qps")),
                "cpu_us_per_query": statistics.median([each["cpu_us"] for each in row]),
            }
            for name, row in taken.items()
        } | {"at_least": LEAST, "met": fast["ours"] / fast["tight"] >= LEAST}
    found["passed"] = all(found[f"threads_{threads}"]["met"] for threads in THREADS)
    return found


def _ratios(taken: dict[str, list[dict[str, float]]], name: str, what: str) -> list[float]:
    return [mine[what] / theirs[what] for mine, theirs in zip(taken[name], taken["tight"], strict=True)]


def table(found: dict[str, Any]) -> str:
    lines = [f"FAISS HNSW, {found['vectors']} x {found['dimensions']}, load average {found['load_average']:.1f}"]
    for threads in THREADS:
        each = found[f"threads_{threads}"]
        for name in ("tight", "stamped", "driver", "ours"):
            one = each[name]
            lines.append(
                f"{threads} threads, {name:<8} {one['qps']:>7.0f} queries/s, {one['ratio']:.3f} of the tight loop's "
                f"(median of the rounds {one['median_ratio']:.3f}); {one['cpu_us_per_query']:.1f} us CPU a query"
            )
        words = f"{'ok    ' if each['met'] else 'MISSED'} {each['ours']['ratio']:.3f}, at least {LEAST:g}"
        if not each["met"] and found["load_average"] > (os.cpu_count() or 1):
            words += "; others had the cores, so that nobody can tell whose it is"
        elif not each["met"] and each["stamped"]["ratio"] < LEAST:
            words += (
                f"; the bare loop with stamps {each['stamped']['ratio']:.3f}, so that it is the client's, on this CPU"
            )
        lines.append(words)
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
