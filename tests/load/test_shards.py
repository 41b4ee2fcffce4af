"""Load processes: they start together, merge exactly, and one that dies is told while the others go on."""

import os
import signal
import time
from collections import Counter
from contextlib import suppress
from types import SimpleNamespace

import pytest
from laboratory import children
from mocks.llm import MockLLM

from benchhouse.drivers.openai import OpenAI
from benchhouse.load.calls import CallTally
from benchhouse.load.certificate import certify
from benchhouse.load.engine import run_load
from benchhouse.load.protocols.calls import CallResult
from benchhouse.load.protocols.text import Generation
from benchhouse.load.shape import Shape
from benchhouse.load.shards import AllLost
from benchhouse.load.source import Planned, RequestPool


class Sleeper:
    """A service that is called, and takes its time."""

    transport = "call"

    def open(self):
        pass

    def call(self, item):
        time.sleep(0.02)
        return CallResult()

    def close(self):
        pass


def by_threads(shape, tally=CallTally):
    return run_load(Sleeper, RequestPool([Planned(None)], 1), shape, tally)


def by_sockets(shape, tally=CallTally):
    with MockLLM(ttft_ms=20) as server:
        driver = OpenAI(server.url, "mock", Generation("completions"))
        asked = SimpleNamespace(as_text=lambda: "a", output_tokens=2)
        book = run_load(lambda: driver, RequestPool([Planned(None, driver.request(asked))], 1), shape, tally)
        if len(book.lost) == 1 and book.lost[0].at_s:  # what the server saw is what was booked, and what was lost
            lost = book.lost[0]
            seen = [row.outcome for row in server.truth()]
            booked = book.sent + book.unmeasured + lost.answered
            assert booked <= len(seen) + lost.in_flight and len(seen) <= booked + 40
            assert seen.count("gone") <= lost.in_flight + 5  # it last told up to 20 ms before it died
        return book


@pytest.mark.parametrize(("load", "asked"), [(by_sockets, {"rps": 120}), (by_threads, {"concurrency": 6})])
def test_one_that_is_killed_is_named_with_what_it_had_in_flight_while_the_others_go_on(load, asked, kill_shards):
    shape = Shape(duration=2, warmup=0, processes=3, **asked)
    kill_shards(1)
    book = load(shape)
    (lost,) = book.lost
    assert (lost.shard, lost.how, lost.measured) == (2, "ended by signal 9", True)
    assert 0 < lost.at_s < 2 and lost.answered > 5
    assert book.processes == 2 and book.window_s == 2
    assert book.seconds[1].completed > 20  # of the others, after its end
    assert book.errors == (Counter(lost=lost.in_flight) if lost.in_flight else Counter())
    assert book.sent == book.succeeded + lost.in_flight
    if "concurrency" in asked:
        assert lost.in_flight == 2
    problems = {problem.code: problem.message for problem in certify(book, shape).problems}
    assert f"{lost.answered} good answers are gone with it, {lost.in_flight} requests" in problems["shard_lost"]


@pytest.mark.parametrize("load", [by_sockets, by_threads])
def test_one_that_dies_before_the_start_is_named_and_the_others_begin(load, tmp_path):
    def tally():
        with suppress(FileExistsError):
            (tmp_path / "first").touch(exist_ok=False)
            os.kill(os.getpid(), signal.SIGKILL)
        return CallTally()

    book = load(Shape(concurrency=6, requests=60, warmup=0, processes=3), tally)
    (lost,) = book.lost
    assert str(lost) == f"load process {lost.shard} ended by signal 9 before the start"
    assert (book.processes, book.succeeded, book.errors) == (2, 40, Counter())


@pytest.mark.parametrize(("load", "answers"), [(by_sockets, 0), (by_threads, 6)])
def test_where_all_die_the_load_says_how(load, answers, kill_shards):
    before = children(os.getpid())  # of other tests: a cluster that is there for all of them
    kill_shards(3, answers)
    with pytest.raises(AllLost, match=r"every load process died: load process 0 ended by signal 9 .*; load process 1"):
        load(Shape(concurrency=6, duration=3, warmup=0, processes=3))
    assert [pid for pid in children(os.getpid()) if pid not in before] == []


@pytest.mark.parametrize(("load", "asked"), [(by_sockets, {"concurrency": 8}), (by_threads, {"rps": 200})])
def test_they_start_on_one_edge_and_the_latest_start_is_recorded(load, asked):
    """benchmarks/client_shards.py holds it to 20 ms."""
    shape = Shape(duration=0.3, warmup=0, processes=3, **asked)
    book = load(shape)
    assert 0 < book.start_late_ns < 5_000_000_000
    assert certify(book, shape).start_skew_ms > 0
