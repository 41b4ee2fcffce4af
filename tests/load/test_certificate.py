from array import array
from collections import Counter
from dataclasses import replace

import pytest
from tables import check_rows

from benchhouse.load.arrivals import StepRates
from benchhouse.load.certificate import Lag, certify
from benchhouse.load.endpoint import EndpointStats
from benchhouse.load.load_record import LoadRecord, Lost
from benchhouse.load.shape import Shape

MS = 1_000_000
KILLED = Lost(shard=1, how="ended by signal 9", at_s=0.5, answered=40, failed=0, in_flight=2, measured=True)
CLOSED = Shape(concurrency=4, duration=10, warmup=0)
OPEN = Shape(rps=100, duration=10, warmup=0, arrivals="constant")


def book(lag_ms=0.1, loop_ms=1.0, **more):
    """Of a thousand requests, sent each 10 ms and `lag_ms` late."""
    made = LoadRecord(None, start_ns=0, end_ns=10_000 * MS, sent=1000, succeeded=1000, most_in_flight=4, cpu_share=0.2)
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


def test_each_way_to_miss_the_load_has_its_name():
    rows = [
        (CLOSED, {"cpu_share": 0.95}, "client_saturated"),
        (CLOSED, {"most_in_flight": 3}, "concurrency_not_reached"),
        (CLOSED, {"lost": [KILLED]}, "shard_lost"),
        (OPEN, {"sent_late": 30}, "not_delivered"),
        (OPEN, {"never_sent": 30}, "not_delivered"),
    ]

    def check(shape, wrong, code):
        assert codes(certify(book(**wrong), shape)) == [code]

    check_rows(check, rows)


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


def test_each_limit_is_where_it_is_said_to_be():
    rows = [
        (OPEN, {"sent_late": 6}, []),  # 994 of 1000: as many as 99.5% less one
        (OPEN, {"sent_late": 7}, ["not_delivered"]),
        (OPEN, {"sent": 994, "never_sent": 6}, []),
        (OPEN, {"sent": 993, "never_sent": 7}, ["not_delivered"]),
        (CLOSED, {"cpu_share": 0.9}, []),
        (CLOSED, {"cpu_share": 0.901}, ["client_saturated"]),
        (CLOSED, {"most_in_flight": 3, "sent": 4}, ["concurrency_not_reached"]),
        (CLOSED, {"most_in_flight": 3, "sent": 3}, []),  # too few for all to be in flight
        (CLOSED, {"errors": {"refused": 10}}, []),
        (CLOSED, {"errors": {"refused": 11}}, ["connections_failed"]),
        (CLOSED, {"errors": {"refused": 1}, "sent": 0}, ["connections_failed"]),
        (CLOSED, {"never_sent": 30}, []),
    ]

    def check(shape, wrong, told):
        assert codes(certify(book(**{"errors": Counter(wrong.pop("errors", {})), **wrong}), shape)) == told

    check_rows(check, rows)


def test_what_is_sent_when_all_had_long_been_due_is_not_delivered():
    shape = Shape(rps=100, requests=1000, warmup=0, arrivals="constant")
    late = book(lag_ms=0.0)
    for number, at in enumerate((9992 * MS, 9992 * MS + 1, 9999 * MS), 1):
        late.sent_times[-number] = at  # 2 ms after the last is due, and later
    assert certify(late, shape).delivered == 998
    assert certify(late, OPEN).delivered == 1000, "a duration ends it, not a number"
    assert certify(late, shape.model_copy(update={"error_limit": 0.02})).delivered == 1000
    assert certify(LoadRecord(None, sent=3, most_in_flight=1), CLOSED).delivered == 3


def test_an_endpoint_that_takes_no_connection_is_named_with_what_the_others_bore():
    places = {
        "http://a": EndpointStats(good=30, refused_ns=1, good_ns=1),
        "http://b": EndpointStats(good=5, refused_ns=2, good_ns=1, why="refused"),
    }
    (problem,) = certify(book(places=places), CLOSED).problems
    assert problem.code == "endpoint_dead"
    assert problem.message.startswith(
        "http://b takes no connection (refused): 5 good answers came from it, and 30 from"
    )


def test_the_certificate_says_what_the_book_says():
    filled = book(
        sent=900, never_sent=60, sent_late=40, most_in_flight=7, kernel_stamps=True, poller="compiled", peak_mb=12.5,
        processes=3, chosen="why", start_late_ns=1_234_567, lost=[KILLED], connections=8, connections_late=2, resent=5,
        errors=Counter(refused=4, tls=1, http_500=9), lag_ms=2.0, loop_ms=4.0,
    )  # fmt: skip
    found = certify(filled, OPEN)
    assert (found.loop, found.asked, found.offered, found.delivered, found.in_flight) == ("open", 100, 960, 860, 7)
    assert (found.stamps, found.poller, found.peak_mb, found.processes) == ("kernel", "compiled", 12.5, 3)
    assert (found.chosen, found.start_skew_ms, found.lost) == ("why", 1.2346, (KILLED,))
    assert (found.connections, found.connections_late, found.resent, found.connection_errors) == (8, 2, 5, 5)
    assert (found.lag.p50_ms, found.lag.p99_ms, found.lag.max_ms) == pytest.approx((2.0,) * 3, rel=0.01)
    assert found.loop_lag.p50_ms == pytest.approx(4.0, rel=0.01)
    assert found.read_lag == Lag(p50_ms=0.0, p99_ms=0.0, max_ms=0.0)
    assert found.cpu_share == 0.2 and found.arrivals.passed and not found.holds
    closed = certify(book(), CLOSED)
    assert (closed.loop, closed.asked, closed.stamps, closed.arrivals) == ("closed", 4, "process", None)


def test_gaps_are_judged_up_to_a_lag_of_two_milliseconds():
    uneven = [number * 10 * MS + number % 2 * 9 * MS for number in range(1000)]
    assert codes(certify(book(lag_ms=1.9, sent_times=uneven), OPEN)) == ["arrivals_bent"]
    assert codes(certify(book(lag_ms=2.1, sent_times=uneven), OPEN)) == []


def test_the_schedule_of_changing_rates_begins_with_the_warm_up():
    shape = Shape(arrivals=StepRates(rates=(100, 200), each=5, gaps="constant"), duration=8, warmup=2)
    due = [at * 10 * MS for at in range(500)] + [5000 * MS + at * 5 * MS for at in range(1000)]
    shifted = book(start_ns=2000 * MS, sent=1500)
    shifted.due_times[:], shifted.sent_times[:] = array("q", due), array("q", due)
    assert certify(shifted, shape).arrivals.statistic == 0.0
