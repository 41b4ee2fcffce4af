"""`storage.postgres` with `driver: pgbench`: the real program against the real server, and what it can't be asked."""

import os
import signal
import threading
import time

import numpy
import pyarrow.parquet
import pytest
from services.postgres import ask, schemas
from services.quiet_moment import in_a_quiet_moment

from benchhouse.experiments.storage.pgbench import offer, plan, scripts, transactions
from benchhouse.experiments.storage.postgres import postgres
from benchhouse.experiments.storage.postgres_workload import PostgresWorkload, TransactionScript
from benchhouse.load.protocols.postgres import Login, PgbenchRun
from benchhouse.schema.errors import BenchError
from benchhouse.schema.experiment import ExperimentFailed
from benchhouse.schema.recipe import Service

SHORT = {"concurrency": 3, "duration": 0.4, "warmup": 0.1, "rows": 200, "span": 10, "timeout": 20}


@pytest.fixture
def endpoint(postgres_server: Service):
    yield postgres_server.endpoint
    assert schemas(postgres_server.endpoint) == [], "a trial leaves nothing behind"


@pytest.fixture
def target(endpoint):
    return {"endpoint": endpoint, "driver": "pgbench"}


@pytest.mark.parametrize("operation", ["lookup", "range", "update", "transfer", "oltp"])
def test_every_kind_of_transaction_is_counted_and_what_it_wrote_is_there(play, target, operation):
    """Of many rows: two transfers of the same two would be a deadlock, and one of them would write nothing."""
    ctx = play(postgres, target, SHORT | {"operation": operation, "processes": 2, "rows": 20_000})

    rows = {"lookup": 1, "range": 10, "update": 1, "transfer": 2, "oltp": 3}[operation]
    assert ctx.values["errors"] == [0], ctx.facts["first_errors"]
    measured = ctx.facts["measured"]
    assert ctx.facts["transactions"] == {operation: measured} and measured > 10
    assert ctx.histograms[f"latency_{operation}"].n == ctx.histograms["latency"].n == measured
    assert ctx.values["transactions_per_s"][0] == pytest.approx(measured / 0.4, rel=0.2)
    assert ctx.values["rows_per_s"][0] == pytest.approx(rows * ctx.values["transactions_per_s"][0])
    assert ctx.values["lost_writes"] == [0]
    assert not ctx.invalidities.keys() & {"writes_lost", "writes_unasked", "rows_lost"}
    check, everything = ctx.facts["check"], measured + ctx.facts["not_measured"]
    assert check["found"]["hits"] == {"update": 1, "transfer": 2, "oltp": 1}.get(operation, 0) * everything
    assert check["found"]["rows"] == check["found"]["amount"] == (everything if operation == "oltp" else 0)
    assert ctx.facts["pgbench"][:2].isdigit()
    assert ctx.facts["certificate"]["connections"] == ctx.facts["certificate"]["in_flight"] == 3


@pytest.mark.parametrize("prepared", [True, False])
def test_a_mix_has_its_weights(play, target, prepared):
    mix = {"lookup": 0.7, "update": 0.2, "oltp": 0.1}
    ctx = play(postgres, target, SHORT | {"mix": mix, "prepared": prepared, "duration": 1})
    counts, measured = ctx.facts["transactions"], ctx.facts["measured"]
    assert sum(counts.values()) == measured > 20
    for kind, weight in mix.items():
        deviation = (weight * (1 - weight) / measured) ** 0.5
        assert counts[kind] / measured == pytest.approx(weight, abs=5 * deviation)
    assert ctx.values["lost_writes"] == [0]


@pytest.mark.parametrize("loop", [{}, {"concurrency": None, "rps": 40}])
def test_a_planted_sleep_is_the_latency(play, target, loop):
    nap = {"text": "SELECT pg_sleep(:seconds)", "params": {"seconds": 0.02}}

    def measure():
        ctx = play(postgres, target, SHORT | loop | {"operation": "nap", "sql": {"nap": nap}})
        latency = ctx.histograms["latency_sql"]
        assert latency.n == ctx.facts["measured"] > 8
        assert 20 <= latency.quantile(0.1) / 1e6 < 25  # of few, so that other work on the machine is in others
        assert "rows_per_s" not in ctx.values  # which pgbench does not report

    in_a_quiet_moment(measure)


def test_an_open_loop_that_the_server_can_not_follow_counts_from_the_due_time_and_is_invalid(play, target):
    """Two connections can do 20 naps a second, and 60 are asked for."""
    loop = {"concurrency": None, "rps": 60, "max_in_flight": 2, "duration": 2}
    ctx = play(postgres, target, SHORT | loop | {"operation": "nap", "sql": {"nap": "SELECT pg_sleep(0.1)"}})

    assert ctx.histograms["latency_sent"].min >= 100e6
    assert ctx.histograms["latency"].max > 1000e6
    assert ctx.values["transactions_per_s"][0] == pytest.approx(20, rel=0.25)
    assert "not_delivered" in ctx.invalidities
    assert ctx.facts["certificate"]["offered"] == pytest.approx(120, rel=0.4)
    assert ctx.facts["certificate"]["in_flight"] == 2
    assert ctx.errors["latency"]["p50"] < ctx.histograms["latency"].quantile(0.5) / 1e6 / 2  # it is the server's


