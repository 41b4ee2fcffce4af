"""What both pollers do: `PythonPoller` says it, and the compiled one must do the same."""

import errno
import fcntl
import os
import select
import signal
import socket
import struct
import threading
import time
from typing import NamedTuple

import pytest

from benchhouse.load.answers_python import READ
from benchhouse.load.poller import OPEN, READABLE, WRITABLE, PythonPoller, make_poller

MS = 1_000_000
SECOND = 1000 * MS
_SO_TIMESTAMPNS = 35
_SIOCOUTQNSD = 0x894B  # bytes that were not yet sent
LARGE = bytes(range(256)) * 1000  # more than any read takes at once
BUSY_MS = 50  # what a busy machine may be late by


class Mark(NamedTuple):
    end: int
    stamp_ns: int
    floor_ns: int
    read_ns: int


class Pair:
    """A connection of TCP over the loopback: `near` is read by the poller, `far` is the server."""

    def __init__(self):
        with socket.create_server(("127.0.0.1", 0)) as listener:
            self.near = socket.create_connection(listener.getsockname())
            self.far, _ = listener.accept()
        self.near.setblocking(False)
        self.near.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
        self.far.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self, data):
        """The moments just before it was sent and just after; TCP may hold it back where much is not acknowledged."""
        before = time.monotonic_ns()
        self.far.sendall(data)
        while struct.unpack("i", fcntl.ioctl(self.far, _SIOCOUTQNSD, bytes(4)))[0]:
            time.sleep(0)
        return before, time.monotonic_ns()

    def reset(self):
        self.far.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.far.close()

    def close(self):
        self.near.close()
        self.far.close()


@pytest.fixture
def pairs():
    made = []

    def make(count=1):
        made.extend(Pair() for _ in range(count))
        return made[-count:]

    yield make
    for pair in made:
        pair.close()


@pytest.fixture
def pair(poller, pairs):
    """One that is read, and handed over on every read."""
    (made,) = pairs()
    compare_clocks(poller)
    poller.watch(made.near, READABLE)
    poller.collect(made.near, 0)
    return made


