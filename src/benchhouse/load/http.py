"""A client connection for HTTP/1.1 on the reactor: it moves bytes, stamps each read, and tells when an answer ends.

Stamps come from the kernel where it gives them: then the time that this process takes to get round to reading is in
no latency.
"""

import errno
import os
import select
import socket
import ssl
import struct
from collections.abc import Callable, Iterator, Sequence
from time import monotonic_ns

from benchhouse.load.endpoint import Endpoint, Place
from benchhouse.load.framing import Answer, Malformed
from benchhouse.load.protocols.calls import Exchange, Sink, discard
from benchhouse.load.reactor import Reactor

_SO_TIMESTAMPNS = 35
_READ_BYTES = 1 << 16  # a larger buffer is a mapping of its own, and costs more than the read
_ANCILLARY_BYTES = 64
_LONGEST_LAG_NS = 10_000_000_000
_STAMP = struct.Struct("=qq")
_GONE = (errno.ECONNRESET, errno.EPIPE, errno.ECONNABORTED)
_LOW_BYTES = 1 << 20  # of a long body, what must have come before the kernel says so
_ROOM = memoryview(bytearray(_LOW_BYTES))  # for what a sink takes, used up before the next read of any connection

Done = Callable[["Connection", Exchange, str | None, str], None]


