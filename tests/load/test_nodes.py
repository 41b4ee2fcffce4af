"""Load processes below helpers, as on other nodes: one start, one book, and a node that is lost is told."""

import os
import signal
import subprocess
import threading
import time
from functools import partial
from pathlib import Path

import pytest
from laboratory import children, wait_until

from benchhouse.load.calls import CallTally
from benchhouse.load.engine import NotReached, run_load
from benchhouse.load.nodes import LoadNodes, NodeCommand
from benchhouse.load.protocols.calls import CallResult
from benchhouse.load.shape import Shape
from benchhouse.load.source import Planned, RequestPool
from benchhouse.schema.errors import BenchError

ANOTHER_CLOCK = ["unshare", "--time", "--monotonic", "5000", "--fork", "--kill-child"]


class Sleeper:
    """A service that is called, and takes its time."""

    transport = "call"

    def open(self):
        pass

    def call(self, item):
        time.sleep(0.01)
        return CallResult()

    def close(self):
        pass


class Unreachable(Sleeper):
    def open(self):
        raise OSError("nobody is there")


class Marking(Sleeper):
    """Leaves a byte for each answer in a file that has the number of its process."""

    def __init__(self, folder):
        self._folder = folder

    def open(self):
        self._file = (self._folder / str(os.getpid())).open("ab", buffering=0)

    def call(self, item):
        reply = super().call(item)
        self._file.write(b".")
        return reply

    def close(self):
        self._file.close()


def spread_load(tmp_path, monkeypatch, shape, nodes=("a", "b"), driver=Sleeper, prefix=(), tally=CallTally, link=None):
    here = [str(Path(__file__).parents[1]), str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(here))  # for classes of this file
    spread = LoadNodes(nodes, link or (lambda node, arguments: NodeCommand(prefix, arguments)), tmp_path / "spread")
    records = tmp_path / "requests.parquet"
    return run_load(driver, RequestPool([Planned(None)], 1), shape, tally, records=records, spread=spread), spread


def test_shards_of_several_nodes_merge_exactly(tmp_path, monkeypatch):
    shape = Shape(concurrency=6, requests=203, warmup=0, processes=3, nodes="all")
    book, spread = spread_load(tmp_path, monkeypatch, shape)
    assert (book.sent, book.succeeded, book.failed, book.processes) == (203, 203, 0, 3)
    assert book.tally.latency.histogram.n == 203
    assert {node: facts["processes"] for node, facts in spread.facts.items()} == {"a": [0, 2], "b": [1]}
    assert not spread.folder.exists()


def test_the_engine_chooses_as_many_for_each_node(tmp_path, monkeypatch):
    """Other numbers are in test_choose.py."""
    monkeypatch.setattr("benchhouse.load.process_count.usable_cores", lambda: 8)
    shape = Shape(concurrency=16, requests=200, warmup=0, nodes="others")
    book, spread = spread_load(tmp_path, monkeypatch, shape)
    assert (book.succeeded, book.processes, book.most_in_flight) == (200, 4, 16)
    assert {len(facts["processes"]) for facts in spread.facts.values()} == {2}
    assert book.chosen.startswith("2 load processes a node: ")


def clocks_differ() -> bool:
    done = subprocess.run([*ANOTHER_CLOCK, "true"], capture_output=True, check=False)
    return done.returncode == 0


@pytest.mark.skipif(not clocks_differ(), reason="another clock needs a time namespace, and the right to make one")
def test_a_node_whose_clock_is_hours_ahead_starts_on_the_same_edge(tmp_path, monkeypatch):
    began = time.monotonic_ns()
    shape = Shape(rps=200, duration=1, warmup=0.2, processes=2, nodes="all", records=True)
    book, spread = spread_load(tmp_path, monkeypatch, shape, prefix=ANOTHER_CLOCK)
    assert began < book.start_ns < book.end_ns < time.monotonic_ns(), "all is told in our own time"
    assert began < book.first_ended_ns < book.last_ended_ns < time.monotonic_ns()
    assert all(began < stamp < time.monotonic_ns() for stamp in (*book.due_times, *book.sent_times))
    assert max(facts["clock_uncertainty_us"] for facts in spread.facts.values()) < 20_000
    assert book.sent == book.succeeded > 100


def test_a_node_that_is_lost_is_named_with_what_it_had_in_flight_while_the_others_go_on(tmp_path, monkeypatch):
    shape = Shape(concurrency=6, duration=3, warmup=0, processes=3, nodes="all")

    before = {*children(os.getpid())}  # servers of other tests
    marks = tmp_path / "marks"
    marks.mkdir()

    def has_answers(pid: int) -> bool:
        """Each of its two clients for three quarters of a second at least, however busy the machine is: they write
        their calls down, and their helper tells of them, four times a second."""
        path = marks / str(pid)
        return path.exists() and path.stat().st_size >= 150

    def kill():
        helpers: list[int] = []

        def begun() -> bool:
            helpers[:] = sorted({*children(os.getpid())} - before)
            processes = children(helpers[0]) if len(helpers) == 2 else []
            return bool(processes) and all(map(has_answers, processes))

        wait_until(begun, "answers of the load processes")
        os.kill(helpers[0], signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    book, _ = spread_load(tmp_path, monkeypatch, shape, driver=partial(Marking, marks))
    killer.join()
    lost = {one.shard: one for one in book.lost}
    assert set(lost) == {0, 2}
    for one in lost.values():
        assert "on a ended with its node" in one.how
        assert one.at_s > 0 and one.answered > 5 and one.in_flight == 2 and one.measured
    assert book.processes == 3 - len(lost)
    assert book.seconds[2].completed > 20


def test_a_server_that_can_not_be_reached_is_told_before_the_start(tmp_path, monkeypatch):
    shape = Shape(concurrency=2, requests=10, warmup=0, processes=2, nodes="all")
    with pytest.raises(NotReached, match="nobody is there"):
        spread_load(tmp_path, monkeypatch, shape, driver=Unreachable)


def test_what_can_not_be_sent_and_too_few_processes_are_told(tmp_path, monkeypatch):
    shape = Shape(concurrency=2, requests=10, warmup=0, processes=2, nodes="all")
    with pytest.raises(BenchError, match="can't be sent to another node"):
        spread_load(tmp_path, monkeypatch, shape, tally=lambda: CallTally())
    with pytest.raises(BenchError, match="3 nodes need at least as many load processes"):
        spread_load(tmp_path, monkeypatch, shape, nodes=("a", "b", "c"))
