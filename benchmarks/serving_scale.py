"""Whether certified numbers hold with hundreds and thousands of streams, by the mock servers' own logs.

Each cell of a grid is a closed loop of so many streams. For the requests of the measured window, mean, p50, p90 and p99
of ttft, itl, tpot and e2e are held against what the servers logged for the same requests. A figure that the engine
calls valid must lie within its own bound of the log: not one may be outside. Figures that a late client can have
changed are refused; of the cells within the limits of the engine on this machine at most 5% may be. A log is no truth
where the server's TCP did not send at once what was written, as too much was not acknowledged: such cells say so, and
are not held against it.

The first cells are the bars: one load process, 50 tokens/s a stream, ttft and itl p99 within 1 ms at 1,000 streams and
2 ms at 2,000, on four cores or more; on two cores 256 and 512 streams within 1 ms. On eight cores or more, four load
processes carry 10,000 streams within 2 ms of ttft p99; on fewer they are refused. CPU of one event at 1,000 streams: at
most 6 us; beside it that of `epoll_client.c`, which parses and measures nothing. CPU of 10,000 requests of 32 tokens
with a row of each kept: at most 1.5 s. The installed peers get the first cell too: what they say, against the log.

    python benchmarks/serving_scale.py [--seconds 4] [--grid small|full|none] [--busy N] [--peer NAME]... [--json]
    python benchmarks/serving_scale.py --limits    the table of how-to/trust-a-serving-number.md, and nothing else

Exit code 1 when missed.
"""

import argparse
import itertools
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import machine
import numpy
import ours
import peers
import serving_truth

from benchhouse.drivers.openai import OpenAI
from benchhouse.experiments.serving.tally import ServingTally
from benchhouse.load.certificate import certify
from benchhouse.load.endpoint import EndpointServers
from benchhouse.load.engine import run_load
from benchhouse.load.load_record import LoadRecord
from benchhouse.load.protocols.text import Generation
from benchhouse.load.shape import ERROR_LIMIT_S, ERROR_SHARE, Shape
from benchhouse.load.source import Planned, RequestPool
from benchhouse.load.streams import figures

STATS = {"mean": None, "p50": 50, "p90": 90, "p99": 99}
TIMES = ("ttft", "itl", "tpot", "e2e")
LEAST_REQUESTS = 15  # the log has the same ones, so that percentiles of few do
MOST_REFUSED = 0.05
MOST_HELD = 0.001  # of the answers, of which a part left later than the log says
MOST_EVENT_US, MOST_REQUESTS_S = 6.0, 1.5
CORES = len(os.sched_getaffinity(0))


@dataclass(frozen=True)
class Cell:
    """One load, and how far its p99 of ttft and itl may be off; 0 where only its own bounds judge it."""

    streams: int
    ttft_ms: float = 50
    itl_ms: float = 20
    tokens: int = 64
    merge: int = 1  # tokens in one event
    in_step: bool = False
    processes: int = 1
    servers: int = 1
    most_ms: float = 0.0
    refused: bool = False  # whether it must be
    within: bool = False  # the limits of the engine on this machine

    def __str__(self) -> str:
        step = ", in step" if self.in_step else ""
        merged = f", {self.merge} a chunk" if self.merge > 1 else ""
        many = f", {self.processes} processes" if self.processes > 1 else ""
        return f"{self.streams} streams, ttft {self.ttft_ms:g}, itl {self.itl_ms:g}{merged}{step}{many}"


def bars() -> Iterator[Cell]:
    if CORES < 4:
        yield from (Cell(streams, most_ms=1.0, within=True) for streams in (256, 512))
    else:
        yield from (Cell(1000, most_ms=1.0, within=True), Cell(2000, most_ms=2.0, within=True))
    enough = CORES >= 8
    yield Cell(10_000, processes=4, servers=4, most_ms=2.0 * enough, refused=not enough, within=enough)