def compare_clocks(poller):
    looks = []
    for _ in range(9):
        before, real, after = time.monotonic_ns(), time.time_ns(), time.monotonic_ns()
        looks.append((after - before, real - (before + after) // 2))
    poller.realtime_ahead_ns = min(looks)[1]


def wait(poller, sleep=True, until_ns=0):
    """What happened, by file descriptor."""
    told = poller.wait(sleep, until_ns)
    return dict(zip(told[::2], told[1::2], strict=True))


def take(poller, file):
    data, marks, ended = poller.take(file)
    return data, [Mark(*numbers) for numbers in READ.iter_unpack(marks)], ended


def collected(poller, pair, size):
    """All that is handed over until there are so many bytes, and the marks with ends counted from the beginning."""
    data, marks = b"", []
    while len(data) < size:
        assert wait(poller) == {pair.near.fileno(): READABLE}
        part, its_marks, ended = take(poller, pair.near)
        assert ended == OPEN and [mark.end for mark in its_marks][-1] == len(part)
        marks += [mark._replace(end=mark.end + len(data)) for mark in its_marks]
        data += part
    return data, marks


def after_ms(delay_ms, work, *arguments):
    thread = threading.Timer(delay_ms / 1000, work, arguments)
    thread.start()
    return thread


# what is told


def test_a_watched_file_is_told_with_its_events_and_a_forgotten_one_is_not(poller, pairs):
    (made,) = pairs()
    poller.watch(made.near, WRITABLE)
    assert wait(poller) == {made.near.fileno(): WRITABLE}
    poller.watch(made.near, READABLE)
    assert wait(poller, sleep=False) == {}
    made.send(b"x")
    assert wait(poller) == {made.near.fileno(): READABLE}
    assert made.near.recv(10) == b"x"  # what is not collected is left alone
    poller.forget(made.near)
    made.send(b"y")
    time.sleep(0.02)
    assert wait(poller, sleep=False) == {}


def test_a_number_can_be_watched_as_well_as_a_socket(poller):
    reading, writing = os.pipe()
    poller.watch(reading, READABLE)
    os.write(writing, b"x")
    assert wait(poller) == {reading: READABLE}
    poller.forget(reading)
    os.close(reading)
    os.close(writing)


def test_what_is_not_watched_is_a_key_error_and_no_crash(poller, pairs):
    (made,) = pairs()
    for call in (lambda: poller.take(made.near), lambda: poller.collect(made.near, 0)):
        with pytest.raises(KeyError):
            call()
    with pytest.raises((KeyError, OSError)):
        poller.forget(made.near)


def test_a_file_that_cannot_be_watched_is_told_and_does_not_count_as_watched(poller, tmp_path):
    with (tmp_path / "plain").open("w") as plain:
        with pytest.raises(PermissionError):  # epoll takes no regular files
            poller.watch(plain.fileno(), READABLE)
        with pytest.raises((KeyError, OSError)):
            poller.forget(plain.fileno())
    with pytest.raises(ValueError, match="negative"):
        poller.watch(-1, READABLE)


def test_several_sockets_are_told_each_with_what_it_brought(poller, pairs):
    made = pairs(5)
    for each in made:
        poller.watch(each.near, READABLE)
        poller.collect(each.near, 0)
    for number in (0, 2, 4):
        made[number].send(b"from %d" % number)
    told = {}
    while len(told) < 3:
        told |= wait(poller)
    assert told == {made[number].near.fileno(): READABLE for number in (0, 2, 4)}
    assert [poller.take(each.near)[0] for each in made] == [b"from 0", b"", b"from 2", b"", b"from 4"]


# when it is handed over


def test_with_enough_of_nothing_every_read_is_handed_over(poller, pair):
    for text in (b"one", b"two"):
        pair.send(text)
        assert wait(poller) == {pair.near.fileno(): READABLE}
        data, marks, ended = take(poller, pair.near)
        assert (data, [mark.end for mark in marks], ended) == (text, [3], OPEN)
    assert take(poller, pair.near) == (b"", [], OPEN)


def test_reads_are_kept_until_so_many_bytes_are_there(poller, pair):
    poller.collect(pair.near, 10)
    for text in (b"one", b"two", b"three"):
        assert wait(poller, sleep=False) == {}
        pair.send(text)
        time.sleep(0.02)
    assert wait(poller) == {pair.near.fileno(): READABLE}
    data, marks, _ = take(poller, pair.near)
    assert (data, [mark.end for mark in marks]) == (b"onetwothree", [3, 6, 11])


def test_a_read_that_ends_with_an_empty_line_is_handed_over(poller, pair):
    poller.collect(pair.near, 1 << 20)
    for text in (b"HTTP/1.1 200 OK\r\n", b"\r\n"):  # the line end may come in two reads
        assert wait(poller, sleep=False) == {}
        pair.send(text)
        time.sleep(0.02)
    assert wait(poller) == {pair.near.fileno(): READABLE}
    data, marks, _ = take(poller, pair.near)
    assert (data, [mark.end for mark in marks]) == (b"HTTP/1.1 200 OK\r\n\r\n", [17, 19])


def test_a_thread_that_may_sleep_goes_on_sleeping_until_there_is_something_to_hand_over(poller, pair):
    poller.collect(pair.near, 6)
    threads = [after_ms(20, pair.send, b"abc"), after_ms(60, pair.send, b"def")]
    assert wait(poller) == {pair.near.fileno(): READABLE}
    assert poller.take(pair.near)[0] == b"abcdef"
    for thread in threads:
        thread.join()


def test_a_close_is_handed_over_with_what_came_before_it(poller, pair):
    poller.collect(pair.near, 1 << 20)
    pair.send(b"the end")
    pair.far.close()
    assert wait(poller) == {pair.near.fileno(): READABLE}
    data, marks, ended = take(poller, pair.near)
    if ended == OPEN:  # the close came behind a read
        assert wait(poller) == {pair.near.fileno(): READABLE}
        more, _, ended = take(poller, pair.near)
        assert more == b""
    assert (data, len(marks), ended) == (b"the end", 1, 0)
    assert wait(poller)  # it stays ended, and is told until it is forgotten
    assert take(poller, pair.near) == (b"", [], 0)


def test_a_reset_is_handed_over_by_its_number(poller, pair):
    poller.collect(pair.near, 1 << 20)
    pair.reset()
    assert wait(poller) == {pair.near.fileno(): READABLE}
    assert take(poller, pair.near) == (b"", [], errno.ECONNRESET)


def test_what_is_collected_no_longer_is_left_in_the_socket(poller, pair):
    poller.collect(pair.near, -1)
    pair.send(b"for somebody else")
    assert wait(poller) == {pair.near.fileno(): READABLE}
    assert poller.take(pair.near)[0] == b""
    assert pair.near.recv(100) == b"for somebody else"


def test_a_socket_that_can_be_written_is_told_so_while_it_is_collected(poller, pair):
    poller.watch(pair.near, READABLE | WRITABLE)
    poller.collect(pair.near, 100)
    pair.send(b"few")
    time.sleep(0.02)
    assert wait(poller) == {pair.near.fileno(): WRITABLE}  # read, but not yet enough
    assert poller.take(pair.near)[0] == b"few"


# large contents


@pytest.mark.parametrize("size", [1 << 14, 1 << 15, 1 << 16, 256_000, 3 << 20])
def test_contents_of_any_size_come_whole_and_in_order(poller, pair, size):
    content = (LARGE * 13)[:size]
    sender = threading.Thread(target=pair.send, args=(content,))
    sender.start()
    data, marks = collected(poller, pair, size)
    sender.join()
    assert data == content
    ends = [mark.end for mark in marks]
    assert ends == sorted(ends) and ends[-1] == size


def test_of_a_content_that_is_too_large_to_be_kept_the_rest_is_no_younger_than_the_last_look(poller, pair):
    """It was in the socket all the time: a look at it after the first part is no sign that it came later."""
    pair.near.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20)
    pair.far.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8 << 20)
    wait(poller, sleep=False)
    pair.far.settimeout(1)
    sent, content = 0, LARGE * 13
    try:
        while sent < len(content):
            sent += pair.far.send(content[sent:])
    except TimeoutError:
        pass
    arrived = time.monotonic_ns()
    if sent < 2 << 20:
        pytest.skip("the kernel keeps no more than that")
    time.sleep(0.05)
    got = 0
    while got < 2 << 20:
        wait(poller)
        data, marks, _ = take(poller, pair.near)
        got += len(data)
        assert [mark for mark in marks if mark.floor_ns > arrived] == []
        time.sleep(0.02)


