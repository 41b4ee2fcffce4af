"""The driver `pgbench` on the real server, with every pgbench that is here: what its log says, and how it fails."""

import os
import signal
import stat
import threading
import time
from dataclasses import replace

import pytest
from services.postgres import ask
from services.quiet_moment import in_a_quiet_moment

from benchhouse.drivers import pgbench
from benchhouse.drivers.pgbench import PROGRAMS, Pgbench
from benchhouse.load.protocols.calls import CallFailed
from benchhouse.load.protocols.postgres import Login, PgbenchJob, PgbenchScript
from benchhouse.processes.programs import locate
from benchhouse.schema.errors import BenchError

EACH = [program for place in PROGRAMS[:3] if (program := locate([place]))]
MS = 1_000_000


@pytest.fixture(params=EACH, ids=lambda program: Pgbench(program).version)
def driver(request):
    return Pgbench(request.param)


def job(endpoint: str, *texts: str, **options) -> PgbenchJob:
    scripts = tuple(PgbenchScript(f"{text}\n") for text in texts)
    return PgbenchJob(Login(endpoint), scripts, **{"clients": 1, "seconds": 1, "timeout_s": 20} | options)


def test_a_planted_sleep_is_the_time_of_each_transaction(postgres_server, driver):
    """The server sleeps in some transactions, and pgbench itself in others."""
    before = time.monotonic_ns()
    texts = ("SELECT pg_sleep(0.05);", "\\sleep 50 ms\nSELECT 1;")
    run = driver.run(job(postgres_server.endpoint, *texts, clients=3, threads=2))
    after = time.monotonic_ns()

    assert 6 <= len(run) <= 63 and not run.failures and set(run.script) == {0, 1}
    taken = run.ended_ns - run.sent_ns
    assert taken.min() >= 50 * MS
    assert (run.due_ns == run.sent_ns).all()
    assert before < run.sent_ns.min() and run.ended_ns.max() < after
    assert list(run.ended_ns) == sorted(run.ended_ns)
    assert 0.9 < run.seconds < 60 and 0 < run.cpu_s < run.seconds and run.peak_mb > 1