class FakePgbench:
    """A log that is known: two connections, transactions of 100 ms."""

    def __init__(self, *rows):
        self._rows = rows

    def run(self, job):
        ms = 1_000_000
        client, due, sent, ended = (numpy.array(column, dtype=numpy.int64) for column in zip(*self._rows, strict=True))
        stamps = {"due_ns": due * ms, "sent_ns": sent * ms, "ended_ns": ended * ms}
        return PgbenchRun(
            client=client, script=client * 0, **stamps, failures={}, seconds=2.0, cpu_s=0.1, peak_mb=1.0
        )  # fmt: skip


def test_a_queue_behind_busy_connections_is_latency_and_only_what_pgbench_adds_is_doubted(tmp_path):
    workload = PostgresWorkload.model_validate(
        {"rps": 20, "max_in_flight": 2, "duration": 2, "warmup": 0, "operation": "lookup"}
    )
    rows = [(0, 0, 0, 100), (1, 10, 10, 110), (0, 20, 100, 200), (1, 30, 110, 210), (0, 500, 500, 600)]
    job = plan(workload, Login("postgresql://me@host/db"), seed=1)
    book = offer(FakePgbench(*rows), job, workload, tmp_path / "requests.parquet")
    assert book.tally.latency.histogram.max == 180_000_000  # 20 to 200: it waited 80 ms for a connection
    assert max(book.tally.latency.bounds_ns().values()) < 500_000

    late = [*rows[:2], (0, 20, 105, 205), (1, 30, 110, 210), (0, 500, 530, 630)]
    book = offer(FakePgbench(*late), job, workload, tmp_path / "requests.parquet")
    bounds = book.tally.latency.bounds_ns()
    assert bounds["mean"] == pytest.approx((5 + 30) / 5 * 1e6, abs=0.5e6)  # after it was free, and after it was due
    assert max(book.tally.latency_sent.bounds_ns().values()) < 500_000


def test_an_open_loop_that_the_server_follows_has_its_rate_and_its_arrivals(play, target):
    loop = {"concurrency": None, "rps": 200, "duration": 2}
    ctx = play(postgres, target, SHORT | loop | {"operation": "update"})

    assert ctx.facts["measured"] == pytest.approx(400, abs=100)
    assert ctx.facts["certificate"]["connections"] == 28  # as our own engine begins with
    arrivals = ctx.facts["certificate"]["arrivals"]
    assert arrivals["n"] == ctx.facts["measured"] - 1
    assert ctx.values["lost_writes"] == [0]


def test_records_and_objectives_are_of_every_transaction(play, target):
    ctx = play(postgres, target, SHORT | {"operation": "lookup", "records": True, "slo": "latency.p99<1us"})
    table = pyarrow.parquet.read_table(ctx.artifacts / "requests.parquet")
    assert table["measured"].to_pylist().count(True) == ctx.facts["measured"] > 10
    assert table.num_rows == ctx.facts["measured"] + ctx.facts["not_measured"]
    assert ctx.values["goodput"] == [0]
    assert not list(ctx.artifacts.glob("*.spool"))


def test_own_sql_takes_its_values_as_values(play, target, endpoint):
    ask(endpoint, "DROP TABLE IF EXISTS seen", "CREATE TABLE public.seen (word text, number integer, part float8)")
    evil = "'); DROP TABLE seen; -- \\ 50%"
    own = {
        "text": ["BEGIN", "INSERT INTO seen VALUES (:word, :number, :part) -- kept", "COMMIT;"],
        "params": {"word": evil, "number": {"low": 3, "high": 5}, "part": [0.5, *range(1, 30)]},
    }
    other = {"text": "SELECT :word::text", "params": {"word": "another"}}
    ctx = play(postgres, target, SHORT | {"mix": {"note": 9, "say": 1}, "sql": {"note": own, "say": other}})
    assert ctx.values["errors"] == [0], ctx.facts["first_errors"]
    assert ask(endpoint, "SELECT DISTINCT word FROM seen") == [(evil,)]
    assert {number for (number,) in ask(endpoint, "SELECT DISTINCT number FROM seen")} == {3, 4, 5}
    assert {part for (part,) in ask(endpoint, "SELECT DISTINCT part FROM seen")} <= {0.5, *range(1, 30)}
    ask(endpoint, "DROP TABLE seen")


def test_deadlocks_are_counted_under_their_name(play, target):
    workload = SHORT | {"operation": "transfer", "rows": 2, "span": 1, "concurrency": 6, "duration": 1.5}
    ctx = play(postgres, target | {"settings": {"deadlock_timeout": "5ms"}}, workload)
    assert ctx.values["deadlocks"][0] > 0
    assert ctx.values["deadlocks"] == ctx.values["errors"], ctx.facts["errors"]
    assert ctx.values["lost_writes"] == [0]


