"""A client connection for HTTP/1.1 on the reactor: it moves bytes, marks each read, and reports when an answer ends.

Stamps come from the kernel if it provides them. Then no latency includes the time until this process reads the data,
unless more data arrived meanwhile: `poller.py` explains how far off such a stamp can be.
"""

import errno
import os
import select
import socket
import ssl
from collections.abc import Callable, Iterator, Sequence
from time import monotonic_ns

from benchhouse.load.answers_python import READ
from benchhouse.load.endpoint import EndpointStats, HttpEndpoint
from benchhouse.load.framing import IncomingResponse, Malformed
from benchhouse.load.poller import ANCILLARY_BYTES, OPEN, kernel_stamp
from benchhouse.load.protocols.calls import BodySink, Exchange, discard
from benchhouse.load.reactor import Reactor

_SO_TIMESTAMPNS = 35
_TLS_BYTES = 1 << 16
_ENOUGH = 1 << 20  # bytes of a stream at which it is always processed
_GONE = (errno.ECONNRESET, errno.EPIPE, errno.ECONNABORTED)
_LOW_BYTES = 1 << 20  # bytes of a long body that must arrive before the kernel reports them
_ROOM = memoryview(bytearray(_LOW_BYTES))  # for data that a sink takes; used up before the next read of any connection

Done = Callable[["HttpConnection", Exchange, str | None, str], None]


