"""The driver of PostgreSQL on the real server: what goes in, what comes back, and what a silent server does."""

import itertools
import os
import signal
import socket
import threading
import time

import pytest
from services.postgres import ask

from benchhouse.drivers.postgres import Postgres
from benchhouse.load.calls import CallTally
from benchhouse.load.engine import NotReached, run_load
from benchhouse.load.protocols.calls import CallFailed
from benchhouse.load.protocols.postgres import Login, Statement, StatementCall, Work
from benchhouse.load.shape import Shape
from benchhouse.load.source import Planned, RequestPool

BEGIN, COMMIT = Statement("b", "BEGIN", control=True), Statement("c", "COMMIT", control=True)


def run(endpoint: str, steps: list[StatementCall], *, prepared=True, timeout: float = 10, name: str = "test", **shape):
    """The book of a short load of one transaction."""
    work = Work("it", steps)
    statements = [step.statement for step in steps]
    login = Login(endpoint, settings={"statement_timeout": "30000"}, name=name)

    def make():
        return Postgres(login, statements, prepared=prepared, timeout_s=timeout)

    work.ready = make().request(work)
    given = Shape(**{"concurrency": 1, "requests": 3, "warmup": 0, "timeout": timeout} | shape)
    return run_load(make, RequestPool([Planned(work, work.ready)], 0), given, CallTally)


@pytest.mark.parametrize("prepared", [True, False])
def test_values_of_every_type_arrive_as_they_are(postgres_server, prepared):
    endpoint = postgres_server.endpoint
    ask(endpoint, "DROP TABLE IF EXISTS typed", "CREATE TABLE typed (a integer, b float8, c text, d boolean, e text)")
    insert = Statement("i", "INSERT INTO typed VALUES (:a, :b, :c, :d, :e)")
    book = run(endpoint, [StatementCall(insert, (-7, 0.25, "it's \\ 50% é", True, None), 1)], prepared=prepared)
    assert book.succeeded == 3, book.details
    assert ask(endpoint, "SELECT DISTINCT * FROM typed") == [(-7, 0.25, "it's \\ 50% é", True, None)]
    ask(endpoint, "DROP TABLE typed")


def test_a_large_answer_and_a_large_request_are_whole(postgres_server):
    many = Statement("m", "SELECT repeat('x', 200) FROM generate_series(1, :n)")
    book = run(postgres_server.endpoint, [StatementCall(many, (5000,), 5000)])
    assert (book.succeeded, book.tally.operations) == (3, 15_000), book.details
    long = Statement("l", "SELECT length(:word::text)")
    book = run(postgres_server.endpoint, [StatementCall(long, ("y" * 5_000_000,), 1)])
    assert book.succeeded == 3, book.details


def test_an_error_has_its_sqlstate_and_the_transaction_is_rolled_back(postgres_server):
    endpoint = postgres_server.endpoint
    ask(endpoint, "DROP TABLE IF EXISTS once", "CREATE TABLE once (n integer)")
    insert = Statement("i", "INSERT INTO once VALUES (:n)")
    divide = Statement("d", "SELECT 1 / (:n - 7)")
    book = run(
        endpoint,
        [StatementCall(BEGIN), StatementCall(insert, (7,), 1), StatementCall(divide, (7,)), StatementCall(COMMIT)],
    )
    assert dict(book.errors) == {"sqlstate_22012": 3}
    assert "division by zero" in book.details["sqlstate_22012"]
    assert ask(endpoint, "SELECT count(*) FROM once") == [(0,)]
    ask(endpoint, "DROP TABLE once")


def test_rows_that_are_not_as_many_as_they_must_be_are_an_error(postgres_server):
    book = run(postgres_server.endpoint, [StatementCall(Statement("s", "SELECT 1"), (), 2)])
    assert dict(book.errors) == {"wrong_rows": 3}


def test_a_refused_copy_is_an_error_and_the_connection_goes_on(postgres_server):
    copy = Statement("c", "COPY no_such_table FROM STDIN", control=True)
    book = run(postgres_server.endpoint, [StatementCall(copy, (), 1, b"1\n")])
    assert dict(book.errors) == {"sqlstate_42P01": 3}
    assert book.connections == 1


def test_a_statement_that_can_not_be_prepared_is_told_when_connecting(postgres_server):
    with pytest.raises(NotReached, match=r"sqlstate_42P01.*no_such_table"):
        run(postgres_server.endpoint, [StatementCall(Statement("s", "SELECT * FROM no_such_table"))])


