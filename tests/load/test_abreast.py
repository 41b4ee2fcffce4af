"""Closed loops that one thread keeps busy, against a server that answers each line after the delay that it names."""

import asyncio
import socket
import threading
from collections import Counter
from itertools import islice

import pytest

from benchhouse.load.abreast import goes_abreast
from benchhouse.load.calls import CallTally
from benchhouse.load.engine import NotReached, run_load
from benchhouse.load.protocols.calls import CallFailed, Reply
from benchhouse.load.shape import Shape
from benchhouse.load.source import Planned, Pool
from benchhouse.schema.errors import BenchError


class LineServer:
    """`0.01` is answered with `ok` after 10 ms, `drop` by closing the connection."""

    def __init__(self):
        self.seen: Counter[str] = Counter()
        self.at_once = self.most_at_once = 0
        self._loop = asyncio.new_event_loop()
        self._server = self._loop.run_until_complete(asyncio.start_server(self._serve, "127.0.0.1", 0))
        self.port = self._server.sockets[0].getsockname()[1]
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    async def _serve(self, reader, writer):
        self.seen["connections"] += 1
        while line := (await reader.readline()).decode().strip():
            self.seen[line] += 1
            if line == "drop":
                break
            self.at_once += 1
            self.most_at_once = max(self.most_at_once, self.at_once)
            await asyncio.sleep(float(line))
            self.at_once -= 1
            writer.write(b"o")
            await asyncio.sleep(0)  # in two pieces: a driver must be able to say that there is more to come
            writer.write(b"k\n")
        writer.close()

    def close(self):
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()


class Line:
    """An abreast driver of that server."""

    transport = "call"
    abreast = True

    def __init__(self, port):
        self._port, self._socket, self._got = port, None, b""

    def open(self):
        try:
            self._socket = socket.create_connection(("127.0.0.1", self._port), 10)
        except ConnectionRefusedError as error:
            raise CallFailed("refused", str(error)) from None

    def fileno(self):
        return self._socket.fileno() if self._socket else -1

    def send(self, item):
        self._got = b""
        self._socket.sendall(f"{item}\n".encode())

    def take(self):
        data = self._socket.recv(100)
        if not data:
            self.close()
            raise CallFailed("reset", "the connection was closed")
        self._got += data
        return 1 if self._got.endswith(b"\n") else None

    def reply(self, _, count):
        return Reply(count=count)

    def operations(self, _, counts):
        return sum(counts)

    def close(self):
        if self._socket:
            self._socket.close()
            self._socket = None


@pytest.fixture
def server():
    made = LineServer()
    yield made
    made.close()


def load(port, items=("0.01",), **shape):
    pool = Pool([Planned(item) for item in items], seed=1)
    return run_load(lambda: Line(port), pool, Shape(**shape), CallTally)


def test_all_connections_are_kept_busy_at_once_and_each_call_is_counted_once(server):
    book = load(server.port, concurrency=8, requests=200, warmup=0)

    assert (book.sent, book.succeeded, book.failed) == (200, 200, 0)
    assert server.seen == {"0.01": 200, "connections": 8}
    assert (server.most_at_once, book.most_in_flight, book.connections) == (8, 8, 8)
    assert book.tally.operations == 200


def test_the_latency_is_never_less_than_what_the_server_took(server):
    book = load(server.port, items=("0.02",), concurrency=4, requests=40, warmup=0)
    assert book.tally.latency.histogram.n == 40
    assert book.tally.latency.histogram.min >= 20e6


@pytest.mark.serial
def test_the_latency_is_what_the_server_took(server):
    book = load(server.port, items=("0.02",), concurrency=4, requests=100, warmup=0)
    assert 20 <= book.tally.latency.histogram.quantile(0.5) / 1e6 < 24


def test_a_connection_that_is_lost_fails_its_call_alone_and_is_made_again(server):
    book = load(server.port, items=["0.001"] * 19 + ["drop"], concurrency=4, requests=100, warmup=0)

    assert book.sent == 100
    assert book.errors == {"reset": server.seen["drop"]}
    assert book.succeeded == 100 - server.seen["drop"] == server.seen["0.001"]
    assert 4 < server.seen["connections"] <= 4 + server.seen["drop"]


def test_a_load_by_time_ends_when_its_time_is_over(server):
    book = load(server.port, concurrency=4, duration=0.4, warmup=0.1, cooldown=0)
    assert book.failed == 0
    assert 0 < book.succeeded <= server.seen["0.01"]


def test_several_processes_share_the_connections(server):
    book = load(server.port, concurrency=6, requests=60, warmup=0, processes=2)
    assert (book.succeeded, server.seen["connections"]) == (60, 6)


def test_a_server_that_is_not_there_is_told_before_the_load(server):
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        port = nobody.getsockname()[1]
    with pytest.raises(NotReached, match="refused"):
        load(port, concurrency=2, requests=10, warmup=0)


def test_a_source_that_raises_ends_the_load_and_is_told(server):
    class Broken(Pool):
        def take(self, index):
            if index > 10:
                raise ValueError("nothing left")
            return super().take(index)

    with pytest.raises(BenchError, match="ValueError: nothing left"):
        run_load(
            lambda: Line(server.port),
            Broken([Planned("0.001")], 1),
            Shape(concurrency=2, requests=50, warmup=0),
            CallTally,
        )


@pytest.mark.parametrize(("size", "processes"), [(1, 1), (7, 2), (8, 2), (9, 3), (4, 6)])
def test_each_process_gets_the_items_that_the_source_has_for_its_numbers(size, processes):
    pool = Pool([Planned(number) for number in range(size)], seed=1)
    for shard in range(processes):
        calls = list(islice(pool.following(shard, processes), 3 * size))
        assert calls == [(index, pool.take(index).item) for index, _ in calls]
        assert [index for index, _ in calls] == list(range(shard, 3 * size * processes, processes))


def test_a_driver_that_goes_abreast_by_another_one_is_kept_busy_by_that(server):
    class Blocking(Line):
        def alongside(self):
            return Line(self._port)

        def open(self):
            raise AssertionError("it is the other one that connects")

    pool = Pool([Planned("0.001")], seed=1)
    shape = Shape(concurrency=4, requests=40, warmup=0)
    book = run_load(lambda: Blocking(server.port), pool, shape, CallTally)
    assert (book.succeeded, server.seen["connections"]) == (40, 4)


@pytest.mark.parametrize(("longest", "abreast"), [(5, True), (2, False)])
def test_requests_that_do_not_go_out_whole_are_left_to_threads(longest, abreast):
    class Short(Line):
        def goes_out_whole(self, item):
            return len(item) <= longest

    pool = Pool([Planned("0.01"), Planned("1")], seed=1)
    assert goes_abreast(Short(1), Shape(concurrency=2, requests=4), pool) is abreast
