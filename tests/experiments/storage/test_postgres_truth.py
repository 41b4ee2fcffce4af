"""Faults planted in a real PostgreSQL: in each case the trial says what happened, with the right number."""

import os
import re
import signal
import threading
import time

import pytest
from services.postgres import Scissors, ask, fake_server_of_version, schemas

from benchhouse.experiments.storage.postgres import postgres
from benchhouse.schema.experiment import ExperimentFailed
from benchhouse.schema.recipe import Service

FEW = {"concurrency": 2, "requests": 200, "warmup": 0, "rows": 100, "span": 10, "distinct": 100, "timeout": 20}
LONG = {"concurrency": 2, "duration": 1.5, "warmup": 0, "rows": 100, "span": 10, "distinct": 100, "timeout": 20}
# Every table `accounts` that is made gets a trigger, which keeps count of what it drops.
PLANTED = """
CREATE SEQUENCE public.dropped;
CREATE FUNCTION public.drop_some() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.id %% 7 = 0 THEN PERFORM nextval('public.dropped'); RETURN {what}; END IF;
    RETURN NEW;
END $$;
CREATE FUNCTION public.plant() RETURNS event_trigger LANGUAGE plpgsql AS $$
DECLARE made record;
BEGIN
    FOR made IN SELECT * FROM pg_event_trigger_ddl_commands() WHERE object_identity LIKE '%%.accounts' LOOP
        EXECUTE 'CREATE TRIGGER t BEFORE UPDATE ON ' || made.object_identity
            || ' FOR EACH ROW EXECUTE FUNCTION public.drop_some()';
    END LOOP;
END $$;
CREATE EVENT TRIGGER planted ON ddl_command_end WHEN TAG IN ('CREATE TABLE') EXECUTE FUNCTION public.plant();
""".replace("%%", "%")
REMOVED = "DROP EVENT TRIGGER planted; DROP FUNCTION plant; DROP FUNCTION drop_some; DROP SEQUENCE dropped"


@pytest.fixture
def endpoint(postgres_server: Service):
    yield postgres_server.endpoint
    assert schemas(postgres_server.endpoint) == [], "a trial leaves nothing behind, also one that failed"


@pytest.fixture
def planted(endpoint):
    def plant(what: str) -> None:
        ask(endpoint, PLANTED.replace("{what}", what))

    yield plant
    ask(endpoint, REMOVED)


def dropped(endpoint: str) -> int:
    ((last, called),) = ask(endpoint, "SELECT last_value, is_called FROM public.dropped")
    return last if called else 0


@pytest.mark.parametrize("operation", ["update", "oltp"])
def test_a_lost_write_is_told(play, endpoint, planted, operation):
    planted("OLD")  # the server says UPDATE 1, and has changed nothing
    ctx = play(postgres, {"endpoint": endpoint}, FEW | {"operation": operation})

    lost = dropped(endpoint)
    assert lost > 5
    assert ctx.values["lost_writes"] == [lost]
    assert f"{lost} of 200 acknowledged updates are not in the database" in ctx.invalidities["writes_lost"]
    assert ctx.values["errors"] == [0]


def test_an_update_that_changes_no_row_is_an_error_and_no_lost_write(play, endpoint, planted):
    planted("NULL")  # the server says UPDATE 0
    ctx = play(postgres, {"endpoint": endpoint}, FEW | {"operation": "update"})

    assert ctx.facts["errors"] == {"wrong_rows": dropped(endpoint)}
    assert ctx.values["errors"][0] > 5
    assert ctx.values["lost_writes"] == [0]
    assert "writes_lost" not in ctx.invalidities


def test_writes_of_somebody_else_are_told(play, endpoint):
    def meddle() -> None:
        while not ask(endpoint, "SELECT 1 FROM pg_stat_activity WHERE application_name = 'benchhouse_trial'"):
            time.sleep(0.02)
        ask(endpoint, "UPDATE benchhouse_trial.accounts SET hits = hits + 1000 WHERE id = 1")

    meddler = threading.Thread(target=meddle)
    meddler.start()
    ctx = play(postgres, {"endpoint": endpoint}, LONG | {"operation": "lookup"})
    meddler.join()
    assert "has grown by 1000; 0 were acknowledged" in ctx.invalidities["writes_unasked"]


def _when_written(server: Service, then: int) -> None:
    """Wait until the trial has committed some updates."""
    for _ in range(400):
        time.sleep(0.01)
        try:
            if ask(server.endpoint, "SELECT sum(hits) FROM benchhouse_trial.accounts")[0][0] > then:
                return
        except Exception:
            continue


