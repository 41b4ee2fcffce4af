"""Measures how much CPU this engine needs per request on this machine, in a tenth of a second against its own echo."""

import os
import select
import signal
import socket
from time import monotonic_ns
from typing import ClassVar, Literal

from benchhouse.load.calls import CallTally
from benchhouse.load.endpoint import HttpEndpoint
from benchhouse.load.load_record import LoadRecord, SendSchedule
from benchhouse.load.protocols.calls import CallResult, Exchange
from benchhouse.load.shape import Shape
from benchhouse.load.sockets import SocketLoad
from benchhouse.load.source import Planned, RequestPool
from benchhouse.schema.errors import BenchError

_MOST_EVENTS = 64  # per answer of the echo: more would leave too few answers
_SHAPE = Shape(concurrency=16, duration=0.1, warmup=0.02, timeout=1.0, processes=1)
_REQUEST = b"GET / HTTP/1.1\r\nHost: echo\r\n\r\n"
_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
_EVENT = b"data: " + b"x" * 120 + b"\n\n"
_PIECE = b"%x\r\n%b\r\n" % (len(_EVENT), _EVENT)
_END = b"0\r\n\r\n"
_GIVE_UP_S = 2.0
_EDGE_NS = 1_000_000
_BY_HAND = "say how many load processes there are: workload: {processes: 1}"


class _Echo:
    """A driver whose answers are not parsed: parsing is a cost of each driver."""

    transport: ClassVar[Literal["http"]] = "http"

    def __init__(self, url: str) -> None:
        self.url = url

    def request(self, item: object) -> bytes:
        return _REQUEST

    def read(self, exchange: Exchange) -> CallResult:
        return CallResult()


def request_cost_s(events: float) -> float:
    """Return the CPU seconds of a request whose answer is a stream of this number of events."""
    streamed = min(max(round(events), 1), _MOST_EVENTS)
    return _measure(streamed) * max(events / streamed, 1.0)


def _measure(events: int) -> float:
    with socket.create_server(("127.0.0.1", 0), backlog=64) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        pid = os.fork()
        if pid == 0:
            try:
                _echo(listener, events)
            finally:
                os._exit(0)  # in a fork, the parent's atexit functions and frames must not run
        try:
            book = LoadRecord(CallTally())
            driver = _Echo(url)
            load = SocketLoad(driver, RequestPool([Planned(None, _REQUEST)], 0), _SHAPE, book, [HttpEndpoint(url)])
            if problem := load.prepare(_SHAPE.most_in_flight):
                raise BenchError(f"the engine can't reach an echo of its own at {url}: {problem}", _BY_HAND)
            load.run(SendSchedule(_SHAPE, monotonic_ns() + _EDGE_NS, 0))
            return book.cpu_all_ns / 1e9 / max(book.answered, 1.0)
        finally:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def _echo(listener: socket.socket, events: int) -> None:
    """Answer on all connections in turn, one event at a time, like the streams of a server."""
    clients: dict[int, socket.socket] = {}
    left: dict[int, int] = {}  # events of started answers
    with select.epoll() as poll:
        poll.register(listener, select.EPOLLIN)
        while (ready := poll.poll(0 if left else _GIVE_UP_S)) or left:
            for fd, _ in ready:
                if fd == listener.fileno():
                    client, _ = listener.accept()
                    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    clients[client.fileno()] = client
                    poll.register(client, select.EPOLLIN)
                elif clients[fd].recv(1024):
                    left[fd] = events
                else:
                    return  # the measurement is over
            for fd, number in list(left.items()):
                first, last = _HEAD if number == events else b"", _END if number == 1 else b""
                clients[fd].send(first + _PIECE + last)
                left[fd] = number - 1
                if not left[fd]:
                    del left[fd]