def grid(size: str) -> Iterator[Cell]:
    """The limits are about 25,000 events a second for each core beyond that of the server."""
    streams = (1, 16, 64, 256, 1000, 4000, 10_000) if size == "full" else (1, 64, 256)
    gaps = (1, 5, 20, 100) if size == "full" else (5, 20)
    waits = (5, 50, 500, 2000) if size == "full" else (5, 500)
    for number, ttft, itl, merge, in_step in itertools.product(streams, waits, gaps, (1, 20), (False, True)):
        rate = number / itl * 1e3 / merge
        yield Cell(number, ttft, itl, 40, merge, in_step, within=rate <= 12_500 * max(CORES - 1, 1))


def limits(seconds: float) -> None:
    """Up to how many streams of 50 tokens/s figures hold on this machine, beside the server: a table in Markdown."""
    print(
        f"| streams, {CORES} cores | processes | ttft p99 off by | itl p99 off by | their bounds | CPU of a process | |"
    )
    print("|---|---|---|---|---|---|---|")
    for streams, processes in ((64, 1), (256, 1), (512, 1), (1000, 1), (1000, 2), (2000, 1), (2000, 2), (4000, 2)):
        cell = Cell(streams, processes=processes)
        row = judge(cell, *offer(cell, seconds, 0))
        errors, bounds = ([f"{tail[name]:.2f}" for tail in row["tails"]] for name in ("error_ms", "bound_ms"))
        invalid = ", ".join(tail["figure"] for tail in row["tails"] if not tail["valid"])
        verdict = f"{invalid} INVALID" if invalid else "holds"
        verdict += ", TCP held tokens back" if row["held"] > MOST_HELD else ""
        off = " | ".join(f"{error} ms" for error in errors)
        print(
            f"| {streams:,} | {processes} | {off} | {' and '.join(bounds)} ms | {row['cpu_share']:.0%} | {verdict} |",
            flush=True,
        )


def offer(cell: Cell, seconds: float, busy: int) -> tuple[LoadRecord, list[Any], Shape]:
    """The book of the load, and the servers' logs of the requests of its window."""
    with ExitStack() as stack:
        mocks = [
            stack.enter_context(ours.mock()(ttft_ms=cell.ttft_ms, itl_ms=cell.itl_ms, merge=cell.merge))
            for _ in range(cell.servers)
        ]
        for _ in range(busy):
            burner = stack.enter_context(subprocess.Popen([sys.executable, "-S", "-c", "while True: pass"]))
            stack.callback(burner.kill)
        driver = OpenAI(mocks[0].url, "mock", Generation("completions"))
        item = SimpleNamespace(as_text=lambda: "a few words", output_tokens=cell.tokens)
        takes_s = (cell.ttft_ms + cell.itl_ms * cell.tokens) / 1e3
        shape = Shape(
            concurrency=cell.streams,
            duration=max(seconds, 1.5 * takes_s, LEAST_REQUESTS * takes_s / cell.streams),
            warmup=0 if cell.in_step else 2 * min(takes_s, 1.0) + 0.2,
            processes=cell.processes,
        )
        pool = RequestPool([Planned(item, driver.request(item))], 1)
        servers = EndpointServers(tuple(mock.url for mock in mocks))
        book = run_load(lambda: driver, pool, shape, lambda: ServingTally(None), servers=servers)
        rows = [row for mock in mocks for row in mock.truth()]
    # The same requests by their order: near the edges of the window the clock would choose others.
    measured = sorted(rows, key=lambda row: row.received_ns)[book.unmeasured : book.unmeasured + book.sent]
    return book, [row for row in measured if row.outcome == "length"], shape


def logged(rows: list[Any]) -> dict[str, Any]:
    """The same times in the servers' logs, in nanoseconds."""
    return {
        "ttft": numpy.array([row.felt_ttft_ns for row in rows]),
        "itl": numpy.concatenate([numpy.diff(row.event_ns) for row in rows]),
        "tpot": numpy.array([(row.last_ns - row.first_ns) / (row.output_tokens - 1) for row in rows]),
        "e2e": numpy.array([row.end_ns - row.received_ns for row in rows]),
    }