def test_a_server_of_its_own_crashes_then_asks_for_a_password_and_then_is_killed(
    play,
    failure_of,
    own_postgres,
    monkeypatch,
):
    """One server after the other would take as long to start as all that is done with it here."""
    for durable in (True, False):
        _crash_loses_what_was_acknowledged_only_where_commits_do_not_wait(play, own_postgres, durable)
    _password_is_needed_given_and_never_shown(play, own_postgres)

    monkeypatch.setattr("benchhouse.experiments.storage.postgres._BACK_S", 0.3)
    killer = _killer(own_postgres)
    failure = failure_of(postgres, {"endpoint": own_postgres.endpoint}, LONG | {"operation": "update"})
    killer.join()
    assert failure.code == "not_reached"
    assert re.search(r"after \d+ good transactions.*could not be checked.*refused", failure.message)


def _crash_loses_what_was_acknowledged_only_where_commits_do_not_wait(play, server: Service, durable: bool) -> None:
    ask(server.endpoint, "ALTER SYSTEM SET wal_writer_delay = '10s'", "SELECT pg_reload_conf()")
    target = {"endpoint": server.endpoint, "settings": {"synchronous_commit": durable}}
    crasher = threading.Thread(target=_crash_a_session, args=(server,))
    crasher.start()
    ctx = play(postgres, target, LONG | {"operation": "update"})
    crasher.join()

    assert ctx.values["errors"][0] > 0
    assert ctx.facts["errors"].keys() <= {"reset", "refused", "starting"}, ctx.facts["errors"]
    assert (ctx.values["lost_writes"][0] > 0) is not durable
    assert ("writes_lost" in ctx.invalidities) is not durable


def _crash_a_session(server: Service) -> None:
    _when_written(server, 20)
    found = ask(server.endpoint, "SELECT pid FROM pg_stat_activity WHERE application_name = 'benchhouse_trial'")
    os.kill(found[0][0], signal.SIGKILL)


def _killer(server: Service) -> threading.Thread:
    """A thread that kills the server once the trial has written something."""

    def kill() -> None:
        _when_written(server, 20)
        os.kill(server.pid, signal.SIGKILL)

    thread = threading.Thread(target=kill)
    thread.start()
    return thread


def test_a_load_whose_server_was_killed_ends_long_before_its_time(failure_of, own_postgres):
    killer = _killer(own_postgres)
    load = LONG | {"concurrency": None, "rps": 200, "operation": "update", "duration": 600}
    failure = failure_of(postgres, {"endpoint": own_postgres.endpoint}, load)
    killer.join()
    assert failure.code == "server_gone"
    assert re.search(r" connection for 3 s, after \d+ good answers \(refused \d+ times", failure.message)


def test_a_connection_dropped_while_tables_are_made_fails_the_trial_and_leaves_nothing(play, endpoint):
    for words, code in [
        (b"CREATE SCHEMA", "not_reached: the schema could not be made"),
        (b"CREATE TABLE", "not_reached: the tables could not be filled"),
        (b"COPY", "not_reached: the tables could not be filled"),
    ]:
        scissors = Scissors(endpoint, words)
        with pytest.raises(ExperimentFailed, match=code):
            play(postgres, {"endpoint": scissors.endpoint}, FEW)
        assert scissors.was_cut
        scissors.close()


def test_a_connection_dropped_in_the_load_is_one_error_and_made_again(play, endpoint):
    own = {"text": "SELECT :word", "params": {"word": ["snip", *map(str, range(99))]}}
    scissors = Scissors(endpoint, b"snip", cuts=1)
    workload = FEW | {"operation": "say", "sql": {"say": own}, "requests": 400, "distinct": 400}
    ctx = play(postgres, {"endpoint": scissors.endpoint}, workload)
    scissors.close()

    assert ctx.facts["errors"] == {"reset": 1}
    assert ctx.facts["measured"] == 399


@pytest.mark.parametrize("words", [b"pg_stat_activity", b"sum(hits)", b"DROP SCHEMA"])
def test_a_connection_dropped_after_the_load_is_made_again_or_told(play, endpoint, words):
    scissors = Scissors(endpoint, words)
    try:
        ctx = play(postgres, {"endpoint": scissors.endpoint}, FEW)
        assert ctx.facts["measured"] == 200
    except ExperimentFailed as failed:
        assert "reset" in failed.message
    assert scissors.was_cut
    scissors.close()
    ask(endpoint, "DROP SCHEMA IF EXISTS benchhouse_trial CASCADE")


def test_a_connection_that_can_not_be_had_for_dropping_leaves_a_warning_with_the_name(play, endpoint):
    scissors = Scissors(endpoint, b"DROP SCHEMA")
    ctx = play(postgres, {"endpoint": scissors.endpoint}, FEW)
    scissors.close()
    assert "benchhouse_trial could not be dropped" in ctx.warnings["left_behind"]
    ask(endpoint, "DROP SCHEMA benchhouse_trial CASCADE")


