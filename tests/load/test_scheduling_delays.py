"""How far times of blocking calls can be off, against a server that says when it answered."""

import multiprocessing
import os
import select
import socket
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager
from heapq import heappop, heappush
from pathlib import Path
from random import Random

import pytest
from laboratory import stopped

from benchhouse.load.calls import CallTally
from benchhouse.load.certificate import certify
from benchhouse.load.engine import run_load
from benchhouse.load.protocols.calls import CallResult
from benchhouse.load.scheduling_delays import Pauses, RunDelay
from benchhouse.load.shape import ERROR_LIMIT_S, ERROR_SHARE, Shape
from benchhouse.load.source import Planned, RequestPool
from benchhouse.load.streams import figures
from benchhouse.schema.histogram import Histogram

MS = 1_000_000
PAUSE_S = 0.3


def serve(listener):
    """Answer each byte after 3 ms and a little more, with the time of the answer."""
    epoll, clients, due, random = select.epoll(), {}, [], Random(1)
    epoll.register(listener, select.EPOLLIN)
    while True:
        wait_s = max((due[0][0] - time.monotonic_ns()) / 1e9, 0) if due else 1.0
        for fd, _ in epoll.poll(wait_s):
            if fd == listener.fileno():
                client, _ = listener.accept()
                clients[client.fileno()] = client
                epoll.register(client, select.EPOLLIN)
            elif clients[fd].recv(1):
                heappush(due, (time.monotonic_ns() + 3 * MS + round(random.expovariate(1 / MS)), fd))
            else:
                epoll.unregister(fd)
                clients.pop(fd).close()
        while due and due[0][0] <= time.monotonic_ns():
            clients[heappop(due)[1]].send(str(time.monotonic_ns()).encode())


@pytest.fixture
def address(tmp_path):
    path = str(tmp_path / "server")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen(64)
        child = multiprocessing.get_context("fork").Process(target=serve, args=(listener,), daemon=True)
        child.start()
        yield path
        child.kill()
        child.join()


class Caller:
    """Its answer is when the server sent it, and how long this thread then computed."""

    transport = "call"

    def __init__(self, address, computes_ns=0):
        self._address, self._computes_ns = address, computes_ns

    def open(self):
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(self._address)

    def call(self, item):
        self._socket.send(b"?")
        answered_ns = int(self._socket.recv(32))
        began = time.thread_time_ns()
        while time.thread_time_ns() - began < self._computes_ns:
            pass
        return CallResult(value=answered_ns + time.thread_time_ns() - began)

    def close(self):
        self._socket.close()


class QuickAsker(Caller):
    """As drivers whose calls are written down column by column."""

    def ask(self, item):
        return self.call(item).value

    def reply(self, item, answer):
        return CallResult(value=answer)

    def operations(self, items, answers):
        return len(items)


class TruthTally(CallTally):
    def __init__(self):
        super().__init__()
        self.true, self.waited, self.late = [], [], []

    def add_many(self, ended):
        super().add_many(ended)
        self.waited += [call.waited_ns for call, _ in ended]
        self.late += [call.late_ns for call, _ in ended]
        self.true += [max(reply.value - call.sent_ns, 0) for call, reply in ended]

    def add_answers(self, answers):
        self.count_answers(answers)
        self.true += [max(value - sent, 0) for value, sent in zip(answers.values, answers.sent_ns, strict=True)]