def judge(cell: Cell, book: LoadRecord, rows: list[Any], shape: Shape) -> dict[str, Any]:
    """Each figure: its error by the log, its bound, and whether the engine calls it valid."""
    truth, found = logged(rows), []
    certificate = certify(book, shape)
    for name in TIMES:
        stream = getattr(book.tally, name)
        measured, bounds = figures(stream.histogram), stream.bounds_ns()
        for stat, percent in STATS.items():
            true = truth[name].mean() if percent is None else numpy.percentile(truth[name], percent)
            taken = max(ERROR_LIMIT_S * 1e9, ERROR_SHARE * measured[stat])
            found.append(
                {
                    "figure": f"{name}.{stat}",
                    "value_ms": measured[stat] / 1e6,
                    "error_ms": float(measured[stat] - true) / 1e6,
                    "bound_ms": bounds[stat] / 1e6,
                    "valid": certificate.holds and bounds[stat] <= taken,
                }
            )
    held = sum(row.held > 0 for row in rows) / max(len(rows), 1)
    wrong = [row for row in found if row["valid"] and abs(row["error_ms"]) > row["bound_ms"] and held <= MOST_HELD]
    tails = [row for row in found if row["figure"] in ("ttft.p99", "itl.p99")]
    refused = not all(row["valid"] for row in found)
    met = not wrong
    if cell.most_ms:
        met &= not any(not row["valid"] or abs(row["error_ms"]) > cell.most_ms for row in tails)
    if cell.refused:
        met &= refused  # some figures: those of a server that is itself seconds late may be told well enough
    return {
        "cell": str(cell), "within": cell.within, "requests": len(rows), "met": met, "refused": refused,
        "problems": [problem.code for problem in certificate.problems], "cpu_share": round(book.cpu_share, 3),
        "cpu_us_an_event": book.cpu_all_ns / 1e3 / max(sum(row.events for row in rows), 1),
        "tails": tails, "outside": wrong, "figures": found, "held": held,
    }  # fmt: skip


def peers_beside(cell: Cell, chosen: list[str]) -> dict[str, dict[str, float] | str]:
    """How far each peer's own figures are off in the same load, or that it did not get through it."""
    found: dict[str, dict[str, float] | str] = {}
    with ours.mock()(ttft_ms=cell.ttft_ms, itl_ms=cell.itl_ms) as server:
        tokenizer = peers.tiny_tokenizer() if chosen else Path()
        work = peers.Work(server.url, "mock", tokenizer, cell.streams, 5 * cell.streams, cell.tokens)
        for tool in chosen:
            server.reset()
            try:
                found[tool] = serving_truth.errors(peers.run(tool, work, timeout_s=120)[0], serving_truth.truth(server))
            except (RuntimeError, OSError, LookupError, ValueError) as problem:
                found[tool] = f"no figures: {type(problem).__name__}: {str(problem)[-200:]}"
    return found


def cpu_of_a_bare_client(cell: Cell, seconds: float) -> float:
    """Microseconds of CPU an event, of `epoll_client.c`."""
    source = Path(__file__).with_name("epoll_client.c")
    with tempfile.TemporaryDirectory() as folder, ours.mock()(ttft_ms=cell.ttft_ms, itl_ms=cell.itl_ms) as mock:
        program = Path(folder) / "epoll_client"
        subprocess.run(["cc", "-O2", "-o", program, source], check=True)
        line = [str(program), str(mock.port), str(cell.streams), str(seconds), str(cell.tokens)]
        reads, cpu_s = subprocess.run(line, check=True, capture_output=True, text=True).stdout.split()
    return float(cpu_s) / int(reads) * 1e6


