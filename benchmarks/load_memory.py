"""Whether memory grows with the number of requests: the load process after a million of them, against ten thousand.

Closed loop of 32 against the mock server, one token each, histograms only. Bar: growth below 50 MB.

    python benchmarks/load_memory.py [--requests 1000000] [--json]     exit code 1 when missed
"""

import argparse
import json
import sys
from typing import Any

import ours

MOST_GROWTH_MB = 50.0
FEW = 10_000


def peak_mb(url: str, requests: int) -> float:
    workload = {
        "concurrency": 32,
        "requests": requests,
        "warmup": 0,
        "prompts": {"prompt_tokens": 16, "output_tokens": 1, "distinct": 10_000},
    }
    return ours.run(url, workload, timeout_s=3600).cost.peak_mb


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=1_000_000)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    with ours.mock()() as server:
        few = peak_mb(server.url, FEW)
        many = peak_mb(server.url, asked.requests)
    found: dict[str, Any] = {
        "requests": asked.requests,
        "peak_mb": many,
        "peak_mb_of_10k": few,
        "growth_mb": many - few,
        "passed": many - few < MOST_GROWTH_MB,
    }
    if asked.json:
        print(json.dumps(found, indent=2))
    else:
        print(f"load process: {few:.1f} MB after {FEW:,} requests, {many:.1f} MB after {asked.requests:,}")
        print(f"growth {many - few:.1f} MB (below {MOST_GROWTH_MB:g}): {'passed' if found['passed'] else 'missed'}")
    sys.exit(not found["passed"])


if __name__ == "__main__":
    main()