# sockets that go


def test_a_forgotten_socket_is_not_told_though_it_was_found_ready_already(poller, pairs):
    made = pairs(3)
    for each in made:
        poller.watch(each.near, READABLE)
        poller.collect(each.near, 0)
        each.send(b"x")
    time.sleep(0.02)
    first = wait(poller, until_ns=1)  # long ago: one is read, and the others wait for the next call
    assert len(first) == 1
    (second, third) = (each for each in made if each.near.fileno() not in first)
    poller.forget(second.near)
    assert wait(poller) == {third.near.fileno(): READABLE}
    assert wait(poller, sleep=False) == {}


def test_a_number_that_is_used_again_brings_nothing_of_the_socket_before(poller, pairs):
    old, other = pairs(2)
    for each in (old, other):
        poller.watch(each.near, READABLE)
        poller.collect(each.near, 1 << 20)
        each.send(b"old")
    time.sleep(0.02)
    wait(poller, sleep=False, until_ns=1)
    wait(poller, sleep=False)  # both are read now, and kept
    old.send(b"older")
    other.send(b"older")
    time.sleep(0.02)
    wait(poller, sleep=False, until_ns=1)  # one of the two is ready, and not read
    number = old.near.fileno()
    poller.forget(old.near)
    old.near.close()
    (new,) = pairs()
    if new.near.fileno() != number:
        os.dup2(new.near.fileno(), number)
        new.near.close()
        new.near = socket.socket(fileno=number)
    poller.watch(new.near, READABLE)
    assert wait(poller, sleep=False) == {}
    assert take(poller, new.near) == (b"", [], OPEN)
    poller.collect(new.near, 0)
    new.send(b"new")
    assert wait(poller) == {number: READABLE}
    data, marks, ended = take(poller, new.near)
    assert (data, [mark.end for mark in marks], ended) == (b"new", [3], OPEN)


def test_reading_stops_at_the_given_time_and_the_next_call_goes_on(poller, pairs):
    made = pairs(4)
    for each in made:
        poller.watch(each.near, READABLE)
        poller.collect(each.near, 0)
        each.send(b"x")
    time.sleep(0.02)
    told = []
    for _ in made:
        one = wait(poller, until_ns=time.monotonic_ns())
        assert len(one) == 1
        told += one
    assert sorted(told) == sorted(each.near.fileno() for each in made)


