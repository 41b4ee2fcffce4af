"""A server that says exactly what a script makes it say, byte by byte: for framing, and for servers that misbehave."""

import contextlib
import socket
import ssl
import struct
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self


class Wire:
    """One connection from the server's side."""

    def __init__(self, connection: socket.socket, number: int, seen: list[bytes]) -> None:
        self.number = number  # of the connection, from 0
        self._socket, self._seen, self._buffer = connection, seen, b""

    def request(self) -> bytes:
        """The next whole request; empty when the client has closed."""
        while True:
            head, found, rest = self._buffer.partition(b"\r\n\r\n")
            if found:
                length = next(
                    (int(line[15:]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")), 0
                )
                if len(rest) >= length:
                    self._buffer = rest[length:]
                    self._seen.append(head + found + rest[:length])
                    return self._seen[-1]
            piece = self._socket.recv(1 << 16)
            if not piece:
                return b""
            self._buffer += piece

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def close(self) -> None:
        """In order: what was sent still arrives."""
        self._socket.close()

    def reset(self) -> None:
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._socket.close()


class ScriptedServer:
    """Runs `script(wire)` in a thread for each connection, on a free port of 127.0.0.1; closes it when that returns."""

    def __init__(self, script: Callable[[Wire], None], tls: ssl.SSLContext | None = None) -> None:
        self._script, self._tls = script, tls
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.port = int(self._listener.getsockname()[1])
        self.requests: list[bytes] = []
        self.connections = 0
        self._open: list[socket.socket] = []

    @property
    def url(self) -> str:
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
        self._listener.close()
        for connection in self._open:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection = self._listener.accept()[0]
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._open.append(connection)
                self.connections += 1
                threading.Thread(target=self._serve, args=(connection, self.connections - 1), daemon=True).start()

    def _serve(self, connection: socket.socket, number: int) -> None:
        with contextlib.suppress(OSError):
            if self._tls:
                connection = self._tls.wrap_socket(connection, server_side=True)
            with connection:
                self._script(Wire(connection, number, self.requests))
                if self._tls and connection.fileno() >= 0:
                    connection.unwrap()  # says goodbye, as TLS has it
