"""Whether the pgvector that is installed runs on this CPU: a wheel may need instructions that it does not have."""

import time
from functools import cache
from pathlib import Path

import psycopg
import pytest
from services.postgres import ask

from benchhouse.schema.recipe import Service

_VECTORS = "SELECT ARRAY[g, 2, 3, 4, 5, 6, 7, random()]::vector(8) AS v FROM generate_series(1, 500) AS g"


def need_pgvector(server: Service) -> None:
    """Skip if building an index kills the session of the server, which then ends all of its sessions."""
    if not _runs(server.endpoint, server.folder):
        pytest.skip("this pgvector dies on this CPU: building an index ends the server with an illegal instruction")


@cache
def _runs(endpoint: str, folder: Path) -> bool:
    try:
        ask(
            endpoint,
            "CREATE EXTENSION vector",
            f"CREATE TABLE probe AS {_VECTORS}",
            "CREATE INDEX ON probe USING ivfflat (v vector_l2_ops) WITH (lists = 4)",
            "DROP TABLE probe",
            "DROP EXTENSION vector",
        )
    except psycopg.OperationalError:
        if not _says(folder, "signal 4: Illegal instruction"):  # any other death is a failure
            raise
        return False
    return True


def _says(folder: Path, words: str, limit_s: float = 30) -> bool:
    """Whether the server's log has these words; the server writes them a moment after the connection is gone."""
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        if any(words in log.read_text(errors="replace") for log in folder.rglob("postgres.log")):
            return True
        time.sleep(0.1)
    return False