def test_a_session_that_hangs_ends_as_a_timeout(postgres_server):
    endpoint = postgres_server.endpoint
    frozen: list[int] = []

    def freeze() -> None:
        asked = "SELECT pid FROM pg_stat_activity WHERE application_name = 'to_freeze' AND wait_event = 'PgSleep'"
        while not (found := ask(endpoint, asked)):
            time.sleep(0.01)
        frozen.append(found[0][0])
        os.kill(frozen[0], signal.SIGSTOP)

    freezer = threading.Thread(target=freeze)
    freezer.start()
    try:
        nap = Statement("n", "SELECT pg_sleep(:s)")
        book = run(
            endpoint, [StatementCall(nap, (0.1,), 1)], timeout=0.5, name="to_freeze", requests=None, duration=1.0
        )
    finally:
        freezer.join()
        os.kill(frozen[0], signal.SIGCONT)
    assert book.errors["timeout"] == 1, book.details
    assert book.errors.keys() <= {"timeout", "reset"}


def test_an_administrator_whose_session_was_ended_gets_another(postgres_server):
    session = Postgres.administrator(Login(postgres_server.endpoint))
    ask(postgres_server.endpoint, f"SELECT pg_terminate_backend({session.pid})")
    with pytest.raises(CallFailed, match="reset"):
        session.query("SELECT 1")
    assert session.query("SELECT %s", (5,)) == [(5,)]
    session.close()


@pytest.mark.parametrize(
    "shape", [{"duration": 0.6, "requests": None}, {"rps": 50, "concurrency": None, "requests": 30}]
)
def test_a_session_that_is_ended_fails_its_call_alone_and_another_is_made(postgres_server, shape):
    endpoint = postgres_server.endpoint
    end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'to_end'"

    def end_all() -> None:
        deadline = time.monotonic() + 120
        while not ask(endpoint, f"{end} AND wait_event = 'PgSleep'") and time.monotonic() < deadline:
            time.sleep(0.01)

    ender = threading.Thread(target=end_all)
    ender.start()
    nap = StatementCall(Statement("n", "SELECT pg_sleep(:s)"), (0.02,), 1)
    book = run(endpoint, [nap], name="to_end", **{"concurrency": 2} | shape)
    ender.join()
    assert set(book.errors) == {"reset"}
    assert book.succeeded > 0


def test_an_open_loop_adds_connections_when_calls_take_long(postgres_server):
    nap = StatementCall(Statement("n", "SELECT pg_sleep(:s)"), (0.4,), 1)
    shape = {"concurrency": None, "rps": 60, "arrivals": "constant", "requests": 36}
    book = run(postgres_server.endpoint, [nap], **shape)
    assert (book.sent, book.succeeded, book.failed) == (36, 36, 0)
    assert book.connections > 16 and book.connections_late == book.connections - 16
    assert book.tally.latency_sent.histogram.min >= 400e6


def test_an_open_loop_keeps_to_the_most_in_flight_and_counts_from_the_due_time(postgres_server):
    nap = StatementCall(Statement("n", "SELECT pg_sleep(:s)"), (0.1,), 1)
    shape = {"concurrency": None, "rps": 100, "arrivals": "constant", "requests": 12, "max_in_flight": 2}
    book = run(postgres_server.endpoint, [nap], **shape)
    assert (book.succeeded, book.most_in_flight, book.connections) == (12, 2, 2)
    assert book.tally.latency_sent.histogram.min >= 100e6
    assert book.tally.latency.histogram.max >= 400e6  # the last ones waited for five others


def test_while_one_connects_or_copies_the_others_run(postgres_server):
    endpoint = postgres_server.endpoint
    slow = "CREATE FUNCTION nap() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN PERFORM pg_sleep(1.0); RETURN NEW; END$$"
    ask(endpoint, "CREATE TABLE slow (n integer)", slow)
    ask(endpoint, "CREATE TRIGGER t BEFORE INSERT ON slow FOR EACH ROW EXECUTE FUNCTION nap()")
    beats = itertools.count()
    over = threading.Event()

    def beat() -> None:
        while not over.wait(0.005):
            next(beats)

    beating = threading.Thread(target=beat)
    beating.start()
    try:
        before = next(beats)
        copy = Statement("c", "COPY slow FROM STDIN", control=True)
        assert run(endpoint, [StatementCall(copy, (), 1, b"1\n")], requests=1).succeeded == 1
        copied = next(beats)
        with socket.create_server(("127.0.0.1", 0)) as silent, pytest.raises(CallFailed, match="timeout"):
            mute = Login(f"postgresql://me@127.0.0.1:{silent.getsockname()[1]}/db", timeout_s=2)
            Postgres(mute, [], prepared=True, timeout_s=1).open()
        connected = next(beats)
    finally:
        over.set()
        beating.join()
        ask(endpoint, "DROP TABLE slow", "DROP FUNCTION nap")
    assert copied - before > 20 and connected - copied > 20, "of about 200 beats in the nap, and 400 in the silence"