def test_tables_of_the_same_name_are_never_touched(play, endpoint):
    ask(
        endpoint, "CREATE TABLE public.accounts (id integer, hits integer)", "INSERT INTO public.accounts VALUES (1, 7)"
    )
    ask(endpoint, "CREATE SCHEMA benchhouse_trial", "CREATE TABLE benchhouse_trial.accounts AS TABLE public.accounts")
    try:
        with pytest.raises(ExperimentFailed, match=r"schema_exists: .*benchhouse_trial already, which is left alone"):
            play(postgres, {"endpoint": endpoint}, FEW | {"operation": "update"})
        assert ask(endpoint, "SELECT * FROM benchhouse_trial.accounts") == [(1, 7)]
        ask(endpoint, "DROP SCHEMA benchhouse_trial CASCADE")
        assert play(postgres, {"endpoint": endpoint}, FEW | {"operation": "update"}).values["lost_writes"] == [0]
        assert ask(endpoint, "SELECT * FROM public.accounts") == [(1, 7)]
    finally:
        ask(endpoint, "DROP TABLE public.accounts", "DROP SCHEMA IF EXISTS benchhouse_trial CASCADE")


def _password_is_needed_given_and_never_shown(play, server: Service) -> None:
    endpoint = server.endpoint
    ask(endpoint, "CREATE ROLE locked LOGIN SUPERUSER PASSWORD 'right-one'")
    hba = server.folder / "pg_hba.conf"
    hba.write_text(f"host all locked 127.0.0.1/32 scram-sha-256\n{hba.read_text()}")
    ask(endpoint, "SELECT pg_reload_conf()")
    target = {"endpoint": re.sub("postgres:[^@]*@", "locked@", endpoint)}
    for password, words in ((None, "no password supplied"), ("wrong-one", "password authentication failed")):
        with pytest.raises(ExperimentFailed, match=f"login: .*{words}") as refused:
            play(postgres, target | {"password": password}, FEW)
        assert "wrong-one" not in str(refused.value)
    ctx = play(postgres, target | {"password": "right-one"}, FEW)
    assert ctx.values["errors"] == [0]
    assert "right-one" not in repr((ctx.facts, ctx.warnings, ctx.invalidities))


@pytest.mark.parametrize(
    ("endpoint", "words"),
    [
        ("postgresql://me@no-such-host.invalid/db", "not_reached: no session at no-such-host.invalid: dns"),
        ("postgresql://me@127.0.0.1:1/db", r"not_reached: no session at 127.0.0.1: refused.*is the server up"),
    ],
)
def test_a_server_that_is_not_there_is_told(play, endpoint, words):
    with pytest.raises(ExperimentFailed, match=words):
        play(postgres, {"endpoint": endpoint}, FEW)


def test_a_database_that_is_not_there_is_told(play, endpoint):
    with pytest.raises(ExperimentFailed, match=r'no_database: .*"nowhere" does not exist'):
        play(postgres, {"endpoint": endpoint.removesuffix("postgres") + "nowhere"}, FEW)


@pytest.mark.parametrize("version", ["9.6.24", "11.22"])
def test_a_server_that_is_too_old_is_told(play, version):
    with (
        fake_server_of_version(version) as endpoint,
        pytest.raises(ExperimentFailed, match=f"unsupported_version: .*PostgreSQL {version.rpartition('.')[0]}.*12"),
    ):
        play(postgres, {"endpoint": endpoint}, FEW)


def test_more_clients_than_the_server_takes_is_told(play, endpoint):
    ask(endpoint, "ALTER ROLE postgres CONNECTION LIMIT 500", "CREATE ROLE few LOGIN SUPERUSER")
    try:
        ask(endpoint, "ALTER ROLE few NOSUPERUSER CONNECTION LIMIT 3", "GRANT CREATE ON DATABASE postgres TO few")
        target = {"endpoint": re.sub("postgres:[^@]*@", "few@", endpoint)}
        with pytest.raises(ExperimentFailed, match=r"not_reached.*too many connections"):
            play(postgres, target, FEW | {"concurrency": 8})
    finally:
        ask(endpoint, "DROP SCHEMA IF EXISTS benchhouse_trial CASCADE", "DROP OWNED BY few", "DROP ROLE few")


def test_a_driver_of_something_else_is_told(play, endpoint):
    with pytest.raises(ExperimentFailed, match="bad_load: 'openai' is no driver of PostgreSQL"):
        play(postgres, {"endpoint": endpoint, "driver": "openai"}, FEW)