class HttpConnection:
    """One socket; one request at a time. `done(connection, exchange, error, detail)` is called exactly once per
    request.

    `error` is None for a complete answer, otherwise a kind of `protocols.calls.ERRORS`, or `stale`: the server had
    closed a kept-open connection before it saw the request, so the request may be sent again.
    """

    __slots__ = (
        "_answer", "_data", "_done", "_endpoint", "_handshaking", "_incoming", "_kept", "_low", "_more", "_outgoing",
        "_pieces", "_poller", "_reactor", "_sinks", "_socket", "_tls", "_unsent", "busy", "exchange",
        "kernel_stamps", "last_error", "place", "read_lag_ns", "ready",
    )  # fmt: skip

    def __init__(self, reactor: Reactor, endpoint: HttpEndpoint, done: Done) -> None:
        self._reactor, self._endpoint, self._done = reactor, endpoint, done
        self._poller = reactor.poller
        self._socket: socket.socket | None = None
        self.ready = False
        self._tls: ssl.SSLObject | None = None
        self._handshaking = False
        self._data = b""
        self._pieces: Sequence[memoryview] = ()  # of the request, after its data
        self._more: Iterator[memoryview] | None = None  # pieces that have not been handed to `_push`
        self._unsent = memoryview(b"")
        self.exchange = Exchange(0)
        self._answer = IncomingResponse()
        self._sinks = False  # whether this connection itself reads into a sink
        self._low = 1  # bytes that must arrive before the kernel reports them
        self._kept = False  # whether the connection had been open before the request
        self.last_error = ""  # why the connection is not open
        self.place: EndpointStats | None = None  # counts the answers of its endpoint; None for a single endpoint
        self.busy = self.kernel_stamps = False
        self.read_lag_ns = 0  # delay of the last read: from the kernel's stamp to this process

    @property
    def open(self) -> bool:
        return self._socket is not None

    def connect(self) -> None:
        """Start to connect; a request passed in the meantime is sent as soon as the connection is open."""
        try:
            made = socket.socket(self._endpoint.family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)  # and close-on-exec
        except OSError as error:  # mostly too many open files
            self.fail("refused", error.strerror or str(error))
            return
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            made.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
            self.kernel_stamps = True
        except OSError:
            self.kernel_stamps = False
        self._socket, self.ready, self._low, self._sinks = made, False, 1, False
        self._reactor.watch(made, self._on_connected, select.EPOLLOUT)
        code = made.connect_ex(self._endpoint.address)
        if code not in (0, errno.EINPROGRESS):
            self.fail("refused", os.strerror(code))

    def send(self, data: bytes, pieces: Sequence[memoryview] = (), sink: BodySink | None = None) -> None:
        """Send one request: `data`, then the pieces. Connect first if needed."""
        self.busy = True
        self._data, self._pieces = data, pieces
        self.exchange = Exchange(monotonic_ns())
        self.exchange.sink = sink
        self._answer = IncomingResponse(sink)
        self._kept = self.ready
        if self._socket is None:
            self.connect()
        elif self.ready:
            self._write()

    def resend(self) -> None:
        """Send the last request again, on a new connection."""
        self.close()
        self.send(self._data, self._pieces, self.exchange.sink)

    def close(self) -> None:
        if self._socket is not None:
            self._reactor.forget(self._socket)
            self._socket.close()
            self._socket, self._tls, self.ready, self._handshaking = None, None, False, False
            self._unsent, self._more = memoryview(b""), None

    # connecting

    def _on_connected(self, _: int) -> None:
        assert self._socket is not None
        if code := self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            self.fail("refused", os.strerror(code))
            return
        self._reactor.watch(self._socket, self._on_event)
        self._poller.collect(self._socket, 0)
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
            self.exchange.sent_ns = monotonic_ns()
            self._write()

    # sending

    def _write(self) -> None:
        exchange = self.exchange
        self._push(self._data if self._tls is None else self._encrypted(memoryview(self._data)))
        exchange.sending_ns = monotonic_ns() - exchange.sent_ns
        if self._pieces and self.ready and self.exchange is exchange:  # nothing has failed in the meantime
            self._more = iter(self._pieces)
            self._send_more()

    def _send_more(self) -> None:
        """Send the next pieces, as far as the kernel takes them."""
        while self._more is not None and not self._unsent:
            piece = next(self._more, None)
            if piece is None:
                self._more = None
            else:
                self._push(piece if self._tls is None else self._encrypted(piece))

    def _encrypted(self, rest: memoryview) -> bytes:
        assert self._tls is not None
        while rest:  # one write may take only a part
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
            self._poller.watch(self._socket, select.EPOLLIN | select.EPOLLOUT)

    def _on_event(self, mask: int) -> None:
        if mask & ~select.EPOLLOUT:  # reads first: a server that refuses a large request may answer, then reset
            if self._sinks:
                self._read_sink()
            else:
                self._take()
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
                self._poller.watch(self._socket, select.EPOLLIN)

    # reading

    def _take(self) -> None:
        """Process what the poller has read."""
        assert self._socket is not None
        data, reads, ended = self._poller.take(self._socket)
        complete = False
        if reads:
            _, stamp, _, read_ns = READ.unpack_from(reads, len(reads) - READ.size)
            self.read_lag_ns = read_ns - stamp
            if self._tls is not None:
                data, reads, over = self._decrypted(data, reads)
                ended = 0 if over else ended
            if self.ready and data:  # not in a handshake, and nothing has failed
                complete = self._feed(data, reads)
            if not self.ready:
                return
        if complete:
            self._answer.closing |= ended != OPEN
            self._finish(self.exchange.marks[-2])
        elif ended == 0:
            self._ended_by_server()
        elif ended != OPEN:
            self._broken(OSError(ended, os.strerror(ended)))

    def _read_sink(self) -> None:
        """Read a part of a long body into the sink. For TCP, MSG_TRUNC discards the data without copying it."""
        assert self._socket is not None
        try:
            flags = socket.MSG_TRUNC if self._answer.sink is discard else 0
            size, ancillary, _, _ = self._socket.recvmsg_into([_ROOM], ANCILLARY_BYTES, flags)
        except BlockingIOError:
            return
        except OSError as error:
            self._broken(error)
            return
        now = monotonic_ns()
        sent = self.exchange.sent_ns
        stamp = kernel_stamp(ancillary, self._poller.realtime_ahead_ns, sent, sent, now)
        self.read_lag_ns = now - stamp
        if not size:
            self._ended_by_server()
            return
        complete = self._answer.feed_sink(_ROOM[:size])
        self.exchange.marks.extend((self._answer.size, stamp, stamp))
        if complete:
            self._finish(stamp)
        elif self._answer.left:
            self._wait_for(min(self._answer.left, _LOW_BYTES))

    def _decrypted(self, data: bytes, reads: bytes) -> tuple[bytes, bytes, bool]:
        """Return the decrypted data of these reads, their marks, and whether the server has closed the session. During
        the handshake there are none."""
        clear, clear_reads, start, over = bytearray(), b"", 0, False
        assert self._tls is not None
        for end, *stamps in READ.iter_unpack(reads):
            self._incoming.write(data[start:end])
            start = end
            if self._handshaking:
                self._shake_hands()
                return b"", b"", False
            try:
                while part := self._tls.read(_TLS_BYTES):
                    clear += part
                over = True
            except ssl.SSLWantReadError:
                pass
            except ssl.SSLError as error:
                self.fail("tls", str(error))
                return b"", b"", False
            clear_reads += READ.pack(len(clear), *stamps)
        if self._outgoing.pending:  # a protocol message, such as the answer to a key change
            self._push(self._outgoing.read())
        return bytes(clear), clear_reads, over

    def _feed(self, data: bytes, reads: bytes) -> bool:
        """Process decrypted bytes of an answer, from one or more reads. Return whether the answer is complete."""
        if not self.busy:  # unsolicited, mostly from a server that is about to close
            self.close()
            return False
        answer, head_before = self._answer, self._answer.status
        try:
            complete, marks = answer.feed_reads(data, reads)
        except Malformed as problem:
            self.fail("malformed", str(problem))
            return False
        self.exchange.marks.frombytes(marks)
        if self._tls is None and not complete and answer.status and not (head_before and answer.missing is None):
            self._expect(answer)
        return complete

    def _expect(self, answer: IncomingResponse) -> None:
        """Decide, once the head has arrived, how much of the rest can be left to the poller."""
        assert self._socket is not None
        if answer.only_sinks:
            self._sinks = True
            self._poller.collect(self._socket, -1)
            if answer.left:
                self._wait_for(min(answer.left, _LOW_BYTES))
        else:
            self._poller.collect(self._socket, min(answer.missing or _ENOUGH, _ENOUGH))

    def _wait_for(self, low: int) -> None:
        """Wake only when this much has arrived, which is cheaper for a long body. The kernel enlarges its buffer, and
        always wakes when the buffer is full or the server closes."""
        if low != self._low:
            assert self._socket is not None
            self._low = low
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, low)

    # endings

    def _finish(self, stamp: int) -> None:
        exchange = self._answered(stamp)
        if self._sinks and self._low > 1:
            self._wait_for(1)
        self._sinks = False
        if self._tls is None and self._socket is not None:
            self._poller.collect(self._socket, 0)
        if self._answer.closing or self._unsent or self._more is not None:  # it was answered before all of it was sent
            self.close()
        self._done(self, exchange, None, "")

    def _answered(self, ended_ns: int) -> Exchange:
        """Return the exchange with what has arrived; the connection is free from then on."""
        exchange, answer = self.exchange, self._answer
        exchange.status, exchange.head, exchange.body = answer.status, answer.head, bytes(answer.body)
        exchange.ended_ns, exchange.size = ended_ns, answer.size
        self.busy = False
        return exchange

    def _ended_by_server(self) -> None:
        if self.busy and self._answer.ends_with_connection:
            self._finish(self.exchange.marks[-2])
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
        """Close the connection, and fail the request in progress."""
        self.close()
        self.last_error = f"{kind}: {detail}"
        if self.busy:
            self._done(self, self._answered(monotonic_ns()), kind, detail)