@contextmanager
def crowded(others):
    """This process and so many that always compute, on one core."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    burns = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(others)]
    try:
        yield
    finally:
        for burn in burns:
            burn.kill()
            burn.wait()
        os.sched_setaffinity(0, before)


def stolen_ns():
    """What a host kept virtual processors from running: no guest knows from whom."""
    return int(Path("/proc/stat").read_text().split()[8]) * 10 * MS


def load(driver, address, threads, *around, computes_ns=0, **shape):
    shape = Shape(**{"warmup": 0.2, "requests": 400 * threads, **(shape or {"concurrency": threads})})
    before = stolen_ns()
    with ExitStack() as stack:
        for manager in around:
            stack.enter_context(manager)
        source = RequestPool([Planned("?")], seed=1)
        book = run_load(lambda: driver(address, computes_ns), source, shape, TruthTally)
    stolen = stolen_ns() - before
    stream = book.tally.latency_sent
    published, bounds = figures(stream.histogram), stream.bounds_ns(book.unseen)
    true = figures(Histogram(book.tally.true))
    valid = {stat for stat, bound in bounds.items() if bound <= max(ERROR_LIMIT_S * 1e9, ERROR_SHARE * published[stat])}
    for stat in valid:
        assert abs(published[stat] - true[stat]) <= bounds[stat] + stolen, stat
    assert not [problem for problem in certify(book, shape).problems if problem.code.startswith("client_")]
    return book, bounds, valid


DRIVERS_AND_THREADS = pytest.mark.parametrize(("driver", "threads"), [(Caller, 1), (QuickAsker, 1), (QuickAsker, 4)])


@DRIVERS_AND_THREADS
def test_what_is_called_valid_lies_within_its_bound_of_the_truth(address, driver, threads):
    book, bounds, _ = load(driver, address, threads)
    assert len(book.tally.true) == book.succeeded == 400 * threads
    assert len(bounds) == 6 and min(bounds.values()) > 0
    assert threads > 1 or not book.waits[1].histogram.n  # nobody else wants Python's lock


@pytest.mark.parametrize("driver", [Caller, QuickAsker])
def test_on_a_crowded_core_the_tail_is_invalid_and_not_the_trial(address, driver):
    """Calls that also compute for 4 ms lose the core to the others now and then, for as long as a time slice."""
    book, bounds, valid = load(driver, address, 2, crowded(2), computes_ns=4 * MS, concurrency=2, requests=100)
    assert len(valid) < len(bounds)
    assert max(book.tally.waited) > 2 * MS
    assert book.late_ns > 0


@DRIVERS_AND_THREADS
def test_a_stop_of_the_process_is_in_the_bound_of_what_it_touched(address, driver, threads):
    around, shape = stopped(1.0, PAUSE_S), {"concurrency": threads, "requests": 450 * threads}
    book, bounds, valid = load(driver, address, threads, around, **shape)
    assert len(valid) < len(bounds)
    touched = sum(waited > 0.5 * PAUSE_S * 1e9 for waited in book.tally.waited)
    assert 1 <= touched < len(book.tally.true) / 2


def test_a_stop_is_in_the_lateness_of_what_was_due_meanwhile(address):
    """Of 400 requests 60 are due while nothing can be sent."""
    book, _, _ = load(Caller, address, 1, stopped(1.0, PAUSE_S), rps=200, arrivals="constant", requests=400)
    assert sum(late > 0.5 * PAUSE_S * 1e9 for late in book.tally.late) > 10


def test_the_kernel_counts_how_long_a_thread_waits_for_a_core():
    with crowded(2):
        time.sleep(0.3)  # until they run
        delay = RunDelay()
        assert delay.counts
        began, ran = time.monotonic_ns(), time.thread_time_ns()
        while time.thread_time_ns() - ran < 60 * MS:
            pass
        took, ran, waited = time.monotonic_ns() - began, time.thread_time_ns() - ran, delay.look()
        assert 0 < waited <= took - ran + 5 * MS
        assert delay.look() < waited
        delay.close()
        assert delay.look() == 0


def test_pauses_tell_how_much_of_a_time_they_take():
    pauses = Pauses()
    assert not pauses.since(0) and pauses.within(0, 100) == 0
    pauses.add(100, 200)
    pauses.add(300, 340)
    assert pauses.since(150) and not pauses.since(340)
    spans = {(0, 100): 0, (0, 150): 50, (120, 130): 10, (150, 320): 70, (0, 400): 140, (340, 400): 0, (200, 300): 0}
    assert {span: pauses.within(*span) for span in spans} == spans
