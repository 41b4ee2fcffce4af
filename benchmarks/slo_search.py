"""Find the knee of simulated M/M/c queues by search and by grid; exit 1 when a bar is missed.

python benchmarks/slo_search.py
python benchmarks/slo_search.py --runs 20 --seed 7
python benchmarks/slo_search.py --json > slo_search.json

Bars, for every case: 9 of 10 searches within 3% of the analytic knee, intervals that cover it in 90% of the runs, at
most a third of the grid's requests. The grid has 12 loads in equal ratios over a factor of two, the tightest bracket
that doubling gives. Each load gets as many requests as one trial at the knee needs to tell the knee to 3% at 95%
confidence: the slope of the curve is taken from theory and the clumping of slow requests from a long simulation, both
for free. Warm-up requests count on both sides; the grid does not pay for finding its bracket.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import NDArray

from benchhouse.analysis.slo_search import RequestBatch, Search

Vector = NDArray[np.float64]

PRECISION = 0.03
WARMUP_S = 20.0
_GRID_POINTS = 12
_LANES = 96  # queues that are simulated side by side


@dataclass(frozen=True)
class Case:
    """`servers` servers of 10 requests/s each; the `quantile` of the response time is to stay below `limit_s`."""

    servers: int
    quantile: float
    limit_s: float
    rate: float = 10.0

    @property
    def share(self) -> float:
        return 1.0 - self.quantile


CASES = (
    Case(1, 0.95, 1.5),
    Case(1, 0.99, 2.0),
    Case(4, 0.95, 0.5),
    Case(4, 0.99, 0.8),
    Case(16, 0.95, 0.35),
    Case(16, 0.99, 0.6),
)


@dataclass(frozen=True)
class Measured:
    """Errors are relative to the analytic knee; requests are medians over the runs, warm-up included."""

    servers: int
    quantile: float
    limit_s: float
    knee: float
    runs: int
    error_median: float
    error_p90: float
    error_max: float
    bias: float
    covered: int
    missed_below: int
    missed_above: int
    probes: float
    requests: float
    grid_requests: float
    statuses: dict[str, int]

    @property
    def ratio(self) -> float:
        return self.requests / self.grid_requests

    @property
    def passed(self) -> bool:
        return self.error_p90 <= PRECISION and self.covered >= 0.9 * self.runs and self.ratio <= 1.0 / 3.0


def share_over(load: float, case: Case) -> float:
    """P(response > limit) of an M/M/c queue, by Erlang's C."""
    c, offered = case.servers, load / case.rate
    if offered >= c:
        return 1.0
    inverse = 1.0
    for k in range(1, c + 1):
        inverse = 1.0 + inverse * k / offered
    blocked = 1.0 / inverse
    waits = blocked / (1.0 - offered / c * (1.0 - blocked))
    spare, t = c - 1.0 - offered, case.rate * case.limit_s
    late = t if abs(spare) < 1e-9 else -math.expm1(-t * spare) / spare
    return math.exp(-t) * (1.0 + waits * late)


def true_knee(case: Case) -> float:
    low, high = 1e-9, case.servers * case.rate
    for _ in range(100):
        middle = (low + high) / 2.0
        low, high = (middle, high) if share_over(middle, case) <= case.share else (low, middle)
    return low


def simulate(
    case: Case, loads: Sequence[float], requests: Sequence[int], generators: Sequence[np.random.Generator]
) -> list[tuple[Vector, Vector, int]]:
    """One queue for each load, from empty: in each measured second, requests due and those over; and all sent."""
    sizes = [int(n + WARMUP_S * x + 6.0 * math.sqrt(WARMUP_S * x)) for n, x in zip(requests, loads, strict=True)]
    due, spent = np.zeros((max(sizes), len(sizes))), np.zeros((max(sizes), len(sizes)))
    for lane, (size, load, generator) in enumerate(zip(sizes, loads, generators, strict=True)):
        due[:size, lane] = np.cumsum(generator.exponential(1.0 / load, size))
        spent[:size, lane] = generator.exponential(1.0 / case.rate, size)
    _queue(due, spent, case.servers)
    counted = []
    for lane, size in enumerate(sizes):
        first = int(np.searchsorted(due[:size, lane], WARMUP_S))
        measured = slice(first, min(size, first + requests[lane]))
        second = (due[measured, lane] - WARMUP_S).astype(np.int64)
        late = (spent[measured, lane] > case.limit_s).astype(np.float64)
        over = np.bincount(second, weights=late).astype(np.float64)
        counted.append((np.bincount(second).astype(np.float64), over, measured.stop))
    return counted


def _queue(due: Vector, spent: Vector, servers: int) -> None:
    """Turns service times into response times, in place: first come, first served, by the server that is free first."""
    if servers == 1:
        work = np.cumsum(spent, axis=0)
        spent[:] = work + np.maximum.accumulate(due - (work - spent), axis=0) - due
        return
    free = np.zeros((due.shape[1], servers))
    flat, base = free.ravel(), np.arange(due.shape[1]) * servers
    for arrival, time in zip(due, spent, strict=True):
        server = free.argmin(axis=1) + base
        end = np.maximum(flat[server], arrival) + time
        flat[server] = end
        np.subtract(end, arrival, out=time)


