"""Loads by blocking calls, with a driver that does what the test says."""

import threading
import time
from collections import Counter
from itertools import islice

import pytest
from tables import check_rows

from benchhouse.load import threads
from benchhouse.load.certificate import certify
from benchhouse.load.engine import NotReached, run_load
from benchhouse.load.protocols.calls import CallFailed, CallResult
from benchhouse.load.shape import Shape
from benchhouse.load.source import Planned, RequestPool
from benchhouse.schema.errors import BenchError

LOCK = threading.Lock()


class Sleeper:
    """A service that takes its time, and knows how many call it at once."""

    transport = "call"
    seconds = 0.005

    def __init__(self, log):
        self._log = log

    def open(self):
        self._log["opened"] += 1

    def call(self, item):
        with LOCK:
            self._log["now"] += 1
            self._log["most"] = max(self._log["most"], self._log["now"])
            self._log["calls"] += 1
        time.sleep(self.seconds)
        with LOCK:
            self._log["now"] -= 1
        if item == "bad":
            raise ValueError("bad item")
        return CallResult(count=3)

    def close(self):
        with LOCK:
            self._log["closed"] += 1


class Latencies:
    def __init__(self):
        self.due, self.sent = [], []

    def add(self, call, reply, start_ns, end_ns):
        if call.measured and reply.error is None:
            self.due.append((call.ended_ns - call.due_ns) / 1e9)
            self.sent.append((call.ended_ns - call.sent_ns) / 1e9)
        return 0

    def merge(self, other):
        self.due += other.due
        self.sent += other.sent

    def streams(self):
        return ()


def load(driver=Sleeper, items=("good",), **shape):
    log = Counter()
    pool = RequestPool([Planned(item) for item in items], seed=1)
    return run_load(lambda: driver(log), pool, Shape(**shape), Latencies), log


def test_a_closed_loop_of_threads_makes_exactly_the_calls_asked_for():
    for think_time in (0, 0.001):
        book, log = load(concurrency=4, requests=50, warmup=0, think_time=think_time)
        assert (book.sent, book.succeeded, log["calls"], log["most"]) == (50, 50, 50, 4)
    assert log["opened"] == log["closed"] == 4
    assert min(book.tally.due) >= 0.005


def test_an_exception_of_a_driver_is_an_error_of_the_client_and_ends_nothing():
    book, _ = load(items=("good", "bad"), concurrency=2, requests=20, warmup=0)
    assert book.errors == Counter(client=10)
    assert book.details == {"client": "ValueError: bad item"}
    assert book.succeeded == 10


def test_an_open_loop_of_threads_starts_more_of_them_when_calls_take_long():
    class Slow(Sleeper):
        seconds = 0.4

    shape = {"rps": 100, "duration": 1, "warmup": 0, "arrivals": "constant"}
    book, log = load(Slow, **shape)
    assert book.sent == 100
    assert 35 <= log["most"] <= 60
    assert log["opened"] == log["closed"] == book.connections
    assert max(book.tally.due) < 0.9


def test_a_connection_that_an_open_loop_adds_in_vain_does_not_end_the_load():
    class Late(Sleeper):
        seconds = 0.4

        def open(self):
            with LOCK:
                self._log["opened"] += 1
                if self._log["opened"] > 16:  # those that it begins with
                    raise CallFailed("too_many_connections", "no slot is left")

    book, log = load(Late, rps=60, duration=0.6, warmup=0, arrivals="constant")
    assert log["opened"] > 16
    assert (book.sent, book.succeeded, book.failed) == (36, 36, 0)


def test_an_open_loop_of_threads_keeps_to_the_most_in_flight_and_counts_from_the_due_time():
    class Slow(Sleeper):
        seconds = 0.2

    shape = {"rps": 50, "duration": 1, "warmup": 0, "arrivals": "constant", "max_in_flight": 4}
    book, log = load(Slow, **shape)
    assert log["most"] == 4
    assert "not_delivered" in [problem.code for problem in certify(book, Shape(**shape)).problems]
    assert max(book.tally.sent) < 0.5 < 1 < max(book.tally.due)


