"""`storage.postgres` against the real server: transactions of every kind, and the truth about what they wrote."""

import pytest
from services.postgres import ask, schemas
from services.quiet_moment import in_a_quiet_moment

from benchhouse.experiments.storage.postgres import PostgresTarget, postgres
from benchhouse.experiments.storage.postgres_workload import BUILT_IN, PostgresWorkload
from benchhouse.schema.experiment import ExperimentFailed
from benchhouse.schema.recipe import Service

FEW = {
    "concurrency": 2,
    "requests": 40,
    "warmup": 0,
    "rows": 200,
    "span": 10,
    "batch": 20,
    "distinct": 50,
    "timeout": 20,
}


@pytest.fixture
def endpoint(postgres_server: Service):
    yield postgres_server.endpoint
    assert schemas(postgres_server.endpoint) == [], "a trial leaves nothing behind"


@pytest.mark.parametrize("operation", BUILT_IN)
def test_every_kind_of_transaction_is_counted_and_what_it_wrote_is_there(play, endpoint, operation):
    ctx = play(postgres, {"endpoint": endpoint}, FEW | {"operation": operation})

    rows = {"lookup": 1, "range": 10, "update": 1, "transfer": 2, "oltp": 3, "insert": 20, "copy": 20}[operation]
    assert ctx.values["errors"] == [0], ctx.facts["first_errors"]
    assert ctx.facts["transactions"] == {operation: 40}
    assert ctx.values["rows_per_s"][0] == pytest.approx(rows * ctx.values["transactions_per_s"][0])
    assert ctx.histograms[f"latency_{operation}"].n == ctx.histograms["latency"].n == 40
    assert ctx.values["lost_writes"] == [0]
    assert not ctx.invalidities.keys() & {"writes_lost", "writes_unasked", "rows_lost"}
    check = ctx.facts["check"]
    hits = {"update": 40, "transfer": 80, "oltp": 40}.get(operation, 0)
    history = {"oltp": 40, "insert": 800, "copy": 800}.get(operation, 0)
    assert (check["found"]["hits"], check["found"]["rows"]) == (hits, history)
    assert check["found"]["amount"] == check["acknowledged"]["amount"] >= history
    assert check["found"]["balance"] - check["loaded"]["balance"] == check["acknowledged"]["balance"]


def test_a_mix_has_its_weights_and_works_without_prepared_statements(play, endpoint):
    mix = {"lookup": 70, "update": 20, "insert": 10}
    workload = FEW | {"mix": mix, "prepared": False, "requests": 600, "distinct": 1000}
    ctx = play(postgres, {"endpoint": endpoint}, workload)

    assert ctx.values["errors"] == [0], ctx.facts["first_errors"]
    shares = {kind: count / 6 for kind, count in ctx.facts["transactions"].items()}
    assert all(abs(shares[kind] - weight) < 8 for kind, weight in mix.items()), shares
    assert ctx.values["lost_writes"] == [0]


def test_an_open_loop_and_several_processes_write_what_they_say(play, endpoint):
    load = {"concurrency": None, "requests": None, "rps": 200, "duration": 0.5, "processes": 2, "operation": "oltp"}
    ctx = play(postgres, {"endpoint": endpoint}, FEW | load | {"max_in_flight": 8})

    assert ctx.values["errors"] == [0], ctx.facts["first_errors"]
    check = ctx.facts["check"]
    assert check["found"]["hits"] == check["found"]["rows"] == ctx.facts["measured"] + ctx.facts["not_measured"] > 50


def test_what_a_load_process_wrote_that_was_killed_is_nobodys_mistake(play, endpoint, kill_shards):
    kill_shards(1, shards=2)
    load = {"requests": None, "duration": 2, "processes": 2, "operation": "insert"}
    ctx = play(postgres, {"endpoint": endpoint}, FEW | load)

    assert ctx.invalidities["shard_lost"].startswith("load process 1 ended by signal 9")
    assert "writes_not_checked" in ctx.warnings and "writes_unasked" not in ctx.invalidities
    assert ctx.facts["errors"] == {"lost": 1}, ctx.invalidities["shard_lost"]
    assert ctx.values["transactions_per_s"][0] > 10


def test_a_planted_sleep_is_the_latency(play, endpoint):
    nap = {"text": "SELECT pg_sleep(:seconds)", "params": {"seconds": 0.02}}
    workload = FEW | {"operation": "nap", "sql": {"nap": nap}, "requests": 20}

    def measure():
        latency = play(postgres, {"endpoint": endpoint}, workload).histograms["latency_sql"]
        assert latency.n == 20
        assert 20 <= latency.quantile(0.1) / 1e6 < 25  # of few, so that other work on the machine is in others

    in_a_quiet_moment(measure)


