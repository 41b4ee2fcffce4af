from dataclasses import replace

import pytest

from benchhouse.load.book import Book, Lost
from benchhouse.load.certificate import certify
from benchhouse.load.shape import Shape

MS = 1_000_000
KILLED = Lost(shard=1, how="ended by signal 9", at_s=0.5, answered=40, failed=0, in_flight=2, measured=True)
CLOSED = Shape(concurrency=4, duration=10, warmup=0)
OPEN = Shape(rps=100, duration=10, warmup=0, arrivals="constant")


def book(lag_ms=0.1, loop_ms=1.0, **more):
    """Of a thousand requests, sent each 10 ms and `lag_ms` late."""
    made = Book(None, start_ns=0, end_ns=10_000 * MS, sent=1000, succeeded=1000, most_in_flight=4, cpu_share=0.2)
    for number in range(1000):
        made.lag.add(round(lag_ms * MS))
        made.loop_lag.add(round(loop_ms * MS))
        made.due_times.append(number * 10 * MS)
        made.sent_times.append(number * 10 * MS + round(lag_ms * MS))
    return replace(made, **more)


def codes(found):
    return [problem.code for problem in found.problems]


@pytest.mark.parametrize("shape", [CLOSED, OPEN], ids=["closed", "open"])
def test_a_load_as_asked_holds(shape):
    found = certify(book(), shape)
    assert found.holds and codes(found) == []
    assert (found.offered, found.delivered) == (1000, 1000)


@pytest.mark.parametrize(
    ("shape", "wrong", "code"),
    [
        (CLOSED, {"cpu_share": 0.95}, "client_saturated"),
        (CLOSED, {"most_in_flight": 3}, "concurrency_not_reached"),
        (CLOSED, {"lost": [KILLED]}, "shard_lost"),
        (OPEN, {"sent_late": 30}, "not_delivered"),
        (OPEN, {"never_sent": 30}, "not_delivered"),
    ],
)
def test_each_way_to_miss_the_load_has_its_name(shape, wrong, code):
    assert codes(certify(book(**wrong), shape)) == [code]


@pytest.mark.parametrize(
    ("shape", "late"),
    [(CLOSED, {"loop_ms": 390.0}), (OPEN, {"lag_ms": 15.0, "loop_ms": 15.0}), (OPEN, {"lag_ms": 3.0})],
)
@pytest.mark.parametrize("kernel_stamps", [True, False])
def test_lateness_of_the_client_is_told_by_each_figure_and_not_here(shape, late, kernel_stamps):
    certificate = certify(book(kernel_stamps=kernel_stamps, **late), shape)
    assert codes(certificate) == []
    assert (certificate.error_limit_ms, certificate.error_share) == (1.0, 0.02)


def test_gaps_are_not_judged_where_the_workload_accepts_lateness():
    uneven = book(sent_times=[number * 10 * MS + number % 2 * 9 * MS for number in range(1000)])
    assert codes(certify(uneven, OPEN)) == ["arrivals_bent"]
    assert codes(certify(uneven, OPEN.model_copy(update={"error_limit": 0.02}))) == []


def test_gaps_that_a_late_client_has_bent_are_told_by_each_figure_and_not_here():
    uneven = book(lag_ms=3.0, sent_times=[number * 10 * MS + number % 2 * 9 * MS for number in range(1000)])
    assert codes(certify(uneven, OPEN)) == []


def test_requests_that_found_no_connection_are_told_beyond_a_hundredth():
    few, many = book(), book()
    few.errors["refused"], many.errors["tls"] = 5, 20
    assert codes(certify(few, CLOSED)) == []
    assert codes(certify(many, CLOSED)) == ["connections_failed"]


def test_sends_in_bunches_are_no_constant_arrivals():
    bent = book()
    for number in range(1000):
        bent.sent_times[number] = number // 10 * 100 * MS
    assert codes(certify(bent, OPEN)) == ["arrivals_bent"]


def test_an_engine_inside_the_load_process_may_use_its_cpu():
    busy = book(cpu_share=1.9)
    assert codes(certify(busy, CLOSED)) == ["client_saturated"]
    assert codes(certify(busy, CLOSED, embedded=True)) == []
    assert codes(certify(book(never_sent=30), OPEN, embedded=True)) == ["not_delivered"]