def test_calls_left_long_after_the_load_are_given_up():
    class Slow(Sleeper):
        seconds = 0.3

    book, _ = load(Slow, rps=50, duration=0.5, warmup=0, arrivals="constant", max_in_flight=1, timeout=0.5)
    assert book.never_sent > 15
    assert book.sent + book.never_sent == 25


def test_a_call_that_takes_too_long_is_a_time_out():
    class Slow(Sleeper):
        seconds = 0.1

    book, _ = load(Slow, concurrency=2, requests=4, warmup=0, timeout=0.05)
    assert book.errors == Counter(timeout=4)


def test_a_driver_that_cannot_be_opened_is_told():
    class Shut(Sleeper):
        def open(self):
            raise ConnectionError("nobody there")

    with pytest.raises(NotReached, match="ConnectionError: nobody there"):
        load(Shut, concurrency=3, requests=5)


@pytest.mark.parametrize("shape", [{"concurrency": 3, "duration": 30}, {"rps": 50, "duration": 30}])
def test_a_broken_tally_ends_the_load_and_is_told(shape, monkeypatch):
    def broken(*_):
        raise RuntimeError("no room")

    monkeypatch.setattr(Latencies, "add", broken)
    began = time.monotonic()
    with pytest.raises(BenchError, match="RuntimeError: no room"):
        load(warmup=0, **shape)
    assert time.monotonic() - began < 25


def test_two_processes_of_threads_share_the_calls():
    book, _ = load(concurrency=3, requests=31, warmup=0, processes=2)
    assert (book.succeeded, book.processes) == (31, 2)
    assert len(book.tally.due) == 31


class Mortal(Sleeper):
    """Takes no connection from its 20th call on, but for a call that was under way."""

    slow_s = 0.0

    def call(self, item):
        with LOCK:
            self._log["calls"] += 1
            number = self._log["calls"]
        if number == 20 and self.slow_s:
            time.sleep(self.slow_s)
        elif number >= 20:
            raise CallFailed("refused", "nobody listens")
        else:
            time.sleep(self.seconds)
        return CallResult(count=1)


@pytest.mark.parametrize("loop", [{"concurrency": 4}, {"concurrency": 4, "think_time": 0.01}, {"rps": 100}])
def test_a_load_whose_server_is_gone_is_given_up(monkeypatch, loop):
    monkeypatch.setattr(threads, "_DEAD_AFTER_NS", 500_000_000)
    began = time.monotonic()
    book, _ = load(Mortal, duration=60, warmup=0, **loop)
    assert time.monotonic() - began < 50
    assert book.stop_code == "server_gone"
    assert book.stopped == "the server has not taken a connection for 0.5 s"
    assert book.ended_early
    assert book.succeeded == 19
    assert book.errors.keys() == {"refused"}


def test_a_call_that_is_under_way_keeps_the_load_alive(monkeypatch):
    monkeypatch.setattr(threads, "_DEAD_AFTER_NS", 300_000_000)

    class Slow(Mortal):
        slow_s = 1.0

    book, _ = load(Slow, duration=60, warmup=0, concurrency=4)
    assert book.succeeded == 20
    assert book.stop_code == "server_gone"


def test_each_process_gets_the_items_that_the_source_has_for_its_numbers():
    rows = [(1, 1), (7, 2), (8, 2), (9, 3), (4, 6)]

    def check(size, processes):
        pool = RequestPool([Planned(number) for number in range(size)], seed=1)
        for shard in range(processes):
            calls = list(islice(pool.following(shard, processes), 3 * size))
            assert calls == [(index, pool.take(index).item) for index, _ in calls]
            assert [index for index, _ in calls] == list(range(shard, 3 * size * processes, processes))

    check_rows(check, rows)
