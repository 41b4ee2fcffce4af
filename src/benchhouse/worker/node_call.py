"""Run a command on another node of this trial: `python -I -S node_call.py NODE COMMAND...`, in place of `srun`.

The agent there (`node_agent`) starts it with our environment. Our standard streams and signals are forwarded, and it
ends with us: it is killed with this process, and it receives the end of our input. Uses only the standard library, so
that it starts immediately.
"""

import contextlib
import hashlib
import hmac
import json
import os
import resource
import select
import signal
import socket
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

NODES = "BENCHHOUSE_NODES"  # variable of a trial: the file that lists its nodes, and their secret
INPUT, WRITTEN, OUTPUT, ERRORS, SIGNAL, EXIT = b"i", b"w", b"o", b"e", b"s", b"x"  # kinds of frames
MOST = 1 << 18  # bytes in transit: above this, no more are read
BLOCK = 1 << 16
QUESTION = 64  # bytes that an agent sends first
SIZE = struct.Struct(">I")  # of the request, which follows
_HEAD = struct.Struct(">cI")
_FORWARDED = ("SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2")
_CONNECT_S = 30.0
_ATOMIC = select.PIPE_BUF  # a writable pipe takes this much without blocking
NO_CALL = 255  # exit code if there is no answer, or the answer breaks off


class FrameConnection:
    """Frames over a connection that never blocks: what can't be sent at once is sent later."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self._in, self._out = bytearray(), bytearray()
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)  # a node that is gone sends nothing
        for option, value in ((socket.TCP_KEEPIDLE, 10), (socket.TCP_KEEPINTVL, 5), (socket.TCP_KEEPCNT, 4)):
            connection.setsockopt(socket.IPPROTO_TCP, option, value)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 30_000)

    @property
    def waiting(self) -> int:
        """Bytes that have not been sent."""
        return len(self._out)

    def send(self, kind: bytes, data: bytes = b"") -> None:
        self._out += _HEAD.pack(kind, len(data)) + data
        self.flush()

    def flush(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while self._out:
                del self._out[: self.connection.send(self._out)]

    def frames(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield the received frames. Raises EOFError at the end of the connection."""
        try:
            block = self.connection.recv(BLOCK)
        except BlockingIOError:
            return
        if not block:
            raise EOFError
        self._in += block
        while len(self._in) >= _HEAD.size:
            kind, size = _HEAD.unpack_from(self._in)
            if len(self._in) < (end := _HEAD.size + size):
                return
            data = bytes(self._in[_HEAD.size : end])
            del self._in[:end]
            yield kind, data


def exactly(connection: socket.socket, size: int) -> bytes:
    """Return exactly `size` bytes. Raises EOFError if the connection ends before."""
    data = bytearray()
    while len(data) < size:
        if not (block := connection.recv(min(BLOCK, size - len(data)))):
            raise EOFError
        data += block
    return bytes(data)


def proof(secret: str, question: bytes, request: bytes) -> bytes:
    """Return the proof that the sender of this request knows the secret, which is not sent."""
    return hmac.new(secret.encode(), question + request, hashlib.sha256).hexdigest().encode()


def call(node: str, command: list[str]) -> int:
    """Run the command there. Return its exit code, or the negative number of the signal that ended it."""
    known: dict[str, Any] = json.loads(Path(os.environ[NODES]).read_text(encoding="utf-8"))
    place = next((item for item in known["nodes"] if item["name"] == node), None)
    if place is None:
        return _fail(f"{node} is no node of this trial: {', '.join(item['name'] for item in known['nodes'])}")
    wakeup, bell = os.pipe()
    os.set_blocking(bell, False)
    signal.set_wakeup_fd(bell, warn_on_full_buffer=False)
    for number in (getattr(signal, name) for name in _FORWARDED):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, lambda *_: None)
    try:
        with socket.create_connection((place["address"], place["port"]), timeout=_CONNECT_S) as connection:
            question = exactly(connection, QUESTION)
            wanted = json.dumps({"argv": command, "environment": dict(os.environ)}).encode()
            request = proof(known["secret"], question, wanted) + wanted
            connection.sendall(SIZE.pack(len(request)) + request)
            return _carry(FrameConnection(connection), wakeup)
    except EOFError:
        return _fail(f"{node} has not answered to the end")
    except OSError as error:
        return _fail(f"{node} can't be reached at {place['address']}:{place['port']}: {error.strerror or error}")


def _carry(line: FrameConnection, wakeup: int) -> int:
    """Forward data until the command has ended and all of its output is written."""
    out = {1: bytearray(), 2: bytearray()}
    ended: dict[str, Any] | None = None
    unwritten, reads = 0, True  # of our input: bytes that the command has not taken yet, and whether there is more
    while ended is None or any(out.values()):
        poll = select.poll()
        poll.register(wakeup, select.POLLIN)
        if ended is None:
            room = sum(map(len, out.values())) < MOST
            poll.register(line.connection, select.POLLIN * room | select.POLLOUT * bool(line.waiting))
            if reads and unwritten < MOST:
                poll.register(0, select.POLLIN)
        for handle in (handle for handle, data in out.items() if data):
            poll.register(handle, select.POLLOUT)
        for handle, _ in poll.poll():
            if handle == wakeup:
                for number in os.read(wakeup, 64):
                    line.send(SIGNAL, bytes([number]))
            elif handle == 0:
                block = _input()
                unwritten, reads = unwritten + len(block), bool(block)
                line.send(INPUT, block)
            elif handle in out:
                _write(handle, out[handle])
            else:
                line.flush()
                for kind, data in line.frames():
                    if kind == WRITTEN:
                        unwritten -= int(data)
                    elif kind == EXIT:
                        ended = json.loads(data)
                    else:
                        out[1 if kind == OUTPUT else 2] += data
    if "refused" in ended:
        return _fail(ended["refused"])
    return int(ended["code"])


def _input() -> bytes:
    try:
        return os.read(0, BLOCK)
    except OSError:  # it is closed
        return b""


def _write(handle: int, data: bytearray) -> None:
    """Write some of the data; if the reader is gone, discard it."""
    try:
        del data[: os.write(handle, data[:_ATOMIC])]
    except OSError:
        data.clear()


def _fail(reason: str) -> int:
    print(f"node_call: {reason}", file=sys.stderr)
    return NO_CALL


def main(arguments: list[str]) -> int:
    if len(arguments) < 2 or NODES not in os.environ:
        print(f"usage: node_call.py NODE COMMAND..., with {NODES} in the environment", file=sys.stderr)
        return 2
    code = call(arguments[0], arguments[1:])
    if code < 0:  # ends this process with the same signal, for its parent
        sys.stderr.flush()
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if code != -signal.SIGKILL:
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