# stamps and floors


def test_a_stamp_lies_between_the_moments_before_and_after_the_send(poller, pair):
    for _ in range(20):
        before, after = pair.send(b"x")
        time.sleep(0.002)
        wait(poller)
        _, (mark,), _ = take(poller, pair.near)
        # The loopback delivers during the send, or hands that to a thread of the kernel.
        assert before - MS / 2 <= mark.stamp_ns <= after + BUSY_MS * MS
        assert mark.floor_ns <= mark.stamp_ns <= mark.read_ns


def test_of_two_that_wait_in_the_socket_the_stamp_is_that_of_the_second_and_the_floor_before_the_first(poller, pair):
    for looks in (False, True):
        if looks:  # of a poller that has just looked, and found nothing
            assert wait(poller, sleep=False) == {}
        before_first, after_first = pair.send(b"one")
        time.sleep(0.01)
        before_second, _ = pair.send(b"two")
        time.sleep(0.01)
        assert wait(poller) == {pair.near.fileno(): READABLE}
        data, (mark,), _ = take(poller, pair.near)
        assert data == b"onetwo"
        assert mark.stamp_ns >= before_second - MS / 2
        assert mark.floor_ns <= after_first
        if looks:
            assert mark.floor_ns >= before_first - BUSY_MS * MS


def test_a_floor_is_never_later_than_what_came_however_often_it_is_looked_at(poller, pair):
    """Words of a byte each, sent at moments that are known; read now and then, asleep or not."""
    sent, done = [], threading.Event()

    def send():
        for number in range(300):
            sent.append(pair.send(bytes([number % 256]))[1])
            time.sleep((number * 7 % 5) / 2000)
        done.set()

    thread = threading.Thread(target=send)
    thread.start()
    got, wrong = 0, []
    while got < 300:
        wait(poller, sleep=got % 3 == 0 and not done.is_set())
        data, marks, _ = take(poller, pair.near)
        start = got
        for mark in marks:
            if mark.floor_ns > sent_by(sent, start) or mark.floor_ns > mark.stamp_ns:
                wrong.append((start, mark))
            start = got + mark.end
        got += len(data)
        time.sleep((got * 11 % 7) / 3000)
    thread.join()
    assert wrong == []


def sent_by(sent, number):
    """When a word had been sent, as its sender says; it may be read before its sender can say it."""
    while len(sent) <= number:
        time.sleep(0.001)
    return sent[number]


@pytest.mark.serial
def test_a_poller_that_is_woken_later_than_it_was_to_be_takes_that_off_its_floors(poller, pair):
    """As by a virtual core that its host does not run."""
    late_ns = 60 * MS
    for number, due in enumerate((time.monotonic_ns() + 5 * MS, 0, 0)):
        sender = os.fork()  # not a thread: with another thread a poller does not trust the time of its wake-up
        if sender == 0:
            time.sleep(0.065)
            pair.send(b"two")
            os._exit(0)
        begun = time.monotonic_ns()
        wait(poller, until_ns=due)
        os.waitpid(sender, 0)
        _, marks, _ = take(poller, pair.near)
        floor = marks[0].floor_ns
        if number:  # the first one only told how late it can be
            assert floor == pytest.approx(begun, abs=20 * MS) and marks[0].stamp_ns - floor >= late_ns - 20 * MS


@pytest.mark.serial
def test_a_poller_that_sleeps_knows_that_what_woke_it_has_just_come(poller, pairs):
    """In a child, as a load process is one: other threads of this process would have Python's lock now and then."""
    (pair,) = pairs()
    child = os.fork()
    if child == 0:
        good = False
        try:
            mine = type(poller)()
            compare_clocks(mine)
            mine.watch(pair.near, READABLE)
            mine.collect(pair.near, 0)
            doubts = []
            while len(doubts) < 20:
                wait(mine)
                doubts += [mark.stamp_ns - mark.floor_ns for mark in take(mine, pair.near)[1]]
            good = min(doubts) >= 0 and sorted(doubts)[10] < 5 * MS  # of a sleep of 30 ms
        finally:
            os._exit(not good)
    for _ in range(20):
        time.sleep(0.03)
        pair.far.sendall(b"x")
    assert os.waitpid(child, 0)[1] == 0


