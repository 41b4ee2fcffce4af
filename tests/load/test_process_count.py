"""How many load processes the engine chooses, and what it says of that."""

import os
import socket
from pathlib import Path
from time import process_time_ns, sleep

import pytest
from mocks.llm import MockLLM
from tables import check_rows

from benchhouse.drivers.openai import OpenAI
from benchhouse.experiments.serving.requests import RequestFacts
from benchhouse.experiments.serving.tally import ServingTally
from benchhouse.load import process_count as module
from benchhouse.load.calibration import request_cost_s
from benchhouse.load.calls import CallTally
from benchhouse.load.certificate import certify
from benchhouse.load.engine import run_load
from benchhouse.load.process_count import Machine, choose, is_here, requests_per_s, this_machine
from benchhouse.load.protocols.calls import CallResult
from benchhouse.load.protocols.text import Generation
from benchhouse.load.shape import Shape
from benchhouse.load.source import Planned, RequestPool

US = 1e-6
REMOTE, LOCAL = Machine(16, serves=False), Machine(16, serves=True)


def pool(**known):
    return RequestPool([Planned(None)], 1, **known)


def never(events):
    raise AssertionError("nothing was to be measured")


def test_processes_by_load_cores_cost_and_place_of_the_server():
    rows = [
        ({"concurrency": 1}, 1, None, REMOTE, 1),
        ({"concurrency": 64}, 1, None, REMOTE, 1),
        ({"concurrency": 64}, 32, None, LOCAL, 1),
        ({"rps": 100}, 32, None, REMOTE, 1),
        ({"rps": 3200}, 1, None, REMOTE, 1),
        ({"concurrency": 10_000}, 1, None, Machine(1, serves=False), 1),  # one core: nothing to choose
        ({"concurrency": 10_000}, 1, None, Machine(2, serves=True), 1),  # the other is the server's
        ({"concurrency": 256}, 1, 100, REMOTE, 3),  # 12,800 requests/s are 1.28 cores
        ({"concurrency": 256}, 1, 50, REMOTE, 2),
        ({"concurrency": 1000}, 32, 280, REMOTE, 1),  # 1,563 streams/s are 0.44
        ({"concurrency": 2000}, 32, 280, REMOTE, 2),
        ({"concurrency": 10_000}, 32, 280, REMOTE, 9),
        ({"concurrency": 10_000}, 32, 280, LOCAL, 8),
        ({"concurrency": 10_000}, 32, 280, Machine(5, serves=True), 2),
        ({"concurrency": 10_000, "think_time": "10s"}, 32, 280, REMOTE, 1),
        ({"rps": 10_000}, 1, 100, REMOTE, 2),
        ({"rps": 10_000, "max_in_flight": 1}, 1, 200, REMOTE, 1),
        ({"rps": 100, "arrivals": {"kind": "ramp", "to": 10_000}}, 1, 100, REMOTE, 2),
        ({"arrivals": {"kind": "steps", "rates": [1, 10_000, 1], "each": "1s"}}, 1, 100, REMOTE, 2),
    ]

    def check(asked, events, cost_us, machine, processes):
        cost_s = never if cost_us is None else lambda asked_events: cost_us * US
        choice = choose(Shape(**asked), pool(events=events), machine, cost_s=cost_s)
        assert choice.processes == processes
        assert choice.why.startswith(f"{processes} load process{'es' if processes > 1 else ''}: ")

    check_rows(check, rows)


def test_few_threads_share_an_interpreter_where_calls_block():
    rows = [
        ({"concurrency": 1}, REMOTE, 1),
        ({"concurrency": 4}, REMOTE, 1),
        ({"concurrency": 5}, REMOTE, 2),
        ({"concurrency": 16}, REMOTE, 4),
        ({"concurrency": 16}, Machine(2, serves=True), 1),
        ({"concurrency": 256}, REMOTE, 16),
        ({"concurrency": 256}, LOCAL, 8),
        ({"concurrency": 64, "think_time": "1s"}, REMOTE, 1),
        ({"rps": 1000}, REMOTE, 1),
        ({"rps": 10_000}, REMOTE, 3),
    ]

    def check(asked, machine, processes):
        assert choose(Shape(**asked), pool(), machine).processes == processes

    check_rows(check, rows)


def test_what_can_not_be_split_stays_whole():
    choice = choose(Shape(concurrency=5000), pool(alone="it is one"), REMOTE, cost_s=never)
    assert (choice.processes, choice.why) == (1, "1 load process: it is one")


def test_nodes_are_given_alike_and_never_more_in_all_than_are_in_flight():
    choice = choose(Shape(concurrency=1000), pool(), REMOTE, nodes=4, cost_s=lambda _: 100 * US)
    assert choice.processes == 12 and choice.why.startswith("3 load processes a node: 1,000 in flight")
    assert choose(Shape(concurrency=3), pool(), REMOTE, nodes=4, cost_s=never).processes == 3


