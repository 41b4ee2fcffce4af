import csv
import pickle

import pytest

from benchhouse.load import load_record as book_module
from benchhouse.load.load_record import Call, LoadRecord, SendSchedule
from benchhouse.load.protocols.calls import CallResult
from benchhouse.load.shape import Shape
from benchhouse.load.slo import parse_slo
from benchhouse.load.trial import write_intervals

MS = 1_000_000
START, END = 1_000 * MS, 3_500 * MS


class Missing:
    """A tally that finds the first objective missed by every error."""

    def add(self, call, reply, start_ns, end_ns):
        return int(reply.error is not None)

    def merge(self, other):
        pass

    def streams(self):
        return ()


def call(due, sent=None, ended=None, measured=True):
    made = Call(0, START + due * MS, measured, None)
    made.sent_ns = START + (due if sent is None else sent) * MS
    made.ended_ns = START + (due + 10 if ended is None else ended) * MS
    return made


def booked(*rows, end_ns=END):
    made = LoadRecord(Missing(), objectives=1, start_ns=START, end_ns=end_ns)
    for one, reply in rows:
        made.wrote(one)
        made.settle(one, reply)
    return made


ROWS = [
    (call(-20, ended=5, measured=False), CallResult()),
    (call(100), CallResult()),
    (call(200), CallResult(error="http_500", detail="first")),
    (call(210), CallResult(error="http_500", detail="second")),
    (call(1500, sent=1900, ended=2100), CallResult()),
    (call(2400, sent=2600, ended=2700), CallResult()),
]


def test_what_happened_in_a_second_and_what_became_of_those_due_in_it_are_told_apart(tmp_path):
    book = booked(*ROWS)
    assert (book.sent, book.succeeded, book.failed, book.unmeasured) == (5, 3, 2, 1)
    assert book.completed_in_window == 3  # the first one began before the window, the last one ended after it
    assert (book.errors["http_500"], book.details) == (2, {"http_500": "first"})
    write_intervals(tmp_path / "i.csv", book, parse_slo("error<1%"))
    rows = list(csv.DictReader((tmp_path / "i.csv").open()))
    found = {name: [int(row[name]) for row in rows] for name in rows[0]}
    assert found == {
        "second": [0, 1, 2], "sent": [3, 1, 0], "completed": [2, 0, 1], "errors": [2, 0, 0], "in_flight": [0, 0, 0],
        "due": [3, 1, 1], "good": [1, 1, 1], "over:error<1%": [2, 0, 0],
    }  # fmt: skip


def test_an_answer_counts_by_the_share_of_its_time_that_lies_in_the_window():
    book = booked((call(-30, ended=10, measured=False), CallResult()), (call(2400, ended=2700), CallResult()))
    assert book.answered == pytest.approx(10 / 40 + 100 / 300)
    assert book.answers_per_s(open_loop=True) == pytest.approx(book.answered / 2.5)


def drained(clients, latency_ms, requests, processes=1, first_ms=0):
    """Books of a closed loop: every client asks again at once until all requests are sent, then they drain."""
    made = []
    for _ in range(processes):
        book = LoadRecord(Missing(), start_ns=START, end_ns=book_module._NEVER, drains=clients)
        ready = [(first_ms + client * latency_ms / clients) for client in range(clients)]
        for number in range(requests):
            at = min(ready)
            client = ready.index(at)
            took = latency_ms * (0.5 + (number * 7919 % 1000) / 1000)
            ready[client] = at + took
            one = call(at, ended=at + took)
            one.sent_ns, one.due_ns, one.ended_ns = (round(x) for x in (one.sent_ns, one.due_ns, one.ended_ns))
            book.wrote(one)
            book.settle(one, CallResult())
        book.close()
        made.append(book)
    return made


def test_the_drain_after_the_last_request_of_a_closed_loop_is_no_time_of_the_load():
    """64 clients, 100 ms each: 640 answers a second, however few requests there are after the start."""
    for requests in (640, 2000):
        (book,) = drained(64, 100, requests)
        assert book.answers_per_s(open_loop=False) == pytest.approx(640, rel=0.08)
    assert book.succeeded / book.window_s < 640


def test_rates_of_load_processes_that_end_at_different_times_add_up():
    first, second = drained(8, 100, 800, processes=2, first_ms=0)
    alone = first.answers_per_s(open_loop=False)
    first.merge(second)
    assert first.answers_per_s(open_loop=False) == pytest.approx(2 * alone)


def test_a_load_that_is_all_drain_is_timed_to_its_end():
    (book,) = drained(64, 100, 64)
    assert book.answers_per_s(open_loop=False) == pytest.approx(64 / book.window_s)


def test_a_number_of_requests_is_timed_from_end_to_end_in_an_open_loop():
    rows = [(call(at, ended=at + 900), CallResult()) for at in range(0, 1000, 100)]
    book = booked(*rows, end_ns=book_module._NEVER)
    assert book.answers_per_s(open_loop=True) == pytest.approx(10.0)
    assert book.answers_per_s(open_loop=False) == pytest.approx(10 / 1.8)


def test_the_book_of_the_parts_is_the_book_of_the_whole():
    whole, parts = booked(*ROWS), [pickle.loads(pickle.dumps(booked(*ROWS[shard::2]))) for shard in range(2)]
    merged, other = parts
    merged.merge(other)
    for name in (
        "sent",
        "succeeded",
        "unmeasured",
        "completed_in_window",
        "answered",
        "sent_late",
        "errors",
        "details",
        "seconds",
    ):
        assert getattr(merged, name) == getattr(whole, name), name
    assert merged.lag.histogram.to_json() == whole.lag.histogram.to_json()
    assert sorted(merged.sent_times) == sorted(whole.sent_times)


def test_the_window_is_as_long_as_asked_unless_the_load_was_over_before():
    assert booked((call(10), CallResult())).window_s == 2.5
    early = booked((call(10), CallResult()))
    early.ended_early = True
    assert early.window_s == 0.02
    assert booked((call(10, ended=700), CallResult()), end_ns=book_module._NEVER).window_s == 0.7


def test_sends_after_the_window_are_counted_however_many_there_were_before(monkeypatch):
    monkeypatch.setattr(book_module, "_STAMPS_KEPT", 2)
    book = booked(*((call(due, sent=due + 1000), CallResult()) for due in (0, 10, 2000, 2400)))
    assert len(book.sent_times) == 2
    assert book.sent_late == 2


@pytest.mark.parametrize("processes", [1, 3])
def test_all_processes_together_measure_the_number_asked_for_and_use_each_index_once(processes):
    shape = Shape(concurrency=3, requests=10, warmup=0, processes=processes)
    clocks = [SendSchedule(shape, 0, shard) for shard in range(processes)]
    assert sum(clock.measures(at) for clock in clocks for at in range(20)) == 10
    indexes = [clock.index() for clock in clocks for _ in range(5)]
    assert sorted(indexes) == list(range(5 * processes))


def test_a_process_with_nothing_to_measure_stops_with_the_warm_up():
    clock = SendSchedule(Shape(concurrency=3, requests=2, warmup=1, processes=3), 0, 2)
    assert clock.stop_ns == clock.window_ns == 1_000 * MS
