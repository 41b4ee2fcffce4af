"""How much load one client can offer: requests a second, closed loop, against a mock server without any delay.

Each round runs ours and every installed peer in turn, streamed completions of 32 tokens, at 1, 32 and 256 in flight.
Bars: at least 5 times `vllm bench serve` and 15 times AIPerf and guidellm at each, 0.9 of perf_analyzer at 32 (it hangs
at 256); at most 3 CPU-seconds per 10,000 requests with a row kept of each, at most 60 MB for the load process, and the
server really sees 256 at a time. Ours uses two load processes at 32 and 256. Rates are each tool's own for the time
under load; the median of the rounds counts.

    python benchmarks/serving_capacity.py [--rounds 3] [--peer NAME]... [--json]     exit code 1 when missed
"""

import argparse
import json
import os
import statistics
import sys
from collections import defaultdict
from dataclasses import replace
from typing import Any

import ours
import peers

CONCURRENCIES = (1, 32, 256)
LEAST = {"vllm": 5.0, "aiperf": 15.0, "guidellm": 15.0, "perf_analyzer": 0.9}
REQUESTS = {"benchhouse": 10_000, "perf_analyzer": 10_000, "vllm": 2_000, "aiperf": 600, "guidellm": 400}
MOST_CPU_S = 3.0
MOST_MB = 60.0


def barred(peer: str, concurrency: int) -> bool:
    """Whether a bar holds for this peer there."""
    return peer != "perf_analyzer" or concurrency == 32


def measure(rounds: int, chosen: list[str]) -> dict[str, Any]:
    rates: dict[int, dict[str, list[float]]] = {at: defaultdict(list) for at in CONCURRENCIES}
    cpu_s: list[float] = []
    peak_mb = 0.0
    with ours.mock()() as server:
        work = peers.Work(server.url, "mock", peers.tiny_tokenizer(), 1, 1)
        for number in range(rounds):
            for concurrency in CONCURRENCIES:
                for tool in ("benchhouse", *chosen):
                    print(f"round {number + 1} of {rounds}: {tool} at {concurrency}", file=sys.stderr, flush=True)
                    asked = replace(work, concurrency=concurrency, requests=REQUESTS[tool])
                    if tool == "benchhouse":
                        processes = 1 if concurrency == 1 else min(2, os.cpu_count() or 1)
                        trial = ours.closed_loop(asked, records=True, processes=processes)
                        rates[concurrency][tool].append(trial.summary().requests_per_s)
                        cpu_s.append(trial.cpu_s * 10_000 / asked.requests)
                        peak_mb = max(peak_mb, trial.cost.peak_mb)
                    elif not (tool == "perf_analyzer" and concurrency == 256):
                        rates[concurrency][tool].append(peers.run(tool, asked)[0].requests_per_s)
    with ours.mock()(ttft_ms=100) as server:
        ours.closed_loop(replace(work, url=server.url, concurrency=256, requests=1024))
        seen = server.stats()["max_concurrent"]
    medians = {at: {tool: statistics.median(found) for tool, found in row.items()} for at, row in rates.items()}
    ratios = {
        at: {tool: row["benchhouse"] / rate for tool, rate in row.items() if tool != "benchhouse"}
        for at, row in medians.items()
    }
    met = all(ratio >= LEAST[tool] for at, row in ratios.items() for tool, ratio in row.items() if barred(tool, at))
    passed = met and statistics.median(cpu_s) <= MOST_CPU_S and peak_mb <= MOST_MB and seen == 256
    return {
        "requests_per_s": medians,
        "ratio": ratios,
        "cpu_s_per_10k": statistics.median(cpu_s),
        "peak_mb": peak_mb,
        "seen_by_server_at_256": seen,
        "rounds": rounds,
        "passed": passed,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--peer", action="append", choices=sorted(LEAST), help="all that are installed when not given")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    found = measure(asked.rounds, asked.peer if asked.peer is not None else peers.installed())
    if asked.json:
        print(json.dumps(found, indent=2))
    else:
        for at, row in found["requests_per_s"].items():
            for tool, rate in row.items():
                ratio = found["ratio"][at].get(tool)
                bar = f"{ratio:6.1f} x" + (f"  (at least {LEAST[tool]:g})" if barred(tool, at) else "") if ratio else ""
                print(f"{at:4d} in flight  {tool:14s} {rate:8.0f} requests/s  {bar}")
        print(f"CPU per 10,000 requests: {found['cpu_s_per_10k']:.2f} s (at most {MOST_CPU_S:g})")
        print(f"load process: {found['peak_mb']:.0f} MB (at most {MOST_MB:g})")
        print(f"the server saw {found['seen_by_server_at_256']} of 256 requests at a time")
        print("passed" if found["passed"] else "missed")
    sys.exit(not found["passed"])


if __name__ == "__main__":
    main()
