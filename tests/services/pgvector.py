"""Whether the pgvector that is installed runs on this CPU: a wheel may need instructions that it does not have."""

from functools import cache

import psycopg2
import pytest
from services.postgres import ask
from services.started import running

from benchhouse.recipes.postgres import RECIPE

_VECTORS = "SELECT ARRAY[g, 2, 3, 4, 5, 6, 7, random()]::vector(8) AS v FROM generate_series(1, 500) AS g"


def need_pgvector() -> None:
    """Skip where building an index kills the server, which drops every session of it."""
    if not _runs():
        pytest.skip("this pgvector dies on this CPU: building an index ends the server with an illegal instruction")


@cache
def _runs() -> bool:
    with running(RECIPE) as service:
        try:
            ask(
                service.endpoint,
                "CREATE EXTENSION IF NOT EXISTS vector",
                f"CREATE TABLE probe AS {_VECTORS}",
                "CREATE INDEX ON probe USING ivfflat (v vector_l2_ops) WITH (lists = 4)",
            )
        except psycopg2.OperationalError:  # the connection is gone; a mistake in the SQL would be another error
            return False
    return True