def test_own_sql_takes_its_values_as_values(play, endpoint):
    ask(endpoint, "DROP TABLE IF EXISTS seen", "CREATE TABLE public.seen (word text, number integer)")
    evil = "'); DROP TABLE seen; --"
    own = {
        "text": ["BEGIN", "INSERT INTO seen VALUES (:word, :number)", "COMMIT"],
        "params": {"word": [evil, "50% \\ :no"], "number": {"low": 3, "high": 5}},
    }
    for prepared in (True, False):
        workload = FEW | {"operation": "note", "sql": {"note": own}, "prepared": prepared}
        ctx = play(postgres, {"endpoint": endpoint}, workload)
        assert ctx.values["errors"] == [0], ctx.facts["first_errors"]

    rows = ask(endpoint, "SELECT word, number FROM seen")
    assert len(rows) == 80
    assert {word for word, _ in rows} == {evil, "50% \\ :no"}
    assert {number for _, number in rows} == {3, 4, 5}
    ask(endpoint, "DROP TABLE seen")


def test_own_sql_that_the_server_does_not_understand_is_told_before_the_load(play, endpoint):
    own = {"text": "SELECT nothing FROM nowhere"}
    with pytest.raises(ExperimentFailed, match=r"bad_sql.*nowhere.*does not exist"):
        play(postgres, {"endpoint": endpoint}, FEW | {"operation": "bad", "sql": {"bad": own}})


def test_own_sql_that_writes_to_our_tables_is_not_checked_and_says_so(play, endpoint):
    own = {"text": "UPDATE accounts SET hits = hits + 5 WHERE id = :id", "params": {"id": {"low": 1, "high": 9}}}
    ctx = play(postgres, {"endpoint": endpoint}, FEW | {"operation": "five", "sql": {"five": own}})

    assert "writes_not_checked" in ctx.warnings
    assert "writes_unasked" not in ctx.invalidities


def test_deadlocks_are_counted_under_their_name(play, endpoint):
    target = {"endpoint": endpoint, "settings": {"deadlock_timeout": "5ms"}}
    workload = FEW | {"operation": "transfer", "rows": 2, "span": 1, "concurrency": 6, "requests": 300}
    ctx = play(postgres, target, workload)

    assert ctx.values["deadlocks"][0] > 0
    assert ctx.values["deadlocks"] == ctx.values["errors"], ctx.facts["errors"]
    assert ctx.values["lost_writes"] == [0]


def test_serialization_errors_are_counted_under_their_name(play, endpoint):
    workload = FEW | {"operation": "oltp", "rows": 2, "span": 1, "concurrency": 4, "isolation": "serializable"}
    ctx = play(postgres, {"endpoint": endpoint}, workload | {"requests": 200})

    assert ctx.values["serialization_errors"][0] > 0
    assert ctx.values["serialization_errors"] == ctx.values["errors"], ctx.facts["errors"]
    assert ctx.values["lost_writes"] == [0]


def test_an_impossible_target_is_refused():
    for given, words in [
        ({"endpoint": "postgresql://me:geheim@host/db"}, "password: \\$NAME"),
        ({"endpoint": "postgresql://host/db?password=geheim"}, "password: \\$NAME"),
        ({"endpoint": "mysql://host/db"}, "postgresql://user@host"),
        ({"endpoint": "postgresql://host:no/db"}, "not an address"),
        ({"settings": {"x; DROP": 1}}, "is no setting"),
    ]:
        with pytest.raises(ValueError, match=words) as refused:
            PostgresTarget(**given)
        told = [item["msg"] for item in refused.value.errors()]
        assert "geheim" not in str(told)


def test_an_impossible_workload_is_refused():
    for given, words in [
        ({"operation": "lookups"}, "none of lookup"),
        ({"operation": "lookup", "mix": {"update": 1}}, "not both"),
        ({"mix": {}}, "at least one"),
        ({"mix": {"lookup": -1}}, "above 0"),
        ({"operation": "range", "span": 1000, "rows": 100}, "does not fit"),
        ({"operation": "insert", "batch": 30_000}, "use copy"),
        ({"operation": "a", "sql": {"a": {"text": "SELECT :x"}}}, "no value for :x"),
        ({"operation": "a", "sql": {"a": {"text": "SELECT 1", "params": {"x": 1}}}}, "is not in it"),
        ({"operation": "a", "sql": {"a": {"text": "SELECT :x", "params": {"x": []}}}}, "nothing to choose"),
        ({"operation": "a", "sql": {"a": {"text": " "}}}, "empty statement"),
        ({"sql": {"a": {"text": "SELECT 1"}}}, "used by neither"),
        ({"operation": "lookup", "sql": {"lookup": {"text": "SELECT 1"}}}, "can't be its name"),
        ({"sql": {"a": {"text": "SELECT :x", "params": {"x": {"low": 2, "high": 1}}}}}, "low is 2"),
    ]:
        with pytest.raises(ValueError, match=words):
            PostgresWorkload(concurrency=1, **given)


def test_a_statement_without_values_needs_no_key():
    short = PostgresWorkload(concurrency=1, operation="nap", sql={"nap": "SELECT pg_sleep(0.01)"})
    assert short == PostgresWorkload(concurrency=1, operation="nap", sql={"nap": {"text": "SELECT pg_sleep(0.01)"}})
    with pytest.raises(ValueError, match="no value for :id"):
        PostgresWorkload(concurrency=1, operation="nap", sql={"nap": "SELECT :id"})
