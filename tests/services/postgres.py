"""A real PostgreSQL, from the recipe, and what tests do to it.

The fixture `postgres_server` (tests/conftest.py): one server a test process.
"""

import socket
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any
from urllib.parse import urlsplit

import pytest
from services.started import running

from benchhouse.recipes.postgres import RECIPE
from benchhouse.schema.recipe import Service


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Service]:
    with running(RECIPE) as service:
        yield service


@pytest.fixture
def own_postgres() -> Iterator[Service]:
    """One that a test may kill: it keeps its shared memory in its folder, for a killed server removes nothing."""
    mortal = RECIPE.model_copy(update={"command": (*RECIPE.command, "-c", "dynamic_shared_memory_type=mmap")})
    with running(mortal) as service:
        yield service


def ask(endpoint: str, *texts: str) -> list[tuple[Any, ...]]:
    """The rows of the last statement."""
    import psycopg

    with psycopg.connect(endpoint, autocommit=True) as connection:
        for text in texts:
            cursor = connection.execute(text)
        return cursor.fetchall() if cursor.description else []


def schemas(endpoint: str) -> list[str]:
    """Those that a trial has left behind."""
    return [name for (name,) in ask(endpoint, "SELECT nspname FROM pg_namespace WHERE nspname LIKE 'benchhouse%'")]


class Scissors:
    """A proxy to a server that cuts all connections once a client says certain words, and `cuts` times in all."""

    def __init__(self, endpoint: str, words: bytes, cuts: int = 1) -> None:
        self._words, self._cuts = words, cuts
        host, port = endpoint.rpartition("@")[2].partition("/")[0].split(":")
        self._server = (host, int(port))
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.endpoint = endpoint.replace(f":{port}/", f":{self._listening.getsockname()[1]}/")
        self.was_cut = False
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listening.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            server = socket.create_connection(self._server)
            for source, sink, watched in ((client, server, True), (server, client, False)):
                threading.Thread(target=self._pass_on, args=(source, sink, watched), daemon=True).start()

    def _pass_on(self, source: socket.socket, sink: socket.socket, watched: bool) -> None:
        try:
            while data := source.recv(1 << 16):
                if watched and self._cuts and self._words in data:
                    self._cuts -= 1
                    self.was_cut = True
                    break
                sink.sendall(data)
        except OSError:
            pass
        for end in (source, sink):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


@contextmanager
def fake_server_of_version(version: str) -> Iterator[str]:
    """Says hello as a server of that version does, and nothing more; its address."""

    def message(kind: bytes, body: bytes) -> bytes:
        return kind + (len(body) + 4).to_bytes(4, "big") + body

    hello = message(b"R", b"\0\0\0\0")
    for name, value in (("server_version", version), ("client_encoding", "UTF8"), ("DateStyle", "ISO, MDY")):
        hello += message(b"S", f"{name}\0{value}\0".encode())
    hello += message(b"K", b"\0\0\0\1\0\0\0\1") + message(b"Z", b"I")

    def serve() -> None:
        while True:
            try:
                client, _ = listening.accept()
            except OSError:
                return
            with client, suppress(ConnectionResetError):
                while asked := client.recv(4096):
                    client.sendall(b"N" if len(asked) == 8 else hello)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=serve, daemon=True).start()
        yield f"postgresql://somebody@127.0.0.1:{listening.getsockname()[1]}/old"


def new_database(endpoint: str) -> str:
    """Its address, without a password: who is on the machine itself is let in."""
    name = f"team_{uuid.uuid4().hex[:12]}"
    ask(endpoint, f"CREATE DATABASE {name}")
    parts = urlsplit(endpoint)
    return f"postgresql://postgres@{parts.hostname}:{parts.port}/{name}"
