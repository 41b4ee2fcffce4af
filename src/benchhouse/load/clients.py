"""Load clients: agents that wait on other nodes, in their own jobs, and lend their node to one load at a time.

`python -m benchhouse.load.clients HOST PORT` is the agent. A caller that knows its secret can have it start
`benchhouse.load.node` with the connection as its standard input and output; when the connection ends, that process
ends.
"""

import hmac
import json
import os
import secrets
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from urllib.parse import urlsplit

from benchhouse.load.shape import CLIENT
from benchhouse.processes.python_command import python_command
from benchhouse.schema.errors import BenchError
from benchhouse.schema.recipe import Ready, Recipe

_SECRET = "BENCHHOUSE_CLIENT_SECRET"  # noqa: S105 - its name
_GREETING_S = 20.0
_LONGEST = 1 << 16  # bytes of a line

RECIPE = Recipe(
    name="clients",
    description="A load client: lends its node to the load of a run.",
    licence="Apache-2.0",
    program=("python3",),
    command=("{python}", "-P", "-m", "benchhouse.load.clients", "{host}", "{port}"),
    environment={_SECRET: "{secret}"},
    endpoint=CLIENT + ":{secret}@{host}:{port}",
    ready=Ready(kind="tcp"),
)


class LoadNodeConnection:
    """A link to `benchhouse.load.node`, started by an agent."""

    def __init__(self, address: str, arguments: Sequence[str]) -> None:
        """Connect. Raises BenchError if there is no server, or not the load client of this address."""
        parts = urlsplit(address)
        self._where = f"{parts.hostname}:{parts.port}"
        try:
            self._socket = socket.create_connection((parts.hostname, parts.port), _GREETING_S)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            proof = _proof(parts.password or "", _line(self._socket))
            self.send(f"{proof}\n{json.dumps(list(arguments))}\n".encode())
            answer = _line(self._socket)
            self._socket.settimeout(None)
        except OSError as error:
            raise BenchError(f"no load client answers at {self._where}: {error}", "see: bench clients list") from error
        if answer != "yours":
            self._socket.close()
            raise BenchError(f"the load client at {self._where} {answer or 'hung up'}", "see: bench clients list")

    @property
    def handle(self) -> int:
        return self._socket.fileno()

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def how(self) -> str:
        return "its connection ended"

    def close(self) -> None:
        self._socket.close()


def serve(host: str, port: int, secret: str) -> None:
    """Run the agent: one load at a time; a second caller gets the answer that it is in use."""
    with socket.create_server((host, port)) as listener:
        print(f"load client on {host}:{port}", flush=True)
        poll = select.poll()
        poll.register(listener, select.POLLIN)
        loan: _ClientSession | None = None
        while True:
            events = poll.poll()
            if loan is not None and (loan.is_over() or any(handle == loan.handle for handle, _ in events)):
                poll.unregister(loan.handle)
                poll.unregister(loan.child)
                loan.end()
                loan = None
            if any(handle == listener.fileno() for handle, _ in events):
                connection, peer = listener.accept()
                if (started := _greet(connection, secret, busy=loan is not None)) is not None:
                    loan = started
                    print(f"load for {peer[0]} begins", flush=True)
                    poll.register(loan.handle, select.POLLRDHUP)
                    poll.register(loan.child, select.POLLIN)


class _ClientSession:
    """The load that an agent currently serves."""

    def __init__(self, connection: socket.socket, arguments: Sequence[str]) -> None:
        self._connection = connection
        command = [*python_command(), "-m", "benchhouse.load.node", *arguments]
        self.handle = connection.fileno()
        self._process = subprocess.Popen(command, stdin=self.handle, stdout=self.handle, start_new_session=True)
        self.child = os.pidfd_open(self._process.pid)

    def is_over(self) -> bool:
        return self._process.poll() is not None

    def end(self) -> None:
        """End the session with all load processes below it."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        code = self._process.wait()
        os.close(self.child)
        with suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)
        self._connection.close()
        print(f"load ended ({code})", flush=True)


def _greet(connection: socket.socket, secret: str, *, busy: bool) -> _ClientSession | None:
    """Verify that the caller knows the secret; otherwise its request is not even read."""
    try:
        connection.settimeout(_GREETING_S)
        challenge = secrets.token_hex(32)
        connection.sendall(f"{challenge}\n".encode())
        if not hmac.compare_digest(_line(connection), _proof(secret, challenge)):
            connection.sendall(b"was asked with another secret\n")
        else:
            arguments = [str(item) for item in json.loads(_line(connection))]
            connection.sendall(b"works for another load\n" if busy else b"yours\n")
            if not busy:
                connection.settimeout(None)
                return _ClientSession(connection, arguments)
    except (OSError, ValueError) as error:
        print(f"a connection was refused: {error}", flush=True)
    connection.close()
    return None


def _proof(secret: str, challenge: str) -> str:
    return hmac.digest(secret.encode(), challenge.encode(), "sha256").hex()


def _line(connection: socket.socket) -> str:
    """Read a line byte by byte, because what follows belongs to another reader."""
    line = bytearray()
    while (byte := connection.recv(1)) and byte != b"\n" and len(line) < _LONGEST:
        line += byte
    return line.decode(errors="replace")


if __name__ == "__main__":
    serve(sys.argv[1], int(sys.argv[2]), os.environ.pop(_SECRET))