def test_the_median_is_the_planted_sleep(postgres_server):
    def measure():
        run = Pgbench().run(job(postgres_server.endpoint, "SELECT pg_sleep(0.02);", clients=2))
        taken = sorted(run.ended_ns - run.sent_ns)
        assert 20 * MS <= taken[len(taken) // 2] < 25 * MS

    in_a_quiet_moment(measure)


def test_a_rate_that_is_too_high_shows_in_the_time_from_the_due_moment_alone(postgres_server, driver):
    """One client that can do ten a second must do sixty: each waits longer than the previous one."""
    run = driver.run(job(postgres_server.endpoint, "SELECT pg_sleep(0.1);", seconds=1, rate=60.0))

    lag, taken = run.sent_ns - run.due_ns, run.ended_ns - run.sent_ns
    assert taken.min() >= 100 * MS
    assert lag.min() >= 0 and lag[-1] > 300 * MS
    assert list(run.due_ns) == sorted(run.due_ns)


def test_a_rate_that_is_low_enough_is_kept(postgres_server):
    run = Pgbench().run(job(postgres_server.endpoint, "SELECT 1;", seconds=1, rate=200.0, clients=4, threads=2))
    assert len(run) == pytest.approx(200, abs=75)  # of a random number with a standard deviation of 14


def test_every_transaction_that_the_server_committed_is_in_the_log(postgres_server, driver):
    endpoint = postgres_server.endpoint
    ask(endpoint, "DROP TABLE IF EXISTS counted", "CREATE TABLE counted (script integer)")
    texts = [f"INSERT INTO counted VALUES ({number});" for number in range(2)]
    load = job(endpoint, *texts, clients=4, threads=2)
    run = driver.run(replace(load, scripts=(replace(load.scripts[0], weight=3), load.scripts[1])))

    counts = dict(ask(endpoint, "SELECT script, count(*) FROM counted GROUP BY 1"))
    assert {number: int((run.script == number).sum()) for number in range(2)} == counts
    assert 2 < counts[0] / counts[1] < 4.5
    ask(endpoint, "DROP TABLE counted")


@pytest.mark.parametrize("prepared", [True, False])
def test_a_variable_arrives_as_a_value(postgres_server, prepared):
    endpoint, evil = postgres_server.endpoint, "'); DROP TABLE said; --"
    ask(endpoint, "DROP TABLE IF EXISTS said", "CREATE TABLE said (word text)")
    load = job(endpoint, prepared=prepared)
    script = PgbenchScript("INSERT INTO said VALUES (:word);\n", variables={"word": evil})
    run = Pgbench().run(replace(load, scripts=(script,)))
    assert ask(endpoint, "SELECT DISTINCT word FROM said") == [(evil,)]
    assert ask(endpoint, "SELECT count(*) FROM said") == [(len(run),)]
    ask(endpoint, "DROP TABLE said")


def test_deadlocks_are_counted_and_do_not_end_a_client(postgres_server, driver):
    endpoint = postgres_server.endpoint
    ask(endpoint, "DROP TABLE IF EXISTS two", "CREATE TABLE two (id integer, n integer)")
    ask(endpoint, "INSERT INTO two VALUES (1, 0), (2, 0)")
    update = "UPDATE two SET n = n + 1 WHERE id = "
    texts = [f"BEGIN;\n{update}{a};\n\\sleep 5 ms\n{update}{b};\nCOMMIT;" for a, b in ((1, 2), (2, 1))]
    load = job(endpoint, *texts, clients=6)
    run = driver.run(replace(load, login=Login(endpoint, settings={"deadlock_timeout": "5ms"})))

    assert run.failures and set(run.failures.values()) == {"deadlock"}
    assert ask(endpoint, "SELECT sum(n) FROM two") == [(2 * (len(run) - len(run.failures)),)]
    ask(endpoint, "DROP TABLE two")


def test_any_other_error_of_the_server_ends_the_run_and_is_named(postgres_server):
    endpoint = postgres_server.endpoint
    for text, message in [
        ("SELECT 1 / 0;", "division by zero"),
        ("SELECT * FROM no_such_table;", "no_such_table.*does not exist"),
    ]:
        with pytest.raises(CallFailed, match=rf"client_aborted: .*{message}.*driver: postgres counts it"):
            Pgbench().run(job(endpoint, text))
    with pytest.raises(CallFailed, match=r"refused: .*Connection refused"):
        Pgbench().run(job("postgresql://me@127.0.0.1:1/db", "SELECT 1;"))
    with pytest.raises(CallFailed, match=r"no_database: .*nowhere"):
        Pgbench().run(job(endpoint.removesuffix("postgres") + "nowhere", "SELECT 1;"))


def test_a_script_that_pgbench_does_not_understand_is_told(postgres_server):
    with pytest.raises(BenchError, match=r"pgbench ended with 1: .*invalid command"):
        Pgbench().run(job(postgres_server.endpoint, "\\nonsense"))


def test_a_server_that_hangs_is_told_after_the_time_limit(postgres_server, monkeypatch):
    monkeypatch.setattr(pgbench, "_SPARE_S", 1.0)
    endpoint, frozen = postgres_server.endpoint, []

    def freeze() -> None:
        query = "SELECT pid FROM pg_stat_activity WHERE application_name = 'to_freeze' AND wait_event = 'PgSleep'"
        while not (rows := ask(endpoint, query)):
            time.sleep(0.01)
        frozen.append(rows[0][0])
        os.kill(frozen[0], signal.SIGSTOP)

    freezer = threading.Thread(target=freeze)
    freezer.start()
    try:
        load = replace(job(endpoint, "SELECT pg_sleep(0.1);", timeout_s=1), login=Login(endpoint, name="to_freeze"))
        with pytest.raises(CallFailed, match=r"timeout: pgbench was still running after 3 s"):
            Pgbench().run(load)
    finally:
        freezer.join()
        os.kill(frozen[0], signal.SIGCONT)


def fake_program(folder, version: str, then: str = "exit 1") -> str:
    program = folder / "fake-pgbench"
    program.write_text(f'#!/bin/sh\nif [ "$1" = --version ]; then echo "{version}"; exit; fi\n{then}\n')
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return str(program)


def test_the_password_is_not_on_the_command_line(tmp_path):
    seen = tmp_path / "seen"
    program = fake_program(tmp_path, "pgbench (PostgreSQL) 18.4", f'echo "$@" "[$PGPASSWORD]" > {seen}; exit 1')
    for login in (Login("postgresql://me:secret@host/db"), Login("postgresql://me@host/db", password="secret")):
        with pytest.raises(BenchError, match="it gave no reason"):
            Pgbench(program).run(replace(job("", "SELECT 1;"), login=login))
        arguments, _, environment = seen.read_text().partition(" [")
        assert "secret" not in arguments and environment == "secret]\n"


def test_a_missing_or_unusable_program_is_told(tmp_path, monkeypatch):
    with pytest.raises(BenchError, match=r"pgbench 13\.5 is too old: at least 14"):
        Pgbench(fake_program(tmp_path, "pgbench (PostgreSQL) 13.5"))
    with pytest.raises(BenchError, match="answers 'nothing'"):
        Pgbench(fake_program(tmp_path, "nothing"))
    monkeypatch.setattr(pgbench, "PROGRAMS", ("no_such_package:bin/pgbench", "no-such-pgbench"))
    with pytest.raises(BenchError, match="needs the program pgbench") as refused:
        Pgbench()
    assert "postgres-server" in (refused.value.hint or "")