def test_a_write_that_is_not_there_is_told(play, target, endpoint):
    def meddle() -> None:
        while not ask(endpoint, "SELECT 1 FROM pg_stat_activity WHERE application_name = 'benchhouse_trial'"):
            time.sleep(0.02)
        ask(endpoint, "UPDATE benchhouse_trial.accounts SET hits = hits - 1000000 WHERE id = 1")

    meddler = threading.Thread(target=meddle)
    meddler.start()
    ctx = play(postgres, target, SHORT | {"operation": "update"})
    meddler.join()
    everything = ctx.facts["measured"] + ctx.facts["not_measured"]
    assert f"{1_000_000} of {everything} acknowledged updates" in ctx.invalidities["writes_lost"]


def test_a_server_that_is_killed_in_mid_run_is_told(play, own_postgres):
    def kill() -> None:
        while not ask(
            own_postgres.endpoint, "SELECT 1 FROM pg_stat_activity WHERE application_name = 'benchhouse_trial'"
        ):
            time.sleep(0.02)
        time.sleep(0.3)
        os.kill(own_postgres.pid, signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    with pytest.raises(ExperimentFailed, match=r"client_aborted: the load: .*aborted in"):
        play(
            postgres, {"endpoint": own_postgres.endpoint, "driver": "pgbench"}, SHORT | {"duration": 250}
        )  # beyond the time limit of a test
    killer.join()


def test_a_statement_that_takes_longer_than_the_time_limit_ends_the_run_and_is_told(play, target):
    with pytest.raises(ExperimentFailed, match=r"client_aborted: .*statement timeout"):
        play(postgres, target, SHORT | {"timeout": 0.2, "operation": "nap", "sql": {"nap": "SELECT pg_sleep(5)"}})


REFUSED = [
    ({"operation": "insert"}, "pgbench has no insert"),
    ({"mix": {"lookup": 1, "copy": 1}}, "pgbench has no copy"),
    ({"requests": 10}, "runs for a time"),
    ({"think_time": 1}, "counts a pause"),
    ({"concurrency": None, "rps": 5, "arrivals": "constant"}, "no arrivals of the kind constant"),
    ({"nodes": "all"}, "on the node of the trial alone"),
    ({"mix": {"lookup": 0.123456789123, "update": 1}}, "whole numbers"),
    ({"operation": "a", "sql": {"a": "SELECT 1; SELECT 2"}}, "several statements"),
    ({"operation": "a", "sql": {"a": {"text": "SELECT ':x', :x", "params": {"x": 1}}}}, r"the colon in ':x'"),
    ({"operation": "a", "sql": {"a": {"text": "SELECT :x", "params": {"x": ["a", "b"]}}}}, "among numbers only"),
    ({"operation": "a", "sql": {"a": {"text": "SELECT :x", "params": {"x": None}}}}, "no null for x"),
]


def test_what_pgbench_can_not_do_is_refused_before_anything_is_started(play):
    for given, message in REFUSED:
        with pytest.raises(BenchError, match=message) as refused:
            scripts(PostgresWorkload.model_validate({"concurrency": 1} | given))
        assert refused.value.hint
        with pytest.raises(ExperimentFailed, match=f"bad_load: .*{message}"):  # the server would be found missing later
            play(
                postgres,
                {"endpoint": "postgresql://me@127.0.0.1:1/db", "driver": "pgbench"},
                {"concurrency": 1} | given,
            )


def test_sql_that_pgbench_takes_as_it_is_meant_is_not_refused():
    for text in ["SELECT 'a::b'", "SELECT '12:30'", "SELECT 1 ;", "SELECT ';' -- ;"]:
        (script,) = scripts(PostgresWorkload(concurrency=1, operation="a", sql={"a": text}))
        assert script.text.count("\n;\n") == 1


def test_what_is_written_is_the_same_with_both_drivers_but_for_the_amounts():
    workload = PostgresWorkload(concurrency=1, mix=dict.fromkeys(("lookup", "range", "update", "transfer", "oltp"), 1))
    works = transactions(workload)
    for ours in TransactionScript(workload, seed=1).works():
        theirs = works[ours.kind]
        assert (theirs.rows, bool(theirs.effect)) == (ours.rows, bool(ours.effect))
        assert [step.statement.text for step in theirs.steps] == [step.statement.text for step in ours.steps]
        if ours.effect and theirs.effect:
            assert (theirs.effect.hits, theirs.effect.rows) == (ours.effect.hits, ours.effect.rows)
            assert bool(theirs.effect.balance) == bool(ours.effect.balance)


def test_the_driver_that_is_gone_is_named_with_the_one_to_take(bench, tmp_path):
    (tmp_path / "old.yaml").write_text(
        "scenario: old\nexperiment: storage.postgres\ntarget: {driver: postgres_pq}\nworkload: {concurrency: 1}\n"
    )
    done = bench("run", "old.yaml")
    message = " ".join((done.out + done.err).split())
    assert done.code
    assert "no driver named 'postgres_pq' is installed" in message
    assert "did you mean 'postgres'? installed: pgbench, postgres" in message