def search_all(case: Case, knee: float, runs: int, seed: int) -> tuple[list[Search], Vector]:
    """Searches that start anywhere from a tenth to one and a half of the knee; and the requests that each sent."""
    key = [seed, case.servers, round(1000 * case.quantile)]
    starts = knee * np.exp(np.random.default_rng(key).uniform(math.log(0.1), math.log(1.5), runs))
    searches = [Search([case.share], float(start), precision=PRECISION) for start in starts]
    generators = [np.random.default_rng([*key, run]) for run in range(runs)]
    sent = np.zeros(runs)
    while True:
        probes = [(run, probe) for run, search in enumerate(searches) if (probe := search.next())]
        if not probes:
            return searches, sent
        probes.sort(key=lambda item: item[1].requests)  # lanes of about the same length waste least
        for start in range(0, len(probes), _LANES):
            block = probes[start : start + _LANES]
            loads, requests = [probe.load for _, probe in block], [probe.requests for _, probe in block]
            counted = simulate(case, loads, requests, [generators[run] for run, _ in block])
            for (run, probe), (n, over, all_sent) in zip(block, counted, strict=True):
                batches = [RequestBatch(int(a), (int(b),)) for a, b in zip(n, over, strict=True)]
                searches[run].tell(probe.load, batches, sum(batch.n for batch in batches) / len(batches))
                sent[run] += all_sent


def grid_requests(case: Case, knee: float) -> float:
    """All requests of the grid, as the top of this file defines it; the same for every seed of the searches."""
    blocks, each, over = 8, 40_000, list[float]()
    for block in range(blocks):
        generators = [np.random.default_rng([case.servers, block, lane]) for lane in range(_LANES)]
        counted = simulate(case, [knee] * _LANES, [each] * _LANES, generators)
        over += [float(lane_over.sum()) for _, lane_over, _ in counted]
    dispersion = float(np.var(over, ddof=1)) / (each * case.share * case.quantile)
    steepness = math.log(share_over(1.001 * knee, case) / share_over(0.999 * knee, case)) / 0.002 / case.quantile
    a_point = dispersion * case.quantile / case.share * (1.96 / (PRECISION * steepness)) ** 2
    warmup = WARMUP_S * sum(knee * 2.0 ** (i / (_GRID_POINTS - 1) - 0.5) for i in range(_GRID_POINTS))
    return float(_GRID_POINTS * a_point + warmup)


def measure(case: Case, runs: int, seed: int) -> Measured:
    knee = true_knee(case)
    searches, sent = search_all(case, knee, runs, seed)
    found = [search.result() for search in searches]
    error = np.array([result.knee / knee - 1.0 for result in found])
    statuses = [result.status for result in found]
    return Measured(
        servers=case.servers,
        quantile=case.quantile,
        limit_s=case.limit_s,
        knee=knee,
        runs=runs,
        error_median=float(np.median(np.abs(error))),
        error_p90=float(np.quantile(np.abs(error), 0.9)),
        error_max=float(np.abs(error).max()),
        bias=float(error.mean()),
        covered=sum(result.low <= knee <= result.high for result in found),
        missed_below=sum(result.high < knee for result in found),
        missed_above=sum(result.low > knee for result in found),
        probes=float(np.median([result.probes for result in found])),
        requests=float(np.median(sent)),
        grid_requests=grid_requests(case, knee),
        statuses={status: statuses.count(status) for status in sorted(set(statuses))},
    )


def _show(row: Measured) -> str:
    flag = "" if row.passed else "  MISSED"
    case = f"M/M/{row.servers:<3} p{100 * row.quantile:g} < {row.limit_s:g} s  knee {row.knee:7.2f}/s"
    error = f"error median {row.error_median:.2%} p90 {row.error_p90:.2%} max {row.error_max:.2%} bias {row.bias:+.2%}"
    cover = f"covered {row.covered}/{row.runs} (-{row.missed_below} +{row.missed_above})"
    cost = f"requests {row.requests:,.0f} of {row.grid_requests:,.0f} ({row.ratio:.2f}), probes {row.probes:g}"
    return f"{case}  {error}  {cover}  {cost}  {row.statuses}{flag}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=100, help="searches for each case (default 100)")
    parser.add_argument("--seed", type=int, default=1, help="seed of queues and first guesses (default 1)")
    parser.add_argument("--json", action="store_true", help="print rows as JSON")
    parser.add_argument(
        "--case", type=int, action="append", choices=range(len(CASES)), help="only this case; repeatable"
    )
    options = parser.parse_args()
    rows = []
    for index in options.case or range(len(CASES)):
        rows.append(measure(CASES[index], options.runs, options.seed))
        print(_show(rows[-1]), file=sys.stderr if options.json else sys.stdout, flush=True)
    if options.json:
        print(json.dumps([asdict(row) | {"ratio": row.ratio, "passed": row.passed} for row in rows], indent=1))
    return 0 if all(row.passed for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