def cpu_of_requests(requests: int = 10_000) -> float:
    """CPU seconds of a load process, for requests of 32 tokens that come as fast as they can, a row of each kept."""
    with ours.mock()() as mock, tempfile.TemporaryDirectory() as folder:
        driver = OpenAI(mock.url, "mock", Generation("completions"))
        item = SimpleNamespace(as_text=lambda: "a few words", output_tokens=32)
        pool = RequestPool([Planned(item, driver.request(item))], 1)
        shape = Shape(concurrency=64, requests=requests, warmup=0, records=True, processes=1)
        file = Path(folder) / "requests.parquet"
        return run_load(lambda: driver, pool, shape, lambda: ServingTally(None), records=file).cpu_all_ns / 1e9


def show(row: dict[str, Any]) -> None:
    tails = "  ".join(
        f"{tail['figure']} {tail['value_ms']:.2f} {tail['error_ms']:+.2f} (bound {tail['bound_ms']:.2f})"
        + ("" if tail["valid"] else " INVALID")
        for tail in row["tails"]
    )
    verdict = "met" if row["met"] else "MISSED"
    refused = "refused" if row["refused"] else "valid"
    wrong = "".join(f"\n    outside its bound: {item}" for item in row["outside"])
    verdict += f"  ({row['held']:.1%} of the answers held back by TCP)" if row["held"] > MOST_HELD else ""
    cpu = f"CPU {row['cpu_share']:.0%}, {row['cpu_us_an_event']:.1f} us"
    print(f"{row['cell']:58s} {tails}  {cpu}  {refused}  {verdict}{wrong}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--grid", choices=("none", "small", "full"), default="small")
    parser.add_argument("--busy", type=int, default=0)
    parser.add_argument("--limits", action="store_true")
    parser.add_argument(
        "--peer", action="append", choices=sorted(peers.PEERS), help="all that are installed by default"
    )
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    quiet = machine.slowness()
    print(quiet, file=sys.stderr)
    if asked.limits:
        limits(asked.seconds)
        return 0
    rows = []
    for cell in [*bars(), *(grid(asked.grid) if asked.grid != "none" else ())]:
        book, log, shape = offer(cell, asked.seconds, asked.busy)
        rows.append(judge(cell, book, log, shape))
        if not asked.json:
            show(rows[-1])
    thousand = Cell(1000)
    book, log, shape = offer(thousand, asked.seconds, asked.busy)
    event_us = judge(thousand, book, log, shape)["cpu_us_an_event"]
    bare_us, requests_s = cpu_of_a_bare_client(thousand, asked.seconds), cpu_of_requests()
    beside = peers_beside(next(bars()), asked.peer if asked.peer is not None else peers.installed())
    within = [row for row in rows if row["within"]]
    refused = sum(row["refused"] for row in within) / max(len(within), 1)
    outside = sum(len(row["outside"]) for row in rows)
    held = sum(row["held"] > MOST_HELD for row in rows)
    met = all(row["met"] for row in rows) and refused <= MOST_REFUSED
    met &= event_us <= MOST_EVENT_US and requests_s <= MOST_REQUESTS_S
    found = {
        "cores": CORES, "quiet": asdict(quiet), "cells": rows, "valid_outside_bound": outside, "not_judged": held,
        "refused_within_limits": refused, "event_us": event_us, "bare_client_event_us": bare_us,
        "requests_cpu_s": requests_s, "peers_error_ms": beside, "passed": met,
    }  # fmt: skip
    if asked.json:
        print(json.dumps(found, indent=2))
    else:
        for tool, errors in beside.items():
            off = errors if isinstance(errors, str) else "  ".join(f"{name} {ms:+.2f}" for name, ms in errors.items())
            print(f"{tool} at {next(bars()).streams} streams, error in ms: {off}")
        print(f"{len(rows)} cells, {held} of them not judged as TCP held answers back")
        print(f"valid figures outside their bound: {outside}; cells within the limits that were refused: {refused:.1%}")
        print(f"CPU of an event at 1,000 streams: {event_us:.1f} us (at most {MOST_EVENT_US:g}; bare C {bare_us:.1f})")
        print(f"CPU of 10,000 requests of 32 tokens with rows: {requests_s:.2f} s (at most {MOST_REQUESTS_S:g})")
        print("passed" if met else "missed")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