def test_a_poller_that_was_stopped_while_it_slept_does_not_claim_to_know_when_it_was_woken(poller, pair):
    """A child stops this process, sends two words meanwhile, and lets it run again."""
    wait(poller, sleep=False)
    child = os.fork()
    if child == 0:
        try:
            time.sleep(0.1)
            os.kill(os.getppid(), signal.SIGSTOP)
            time.sleep(0.02)
            pair.far.sendall(b"one")
            time.sleep(0.1)
            pair.far.sendall(b"two")
            time.sleep(0.02)
            os.kill(os.getppid(), signal.SIGCONT)
        finally:
            os._exit(0)
    wait(poller)
    data, marks, _ = take(poller, pair.near)
    os.waitpid(child, 0)
    assert data == b"onetwo"
    assert marks[0].stamp_ns - marks[0].floor_ns >= 90 * MS


def test_without_stamps_of_the_kernel_the_time_of_the_read_stands_for_them(poller, pair):
    pair.near.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 0)
    pair.send(b"x")
    wait(poller)
    _, (mark,), _ = take(poller, pair.near)
    assert mark.stamp_ns == mark.read_ns


@pytest.mark.slow("a stamp counts also when its reader was away for more than the 10 s that clocks may be apart")
def test_a_stamp_is_believed_however_long_its_reader_was_away(poller, pair):
    """Like a reader that was stopped at a terminal, and goes on a while later."""
    wait(poller, sleep=False)
    _, after = pair.send(b"x")
    time.sleep(11)
    wait(poller)
    _, (mark,), _ = take(poller, pair.near)
    assert mark.stamp_ns <= after + BUSY_MS * MS


@pytest.mark.parametrize("wrong_by", [-60 * SECOND, 60 * SECOND])
def test_a_clock_that_was_set_is_not_believed(poller, pair, wrong_by):
    poller.realtime_ahead_ns += wrong_by
    pair.send(b"x")
    wait(poller)
    _, (mark,), _ = take(poller, pair.near)
    assert mark.stamp_ns == mark.read_ns


# the rest


def test_a_signal_ends_a_sleep_by_what_its_handler_raises(poller):
    def handler(*_):
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGUSR1, handler)
    thread = after_ms(50, os.kill, os.getpid(), signal.SIGUSR1)
    try:
        with pytest.raises(KeyboardInterrupt):
            poller.wait(True, 0)
    finally:
        thread.join()
        signal.signal(signal.SIGUSR1, before)


def test_a_signal_ends_a_sleep_though_answers_trickle_in_that_are_not_complete(poller, pair):
    def handler(*_):
        raise KeyboardInterrupt

    poller.collect(pair.near, 1 << 20)
    over = threading.Event()

    def trickle():
        while not over.wait(0.0005):
            pair.send(b"x")

    before = signal.signal(signal.SIGUSR1, handler)
    threads = [threading.Thread(target=trickle), threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGUSR1))]
    for thread in threads:
        thread.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            poller.wait(True, 0)
    finally:
        over.set()
        for thread in threads:
            thread.join()
        signal.signal(signal.SIGUSR1, before)


def test_other_threads_run_while_a_poller_sleeps(poller, pair):
    thread = after_ms(20, pair.send, b"x")
    assert wait(poller) == {pair.near.fileno(): READABLE}
    thread.join()


def test_a_closed_poller_gives_its_files_back_and_can_be_closed_twice(poller, pairs):
    (made,) = pairs()
    open_before = len(os.listdir("/proc/self/fd"))
    second = type(poller)()
    second.watch(made.near, READABLE)
    second.close()
    second.close()
    assert len(os.listdir("/proc/self/fd")) == open_before
    with pytest.raises((OSError, ValueError)):
        second.wait(False, 0)


def test_the_poller_is_compiled_unless_the_environment_asks_for_python(monkeypatch):
    compiled = pytest.importorskip("benchhouse.load._poller", exc_type=ImportError)
    monkeypatch.delenv("BENCHHOUSE_ENGINE", raising=False)
    for wanted in (compiled.Poller, PythonPoller):
        made = make_poller()
        assert type(made) is wanted
        made.close()
        monkeypatch.setenv("BENCHHOUSE_ENGINE", "python")


def test_events_have_the_names_that_the_kernel_gives_them():
    assert (READABLE, WRITABLE) == (select.EPOLLIN, select.EPOLLOUT)
