import os
import time

import pytest

from benchhouse.load.reactor import _MOST_LATER, Reactor

pytestmark = pytest.mark.usefixtures("each_engine")

MS = 1_000_000


@pytest.fixture
def reactor():
    made = Reactor()
    yield made
    made.close()


def test_callbacks_come_in_the_order_of_their_times_and_never_early(reactor):
    now, came = time.monotonic_ns(), []
    for after_ms in (30, 10, 20, 10):
        reactor.at(now + after_ms * MS, lambda when: came.append((when - now, time.monotonic_ns() - when)))
    reactor.at(now + 40 * MS, lambda _: reactor.stop())
    reactor.run()
    assert [when for when, _ in came] == [10 * MS, 10 * MS, 20 * MS, 30 * MS]
    assert min(late for _, late in came) >= 0


@pytest.mark.serial
def test_a_callback_is_a_fraction_of_a_millisecond_late_on_most_occasions(reactor):
    now, late = time.monotonic_ns(), []
    for number in range(1, 51):
        reactor.at(now + number * 3 * MS + 123_456, lambda when: late.append(time.monotonic_ns() - when))
    reactor.at(now + 160 * MS, lambda _: reactor.stop())
    reactor.run()
    assert sorted(late)[25] < MS / 2


def test_sockets_are_served_even_when_the_schedule_is_hopelessly_behind(reactor):
    reading, writing = os.pipe()
    os.write(writing, b"x")
    fired = []

    def again(when):  # always due at once
        fired.append(when)
        reactor.at(when, again)

    reactor.watch(reading, lambda _: reactor.stop())
    reactor.at(time.monotonic_ns(), again)
    reactor.run()
    assert len(fired) < 1000
    os.close(reading)
    os.close(writing)


def test_work_for_later_that_piles_up_takes_turns_with_sockets_that_are_always_ready(reactor):
    """As of a client that is asked for more than it can do: what waits must not grow without end."""
    reading, writing = os.pipe()
    seen, done = [], []

    def again(_):
        seen.append(os.read(reading, 1))
        os.write(writing, b"x")

    os.write(writing, b"x")
    reactor.watch(reading, again)
    reactor.later.extend([(done.append, (1,))] * (_MOST_LATER + 500))
    reactor.at(time.monotonic_ns() + 200 * MS, lambda _: reactor.stop())
    reactor.run()
    assert len(done) >= 500 and len(reactor.later) <= _MOST_LATER and len(seen) > 100
    os.close(reading)
    os.close(writing)


def test_work_for_later_waits_until_nothing_else_is_to_be_done(reactor):
    done = []
    for number in range(5):
        reactor.later.append((done.append, (number,)))
    reactor.at(time.monotonic_ns() + 20 * MS, lambda _: reactor.stop())
    reactor.run()
    assert done == [0, 1, 2, 3, 4]


def test_a_handler_that_another_one_has_removed_is_not_called(reactor):
    pipes = [os.pipe() for _ in range(2)]
    called = []

    def handler(name, other):
        def call(_):
            called.append(name)
            reactor.forget(other)
            reactor.stop()

        return call

    for (reading, writing), other in zip(pipes, (pipes[1][0], pipes[0][0]), strict=True):
        os.write(writing, b"x")
        reactor.watch(reading, handler(reading, other))
    reactor.run()
    assert len(called) == 1


def test_real_time_is_ahead_of_the_monotonic_clock_by_what_the_clocks_say(reactor):
    assert abs(time.monotonic_ns() + reactor.poller.realtime_ahead_ns - time.time_ns()) < 5 * MS


def test_an_early_reactor_is_no_earlier_and_counts_what_it_spends_on_waiting():
    """A busy machine may wake it too late to wait for anything: so until it has waited."""
    early, came = Reactor(early_ns=2 * MS), []

    def again(when):
        came.append(time.monotonic_ns() - when)
        if early.spun_ns or len(came) == 1000:
            early.stop()
        else:
            early.at(time.monotonic_ns() + 10 * MS, again)

    began = time.monotonic_ns()
    early.at(began + 10 * MS, again)
    early.run()
    early.close()
    assert min(came) >= 0
    assert 0 < early.spun_ns < time.monotonic_ns() - began - 5 * MS, "it sleeps for most of the first 10 ms"


def test_what_is_due_does_not_wait_for_a_row_of_sockets(reactor):
    """Ten sockets are readable at once, and each takes 5 ms: what becomes due meanwhile comes after one of them."""
    pipes, order = [os.pipe() for _ in range(10)], []

    def slow(_, fd):
        os.read(fd, 1)
        order.append("socket")
        time.sleep(0.005)

    for reading, writing in pipes:
        os.write(writing, b"x")
        reactor.watch(reading, lambda mask, fd=reading: slow(mask, fd))
    reactor.at(time.monotonic_ns() + 12 * MS, lambda _: order.append("due"))
    reactor.at(time.monotonic_ns() + 500 * MS, lambda _: reactor.stop())
    reactor.run()
    assert order.count("socket") == 10
    assert order.index("due") < 9
    for pair in pipes:
        for fd in pair:
            os.close(fd)
