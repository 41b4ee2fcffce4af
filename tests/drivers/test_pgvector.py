"""What is pgvector's own: which plan is run, and what it does where pgvector alone would give too few."""

import numpy
import psycopg
import pytest
from drivers.vector_conformance import DIMENSIONS, OPTIONS, data, labels
from services.pgvector import need_pgvector

from benchhouse.drivers.pgvector import PgVector
from benchhouse.load.protocols.calls import CallFailed
from benchhouse.load.protocols.vector import Collection
from benchhouse.schema.errors import BenchError

pytestmark = pytest.mark.clients


@pytest.fixture
def endpoint(postgres_server):
    need_pgvector(postgres_server)
    return postgres_server.endpoint


@pytest.fixture
def filled(endpoint):
    made = []

    def fill(index, count=500, options=None, with_labels=False, name="own"):
        asked = Collection(name, DIMENSIONS, "l2", index, options or OPTIONS[index], labels=with_labels)
        driver = PgVector(endpoint, asked)
        driver.open()
        made.append(driver)
        driver.create()
        driver.ingest(0, data(count=count), labels(count) if with_labels else None)
        driver.build()
        return driver

    yield fill
    for driver in made:
        driver.delete()
        driver.close()


@pytest.mark.parametrize(("index", "scan"), [("hnsw", "Index Scan"), ("ivf", "Index Scan"), ("flat", "Seq Scan")])
def test_the_index_that_was_asked_for_is_the_one_that_is_read(filled, index, scan):
    """On so few rows the planner would rather read them all."""
    driver = filled(index)
    query = "EXPLAIN SELECT id FROM own ORDER BY vector <-> %s::vector LIMIT 10"
    plan = driver._connection.execute(query, [str([0.0] * DIMENSIONS)]).fetchall()
    assert scan in str(plan)
    assert ("own_vector_idx" in str(plan)) == (index != "flat")


def test_k_beyond_ef_search_is_answered_in_full(filled):
    driver = filled("hnsw", options={"m": 8, "ef_construction": 32, "ef_search": 10})
    assert (driver.search(data(1, 3), 80) >= 0).all()
    assert (driver.search(data(1, 3), 5) >= 0).all()


def test_a_sharp_filter_still_finds_k(filled):
    """Without going on, the index gives its 40 nearest, of which the filter would leave two."""
    driver = filled("hnsw", options={"m": 8, "ef_construction": 32, "ef_search": 40}, with_labels=True)
    assert (labels(500) < 50).sum() >= 10
    found = driver.search(data(1, 5), 10, 50)
    assert (found >= 0).all()
    assert (labels(500)[found] < 50).all()


def test_a_table_of_somebody_else_is_neither_used_nor_dropped(endpoint):
    with psycopg.connect(endpoint, autocommit=True) as connection:
        connection.execute("CREATE TABLE precious AS SELECT 42 AS answer")
        driver = PgVector(endpoint, Collection("precious", DIMENSIONS, "l2", "flat"))
        driver.open()
        with pytest.raises(BenchError, match="already"):
            driver.create()
        driver.delete()
        driver.close()
        assert connection.execute("SELECT answer FROM precious").fetchall() == [(42,)]
        connection.execute("DROP TABLE precious")


def test_an_extension_that_was_there_stays(endpoint):
    with psycopg.connect(endpoint, autocommit=True) as connection:
        connection.execute("CREATE EXTENSION vector")
        driver = PgVector(endpoint, Collection("own", DIMENSIONS, "l2", "flat"))
        driver.open()
        driver.create()
        driver.delete()
        driver.close()
        assert connection.execute("SELECT count(*) FROM pg_extension WHERE extname = 'vector'").fetchone() == (1,)
        connection.execute("DROP EXTENSION vector")


def test_a_name_is_never_taken_for_sql(filled):
    name = 'odd"; DROP TABLE own; --'
    assert filled("flat", name=name).stats().vectors == 500


def test_a_table_that_goes_away_is_the_servers_word(filled):
    driver = filled("flat")
    driver._connection.execute("DROP TABLE own")
    with pytest.raises(CallFailed, match="42P01") as failed:
        driver.search(data(1, 1), 3)
    assert failed.value.kind == "server_error"


def test_a_search_after_a_lost_connection_connects_again(filled, endpoint):
    driver = filled("flat")
    before = driver.search(data(1, 1), 3)
    with psycopg.connect(endpoint, autocommit=True) as connection:
        connection.execute("SELECT pg_terminate_backend(%s)", [driver._connection.info.backend_pid])
    with pytest.raises(CallFailed) as failed:
        driver.search(data(1, 1), 3)
    assert failed.value.kind == "reset"
    assert numpy.array_equal(driver.search(data(1, 1), 3), before)


def test_who_is_not_let_in_is_told_why(endpoint):
    for bad, kind in [
        ("postgresql://nobody@127.0.0.1:{port}/postgres", "login"),
        ("postgresql://postgres@127.0.0.1:{port}/no_such_database", "no_database"),
        ("postgresql://postgres@no-such-host.invalid/postgres", "dns"),
    ]:
        port = endpoint.rpartition(":")[2].partition("/")[0]
        driver = PgVector(bad.format(port=port), Collection("own", DIMENSIONS, "l2", "flat"))
        with pytest.raises(CallFailed) as failed:
            driver.open()
        assert failed.value.kind == kind
        assert failed.value.detail


def test_what_is_no_address_is_refused():
    driver = PgVector("postgresql://localhost/?no_such_option=1", Collection("own", DIMENSIONS, "l2", "flat"))
    with pytest.raises(BenchError, match="not a PostgreSQL address"):
        driver.open()
