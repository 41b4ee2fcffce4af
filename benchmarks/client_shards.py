"""Whether eight load processes are one client: their percentiles merge exactly, and they start together.

Each round is a closed loop of 8 load processes against the mock LLM server, whose times are drawn from exponential
laws, with one row a request kept. Merged percentiles (p50 to p99.9) of time to first token and of end-to-end latency
are held against those of all rows together: at most the histogram's stated error apart. Start skew is from the common
clock edge to the first send of the process that began last, by the rows; at most 20 ms in the median round. A round
alone says little where cores are shared: a core that is taken away for some milliseconds is in it.

    python benchmarks/client_shards.py [--shards 8] [--rounds 9] [--requests 2000] [--json]     exit code 1 when missed
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import machine
import numpy
import ours
from pyarrow import parquet

from benchhouse.drivers.openai import OpenAI
from benchhouse.experiments.serving.tally import ServingTally
from benchhouse.load.engine import run_load
from benchhouse.load.protocols.text import Generation
from benchhouse.load.shape import Shape
from benchhouse.load.source import Planned, RequestPool
from benchhouse.schema.histogram import RELATIVE_ERROR, Histogram

QUANTILES = (0.5, 0.9, 0.95, 0.99, 0.999)
MOST_SKEW_MS = 20.0
LAWS = {"ttft_ms": 10, "ttft_exp": True, "itl_ms": 2, "itl_exp": True}


def one_round(url: str, shards: int, requests: int, folder: Path) -> dict[str, Any]:
    driver = OpenAI(url, "mock", Generation("completions"))
    asked = SimpleNamespace(as_text=lambda: "a few words", output_tokens=4)
    pool = RequestPool([Planned(asked, driver.request(asked))], 1)
    shape = Shape(concurrency=2 * shards, requests=requests, warmup=0, processes=shards, records=True)
    file = folder / "requests.parquet"
    book = run_load(lambda: driver, pool, shape, lambda: ServingTally(None), records=file)
    if book.failed or book.lost or book.succeeded != requests:
        raise SystemExit(f"{book.succeeded} of {requests} requests went well: {book.details} {book.lost}")
    rows = parquet.read_table(file)
    column = {name: rows[name].to_numpy() for name in ("index", "due_s", "sent_s", "first_output_s", "ended_s")}
    raw = {"ttft": column["first_output_s"] - column["due_s"], "e2e": column["ended_s"] - column["due_s"]}
    found: dict[str, Any] = {"error": {}, "same_counts": True}
    for name, seconds in raw.items():
        values = numpy.rint(seconds * 1e9).astype(numpy.int64)
        merged: Histogram = getattr(book.tally, name).histogram
        exact = numpy.quantile(values, QUANTILES)
        found["error"][name] = max(
            abs(merged.quantile(q) / one - 1) for q, one in zip(QUANTILES, exact.tolist(), strict=True)
        )
        found["same_counts"] &= Histogram(values.tolist()) == merged
    # The window begins at the edge, so `sent_s` counts from it; the requests of a shard are every n-th.
    first = [float(column["sent_s"][column["index"] % shards == shard].min()) * 1e3 for shard in range(shards)]
    return found | {"skew_ms": max(first), "told_ms": book.start_late_ns / 1e6}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shards", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    quiet = machine.slowness()
    rounds: list[dict[str, Any]] = []
    with ours.mock()(**LAWS) as server:
        for number in range(asked.rounds):
            print(f"round {number + 1} of {asked.rounds}", file=sys.stderr, flush=True)
            with tempfile.TemporaryDirectory(prefix="client-shards-") as folder:
                rounds.append(one_round(server.url, asked.shards, asked.requests, Path(folder)))
    skews = [one["skew_ms"] for one in rounds]
    error = {name: max(one["error"][name] for one in rounds) for name in ("ttft", "e2e")}
    found = {
        "shards": asked.shards,
        "cores": len(os.sched_getaffinity(0)),
        "largest_error": error,
        "histogram_error": RELATIVE_ERROR,
        "same_counts": all(one["same_counts"] for one in rounds),
        "skew_ms": {"median": statistics.median(skews), "least": min(skews), "most": max(skews)},
        "told_skew_ms": [round(one["told_ms"], 3) for one in rounds],
        "machine": str(quiet),
    }
    exact = found["same_counts"] and max(error.values()) <= RELATIVE_ERROR
    together = statistics.median(skews) <= MOST_SKEW_MS
    found["passed"] = exact and together
    if asked.json:
        print(json.dumps(found, indent=2))
    else:
        print(quiet)
        print(
            f"percentiles of {asked.shards} merged shards against all rows: ttft {error['ttft']:.5%} and e2e "
            f"{error['e2e']:.5%} apart at most, {RELATIVE_ERROR:.5%} is the histogram's own error; "
            f"{'the same' if found['same_counts'] else 'OTHER'} counts"
        )
        print(
            f"start skew: {statistics.median(skews):.2f} ms in the median of {len(skews)} rounds "
            f"({min(skews):.2f} to {max(skews):.2f}), at most {MOST_SKEW_MS:g} ms; {found['cores']} cores"
        )
        verdict = "passed" if found["passed"] else "missed"
        print(verdict if quiet.quiet else f"{verdict}, on a machine that is not quiet")
    return 0 if found["passed"] else 1


if __name__ == "__main__":
    sys.exit(main())
