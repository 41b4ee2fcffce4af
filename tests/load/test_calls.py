"""What is kept of calls, one by one and many at once."""

import dataclasses
import random
from types import SimpleNamespace

import pytest
from tables import check_rows

from benchhouse.experiments.storage.postgres_tables import PostgresTally
from benchhouse.experiments.vector.search_load import AnswerTally
from benchhouse.load.calls import CallTally
from benchhouse.load.load_record import Answers, Call, LoadRecord
from benchhouse.load.protocols.calls import CallResult
from benchhouse.load.protocols.postgres import Effect, Work
from benchhouse.load.slo import parse_slo

MS = 1_000_000
START, END = 1_000 * MS, 4_000 * MS


def calls(count, seed=1, first_ms=0, open_loop=False):
    """Calls of two kinds, of 1 to 40 ms, all in the window."""
    rng = random.Random(seed)
    made = []
    for number in range(count):
        due = START + first_ms * MS + rng.randrange(2_900 * MS)
        call = Call(number, due, True, SimpleNamespace(kind=rng.choice(("get", "put"))))
        call.sent_ns = due + (rng.randrange(5 * MS) if open_loop else 0)
        call.ended_ns = call.sent_ns + rng.randrange(1, 40) * MS
        first_byte = (call.sent_ns + MS // 2,) if rng.random() < 0.5 else ()
        made.append((call, CallResult(size=rng.randrange(1000), count=rng.randrange(1, 4), token_ns=first_byte)))
    return made


def book(slo=None):
    return LoadRecord(CallTally(slo), objectives=len(slo.clauses) if slo else 0, start_ns=START, end_ns=END)


def content(one):
    """All that a book and its tally hold, as comparable values."""
    tally = one.tally
    streams = {name: getattr(tally, name).histogram.to_json() for name in ("latency", "latency_sent", "first_byte")}
    kinds = {kind: stream.histogram.to_json() for kind, stream in tally.by_kind.items()}
    sizes = {kind: size for kind, size in tally.bytes_by_kind.items() if size}
    sums = (tally.calls, tally.bytes, tally.operations, sizes)
    counts = (one.sent, one.succeeded, one.unmeasured, one.failed, one.completed_in_window, dict(one.errors))
    ends = (one.first_ended_ns, one.last_ended_ns)
    seconds = {number: dataclasses.asdict(second) for number, second in sorted(one.seconds.items())}
    return streams, kinds, sums, counts, ends, seconds, one.lag.histogram.to_json()


def odd_ones():
    """Outside of the window, not measured, failed: whatever keeps a row of calls from being plain."""
    made = calls(20, seed=3)
    made[3][0].measured = False
    made[5][0].ended_ns = END + 5
    made[7] = (made[7][0], CallResult(error="timeout", detail="too long"))
    return made


def test_many_at_once_come_to_the_same_as_one_by_one():
    rows = [
        (calls(300), None),
        (calls(300, open_loop=True), None),
        (odd_ones(), None),
        (calls(50), parse_slo("latency.p90<10ms")),
    ]

    def check(rows, slo):
        one_by_one, at_once = book(slo), book(slo)
        for call, reply in rows:
            one_by_one.wrote(call)
            one_by_one.settle(call, reply)
        for start in range(0, len(rows), 7):
            at_once.wrote_many([call for call, _ in rows[start : start + 7]])
            at_once.settle_many(rows[start : start + 7])
        assert content(at_once) == content(one_by_one)
        assert at_once.answered == pytest.approx(one_by_one.answered)

    check_rows(check, rows)


def searches(count, seed=5):
    """Calls with numbers for items, some of them asked twice, in the order of a thread; each has its own answer."""
    rng = random.Random(seed)
    rows = []
    for number, (call, _) in enumerate(sorted(calls(count, seed), key=lambda row: row[0].sent_ns)):
        call.item = rng.randrange(count // 2)
        rows.append((call, CallResult(count=2, value=number)))
    return rows


def columns(rows):
    return Answers(
        [call.item for call, _ in rows],
        [reply.value for _, reply in rows],
        [call.sent_ns for call, _ in rows],
        [call.ended_ns for call, _ in rows],
        2 * len(rows),
    )


@pytest.mark.parametrize("drains", [0, 4])
def test_columns_come_to_the_same_as_one_by_one(drains):
    one_by_one, at_once = (LoadRecord(AnswerTally(), start_ns=START, end_ns=END, drains=drains) for _ in range(2))
    rows = searches(300)
    for call, reply in rows:
        one_by_one.wrote(call)
        one_by_one.settle(call, reply)
    for start in range(0, len(rows), 7):
        assert at_once.settle_answers(columns(rows[start : start + 7]))
    assert content(at_once) == content(one_by_one)
    assert at_once.tally.kept() == one_by_one.tally.kept()
    assert at_once.answered == pytest.approx(one_by_one.answered)
    one_by_one.close()
    at_once.close()
    assert at_once.rate_to_last_send == one_by_one.rate_to_last_send


@pytest.mark.parametrize("writes", [True, False])
def test_columns_of_transactions_come_to_the_same_as_one_by_one(writes):
    one_by_one, at_once = (LoadRecord(PostgresTally(writes=writes), start_ns=START, end_ns=END) for _ in range(2))
    rows = []
    for number, (call, _) in enumerate(calls(300)):
        kind, effect = (("update", Effect(balance=number, hits=1)), ("lookup", None))[number % 3 > 0]
        call.item = Work(kind, [], effect)
        rows.append((call, CallResult(count=2, value=number)))
    for call, reply in rows:
        one_by_one.wrote(call)
        one_by_one.settle(call, reply)
    for start in range(0, len(rows), 7):
        assert at_once.settle_answers(columns(rows[start : start + 7]))
    found = content(at_once)
    assert found == content(one_by_one)
    assert found[1].keys() == {"lookup", "update"}
    assert at_once.tally.written == one_by_one.tally.written
    assert at_once.tally.written.acknowledged.hits == (100 if writes else 0)


def test_columns_that_are_not_plain_are_left_to_be_written_one_by_one():
    rows = [
        {"start_ns": START + 2_000 * MS},
        {"end_ns": END - 2_000 * MS},
        {"objectives": 1},
        {"spool": object()},
        {"tally": CallTally()},
    ]

    def check(change):
        one = dataclasses.replace(LoadRecord(AnswerTally(), start_ns=START, end_ns=END), **change)
        assert not one.settle_answers(columns(searches(50)))
        assert (one.sent, one.succeeded, one.tally.calls, one.seconds) == (0, 0, 0, {})

    check_rows(check, rows)


def test_tallies_of_two_processes_merge_exactly():
    whole, first, second = CallTally(), CallTally(), CallTally()
    rows = calls(100)
    whole.add_many(rows)
    first.add_many(rows[:40])
    second.add_many(rows[40:])
    first.merge(second)
    merged, alone = book(), book()
    merged.tally, alone.tally = first, whole
    assert content(merged) == content(alone)


def test_a_failed_call_is_in_no_latency_and_over_every_objective():
    tally = CallTally(parse_slo("latency.p99<1s,error<1%"))
    ((call, _),) = calls(1)
    assert tally.add(call, CallResult(error="reset"), START, END) == 0b11
    assert (tally.calls, tally.latency.histogram.n) == (0, 0)
    assert tally.add(call, CallResult(), START, END) == 0
    call.ended_ns = call.due_ns + 2_000 * MS
    assert tally.add(call, CallResult(), START, END) == 0b01


def test_latency_by_kind_adds_up_to_the_whole():
    tally = CallTally()
    rows = calls(200)
    tally.add_many(rows)
    assert sum(stream.histogram.n for stream in tally.by_kind.values()) == 200
    for kind in ("get", "put"):
        truth = [call.ended_ns - call.due_ns for call, _ in rows if call.item.kind == kind]
        assert tally.by_kind[kind].histogram.mean == pytest.approx(sum(truth) / len(truth))
