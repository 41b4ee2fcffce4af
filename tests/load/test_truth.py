"""Figures of a serving load against the log of its servers, where something is in the way: what is called valid lies
within its bound. `benchmarks/serving_scale.py` does the same for many more streams."""

import os
import subprocess
import sys
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace

import numpy
import pytest
from mocks.llm import MockLLM

from benchhouse.drivers.openai import OpenAI
from benchhouse.experiments.serving.tally import ServingTally
from benchhouse.load.certificate import certify
from benchhouse.load.endpoint import EndpointServers
from benchhouse.load.engine import run_load
from benchhouse.load.protocols.text import Generation
from benchhouse.load.shape import ERROR_LIMIT_S, ERROR_SHARE, Shape
from benchhouse.load.source import Planned, RequestPool
from benchhouse.load.streams import figures

MS = 1_000_000
ASKED = SimpleNamespace(as_text=lambda: "a few words", output_tokens=24)
PERCENT = {"p50": 50, "p90": 90, "p95": 95, "p99": 99, "p99.9": 99.9}
pytestmark = [pytest.mark.usefixtures("each_engine"), pytest.mark.serial]  # the log of a starved server has gaps


def load(servers, **shape):
    driver = OpenAI(servers[0].url, "mock", Generation("completions"))
    pool = RequestPool([Planned(ASKED, driver.request(ASKED))], 1)
    shape = Shape(warmup=0, processes=1, **shape)
    urls = EndpointServers(tuple(server.url for server in servers))
    book = run_load(lambda: driver, pool, shape, lambda: ServingTally(None), servers=urls)
    return book, [row for server in servers for row in server.truth()], certify(book, shape)


def logged(rows):
    """The same times as the servers saw them."""
    times = {
        "ttft": numpy.array([row.felt_ttft_ns for row in rows]),
        "itl": numpy.concatenate([numpy.diff(row.event_ns) for row in rows]),
        "e2e": numpy.array([row.end_ns - row.received_ns for row in rows]),
    }
    return {
        name: {"mean": values.mean()} | {stat: numpy.percentile(values, percent) for stat, percent in PERCENT.items()}
        for name, values in times.items()
    }


def valid_figures(book, rows):
    """Names of the figures that are called valid, each of which is right."""
    assert sum(row.held for row in rows) == 0, "the log does not say when these left"
    valid = set()
    for name, true in logged(rows).items():
        stream = getattr(book.tally, name)
        for stat, bound in stream.bounds_ns().items():
            value = figures(stream.histogram)[stat]
            if bound <= max(ERROR_LIMIT_S * 1e9, ERROR_SHARE * value):
                assert abs(value - true[stat]) <= bound, (name, stat, value, true[stat], bound)
                valid.add(f"{name}.{stat}")
    return valid


def test_half_of_the_streams_stalled():
    """One of two servers says nothing for a second, and the other one goes on."""
    with MockLLM(ttft_ms=30, itl_ms=5) as steady, MockLLM(ttft_ms=30, itl_ms=5, stall_at=0.5, stall_for=1) as stalls:
        book, rows, certificate = load([steady, stalls], concurrency=32, requests=400)
    assert len(rows) == 400 and not book.errors and certificate.holds
    assert max(row.end_ns - row.received_ns for row in rows) > 900 * MS
    valid = valid_figures(book, rows)
    if "e2e.p99" in valid:  # a busy machine may put even that in doubt
        assert figures(book.tally.e2e.histogram)["p99"] > 900 * MS


@contextmanager
def on_one_core():
    """This process, and what it starts."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def test_a_client_on_the_core_of_the_server():
    """And of another process that always computes."""
    with ExitStack() as stack:
        stack.enter_context(on_one_core())
        server = stack.enter_context(MockLLM(ttft_ms=20, itl_ms=5))
        burner = stack.enter_context(subprocess.Popen([sys.executable, "-S", "-c", "while True: pass"]))
        stack.callback(burner.kill)
        book, rows, _ = load([server], concurrency=64, requests=400)
    assert len(rows) == book.succeeded == 400
    valid_figures(book, rows)