class Connection:
    """One socket; one request at a time. `done(connection, exchange, error, detail)` is called exactly once for each.

    `error` is None for an answer that is complete, else a kind of `protocols.calls.ERRORS`, or `stale`: the server had
    closed a connection that was kept open, before it saw the request, which may be sent again.
    """

    __slots__ = (
        "_answer", "_data", "_done", "_endpoint", "_handshaking", "_incoming", "_kept", "_low", "_more", "_outgoing",
        "_pieces", "_reactor", "_read_ns", "_recvmsg", "_socket", "_tls", "_unsent", "busy", "exchange",
        "kernel_stamps", "last_error", "place", "read_lag_ns", "ready",
    )  # fmt: skip

    def __init__(self, reactor: Reactor, endpoint: Endpoint, done: Done) -> None:
        self._reactor, self._endpoint, self._done = reactor, endpoint, done
        self._socket: socket.socket | None = None
        self.ready = False
        self._tls: ssl.SSLObject | None = None
        self._handshaking = False
        self._data = b""
        self._pieces: Sequence[memoryview] = ()  # of the request, after its data
        self._more: Iterator[memoryview] | None = None  # of these, what has not been handed to `_push`
        self._unsent = memoryview(b"")
        self.exchange = Exchange(0)
        self._answer = Answer()
        self._read_ns = 0
        self._low = 1  # bytes that must have come before the kernel says so
        self._kept = False  # the connection had been open before the request came
        self.last_error = ""  # why it is not open
        self.place: Place | None = None  # where the answers of its endpoint are counted, if there are several
        self.busy = self.kernel_stamps = False
        self.read_lag_ns = 0  # of the last read: from the kernel's stamp to this process

    @property
    def open(self) -> bool:
        return self._socket is not None

    def connect(self) -> None:
        """Begin to connect; a request given meanwhile is sent as soon as that is done."""
        try:
            made = socket.socket(self._endpoint.family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)  # and close-on-exec
        except OSError as error:  # too many open files, mostly
            self.fail("refused", error.strerror or str(error))
            return
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            made.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
            self.kernel_stamps = True
        except OSError:
            self.kernel_stamps = False
        self._socket, self._recvmsg, self.ready, self._low = made, made.recvmsg, False, 1
        self._reactor.watch(made.fileno(), self._on_connected, select.EPOLLOUT)
        code = made.connect_ex(self._endpoint.address)
        if code not in (0, errno.EINPROGRESS):
            self.fail("refused", os.strerror(code))

    def send(self, data: bytes, pieces: Sequence[memoryview] = (), sink: Sink | None = None) -> None:
        """Send one request, `data` and then the pieces; connect first where that is needed."""
        self.busy = True
        self._data, self._pieces = data, pieces
        self.exchange = Exchange(monotonic_ns())
        self.exchange.sink = sink
        self._read_ns = self.exchange.sent_ns
        self._answer = Answer(sink)
        self._kept = self.ready
        if self._socket is None:
            self.connect()
        elif self.ready:
            self._write()

    def resend(self) -> None:
        """Send the last request once more, on a new connection."""
        self.close()
        self.send(self._data, self._pieces, self.exchange.sink)

    def close(self) -> None:
        if self._socket is not None:
            self._reactor.forget(self._socket.fileno())
            self._socket.close()
            self._socket, self._tls, self.ready, self._handshaking = None, None, False, False
            self._unsent, self._more = memoryview(b""), None

    # connecting

    def _on_connected(self, _: int) -> None:
        assert self._socket is not None
        if code := self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            self.fail("refused", os.strerror(code))
            return
        fd = self._socket.fileno()
        self._reactor.forget(fd)
        self._reactor.watch(fd, self._on_event)
        if self._endpoint.tls is None:
            self._become_ready()
            return
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = self._endpoint.tls.wrap_bio(self._incoming, self._outgoing, server_hostname=self._endpoint.host)
        self._handshaking = True
        self._shake_hands()

    def _shake_hands(self) -> None:
        assert self._tls is not None
        try:
            self._tls.do_handshake()
            self._handshaking = False
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError as error:
            self.fail("tls", str(error))
            return
        self._push(self._outgoing.read())
        if not self._handshaking and self._socket is not None:
            self._become_ready()

    def _become_ready(self) -> None:
        self.ready = True
        if self.busy:
            self.exchange.sent_ns = self._read_ns = monotonic_ns()
            self._write()

    # sending

    def _write(self) -> None:
        exchange = self.exchange
        self._push(self._data if self._tls is None else self._encrypted(memoryview(self._data)))
        if self._pieces and self.ready and self.exchange is exchange:  # nothing has failed meanwhile
            self._more = iter(self._pieces)
            self._send_more()

    def _send_more(self) -> None:
        """The next pieces, as far as the kernel takes them."""
        while self._more is not None and not self._unsent:
            piece = next(self._more, None)
            if piece is None:
                self._more = None
            else:
                self._push(piece if self._tls is None else self._encrypted(piece))

    def _encrypted(self, rest: memoryview) -> bytes:
        assert self._tls is not None
        while rest:  # a write may take a part
            rest = rest[self._tls.write(rest) :]
        return self._outgoing.read()

    def _push(self, data: bytes | memoryview) -> None:
        if self._unsent:
            self._unsent = memoryview(bytes(self._unsent) + data)
            return
        assert self._socket is not None
        try:
            sent = self._socket.send(data)
        except BlockingIOError:
            sent = 0
        except OSError as error:
            self._broken(error)
            return
        if sent < len(data):
            self._unsent = memoryview(data)[sent:]
            self._reactor.change(self._socket.fileno(), select.EPOLLIN | select.EPOLLOUT)

    def _on_event(self, mask: int) -> None:
        if mask & ~select.EPOLLOUT:  # first: a server that refuses a large request may answer, and then reset
            self._read()
        if mask & select.EPOLLOUT and self.ready | self._handshaking:
            assert self._socket is not None
            try:
                self._unsent = self._unsent[self._socket.send(self._unsent) :]
            except BlockingIOError:
                pass
            except OSError as error:
                self._broken(error)
                return
            if not self._unsent and self._more is not None:
                self._send_more()
                if not self.ready:
                    return
            if not self._unsent:
                self._reactor.change(self._socket.fileno(), select.EPOLLIN)

    # reading

    def _read(self) -> None:
        data: bytes | memoryview
        try:
            if self._answer.sink is not None and self._answer.only_sinks and self._tls is None:
                assert self._socket is not None
                # Of TCP, MSG_TRUNC means: throw away what would be read, without copying it.
                flags = socket.MSG_TRUNC if self._answer.sink is discard else 0
                size, ancillary, _, _ = self._socket.recvmsg_into([_ROOM], _ANCILLARY_BYTES, flags)
                data = _ROOM[:size]
            else:
                data, ancillary, _, _ = self._recvmsg(_READ_BYTES, _ANCILLARY_BYTES)
        except BlockingIOError:
            return
        except OSError as error:
            self._broken(error)
            return
        now = stamp = monotonic_ns()
        if ancillary:
            seconds, nanoseconds = _STAMP.unpack(ancillary[0][2])
            stamp = seconds * 1_000_000_000 + nanoseconds - self._reactor.realtime_ahead_ns
            if not self._read_ns <= stamp <= now:  # a clock that was set is not believed, nor that time goes back
                stamp = now if stamp > now or now - stamp > _LONGEST_LAG_NS else self._read_ns
        self._read_ns = stamp
        self.read_lag_ns = now - stamp
        if not data:
            self._ended_by_server()
        elif self._tls is None:
            self._take(data, stamp)
        else:
            self._decrypt(data, stamp)

    def _decrypt(self, data: bytes | memoryview, stamp: int) -> None:
        self._incoming.write(data)
        if self._handshaking:
            self._shake_hands()
            return
        tls, parts, over = self._tls, [], False
        assert tls is not None
        try:
            while part := tls.read(_READ_BYTES):
                parts.append(part)
            over = True  # the server has closed the session
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError as error:
            self.fail("tls", str(error))
            return
        if self._outgoing.pending:  # an answer of the protocol itself, to a change of keys
            self._push(self._outgoing.read())
        if parts:
            self._take(b"".join(parts), stamp)
        if over and self._tls is tls:
            self._ended_by_server()

    def _take(self, data: bytes | memoryview, stamp: int) -> None:
        """Bytes of an answer, in the clear."""
        if not self.busy:  # unasked, mostly a server that will close
            self.close()
            return
        answer = self._answer
        try:
            complete = answer.feed(data) if isinstance(data, bytes) else answer.feed_sink(data)
        except Malformed as problem:
            self.fail("malformed", str(problem))
            return
        self.exchange.marks.append((answer.size, stamp))
        if complete:
            if self._low > 1:
                self._wait_for(1)
            self._finish(stamp)
        elif self._tls is None and answer.only_sinks and answer.left:
            self._wait_for(min(answer.left, _LOW_BYTES))

    def _wait_for(self, low: int) -> None:
        """Wake only when so much has come: for a long body that costs less. The kernel makes its buffer large enough,
        and wakes in any case where it is full or the server closes."""
        if low != self._low:
            assert self._socket is not None
            self._low = low
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, low)

    # endings

    def _finish(self, stamp: int) -> None:
        exchange = self._answered(stamp)
        if self._answer.closing or self._unsent or self._more is not None:  # it was answered before all of it was sent
            self.close()
        self._done(self, exchange, None, "")

    def _answered(self, ended_ns: int) -> Exchange:
        """The exchange as far as it came; the connection is free from then on."""
        exchange, answer = self.exchange, self._answer
        exchange.status, exchange.head, exchange.body = answer.status, answer.head, bytes(answer.body)
        exchange.ended_ns, exchange.size = ended_ns, answer.size
        self.busy = False
        return exchange

    def _ended_by_server(self) -> None:
        if self.busy and self._answer.ends_with_connection:
            self._finish(self.exchange.marks[-1][1])
        else:
            self._broken(ConnectionResetError(errno.ECONNRESET, "the server closed the connection"))

    def _broken(self, error: OSError) -> None:
        if not self.busy:
            self.close()
        elif self._kept and not self._answer.begun and error.errno in _GONE:
            self.fail("stale", error.strerror or str(error))
        else:
            self.fail("reset" if self.ready else "refused", error.strerror or str(error))

    def fail(self, kind: str, detail: str) -> None:
        """End the connection, and the request that is under way with it."""
        self.close()
        self.last_error = f"{kind}: {detail}"
        if self.busy:
            self._done(self, self._answered(monotonic_ns()), kind, detail)