def test_the_sentence_says_what_was_measured_and_what_set_the_limit():
    def why(machine):
        return choose(Shape(concurrency=1000), pool(), machine, cost_s=lambda _: 100 * US).why

    cost = "1,000 in flight, 100 us of CPU a request (measured), half a core a process"
    assert why(REMOTE) == f"10 load processes: {cost}"
    assert why(LOCAL) == (
        f"8 load processes: {cost}; 10 would be better, but the server on this machine is left half of its 16 cores"
    )
    assert why(Machine(4, serves=False)).endswith("; 10 would be better, but there are no more than 4 cores")
    assert choose(Shape(rps=5), pool(), REMOTE, cost_s=never).why == "1 load process: 5 requests/s need no more"


def test_the_busiest_second_of_a_trace_counts(tmp_path):
    (tmp_path / "trace").write_text("\n".join(["10", "11.1", "11.2", "11.3", "15"]))
    shape = Shape(arrivals={"kind": "trace", "file": str(tmp_path / "trace")})
    assert requests_per_s(shape, 1.0) == 3


def test_a_server_is_here_by_any_of_this_machines_addresses():
    for host in ("127.0.0.1", "localhost", "http://127.0.0.1:8000/v1", "0.0.0.0", "/run/postgresql", "postgresql:///x"):
        assert is_here(host), host
    assert is_here(socket.gethostbyname(socket.gethostname()))
    assert not is_here("192.0.2.7") and not is_here("https://192.0.2.7:443/v1") and not is_here("2001:db8::7")
    assert this_machine(["192.0.2.7", "127.0.0.1"]).serves and this_machine([]).serves
    assert not this_machine(["192.0.2.7"]).serves


def children():
    return Path(f"/proc/self/task/{os.getpid()}/children").read_text()


def test_a_longer_stream_costs_more_and_the_measuring_takes_a_fraction_of_a_second():
    began, before = process_time_ns(), children()
    short, long = request_cost_s(1), request_cost_s(200)
    assert 5 * US < short < long < 0.1
    assert process_time_ns() - began < 1e9
    assert children() == before  # the echo is gone


def served(url, **shape):
    """The shape and the book of a load on an LLM server."""
    driver = OpenAI(url, "mock", Generation("completions"))
    planned = Planned(RequestFacts(8), driver.request(PROMPT))
    asked = Shape(warmup=0, **shape)
    return asked, run_load(lambda: driver, RequestPool([planned], 1, events=8.0), asked, lambda: ServingTally(None))


class PROMPT:
    output_tokens = 8

    @staticmethod
    def as_text():
        return "a few words"


@pytest.mark.parametrize(("cores", "processes"), [(2, 1), (8, 2)])
def test_a_load_says_what_was_chosen(monkeypatch, cores, processes):
    monkeypatch.setattr(module, "usable_cores", lambda: cores)
    monkeypatch.setattr("benchhouse.load.engine.request_cost_s", lambda events: 1e-3)
    with MockLLM(ttft_ms=20) as server:
        shape, book = served(server.url, concurrency=120, requests=360)
    assert (book.succeeded, book.most_in_flight, book.processes) == (360, 120, processes)
    certificate = certify(book, shape)
    assert certificate.processes == processes
    assert certificate.chosen.startswith(f"{processes} load process{'es' if processes > 1 else ''}: ")
    assert ("of CPU a request (measured)" in certificate.chosen) == (processes > 1)


def test_a_small_load_measures_nothing_and_a_given_number_is_kept(monkeypatch):
    monkeypatch.setattr(module, "usable_cores", lambda: 16)
    monkeypatch.setattr("benchhouse.load.engine.request_cost_s", never)
    with MockLLM(ttft_ms=5) as server:
        _, small = served(server.url, concurrency=16, requests=32)
        _, given = served(server.url, concurrency=120, requests=120, processes=2)
    assert (small.processes, small.chosen) == (1, "1 load process: 16 in flight need no more")
    assert (given.processes, given.chosen) == (2, "")


class Sleeper:
    """A service that is called, and takes its time."""

    transport = "call"

    def open(self):
        pass

    def call(self, item):
        sleep(0.005)
        return CallResult()

    def close(self):
        pass


def test_threads_are_spread_over_processes_and_are_as_many_in_all(monkeypatch):
    monkeypatch.setattr(module, "usable_cores", lambda: 8)
    book = run_load(Sleeper, pool(), Shape(concurrency=10, requests=100, warmup=0), CallTally)
    assert (book.succeeded, book.most_in_flight, book.connections, book.processes) == (100, 10, 10, 3)
    assert book.chosen.startswith("3 load processes: 10 in flight, 125 us of CPU a request (estimated)")
    book = run_load(Sleeper, pool(alone="all share one"), Shape(concurrency=10, requests=100, warmup=0), CallTally)
    assert (book.processes, book.chosen) == (1, "1 load process: all share one")
