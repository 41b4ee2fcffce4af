"""Other people's queries run in processes of their own, and each limit holds."""

import contextlib
import json
import os
import re
import resource
import signal
import subprocess
import sys
import threading
import time

import psutil
import pytest
from tables import check_table
from trial_maker import make_run

from benchhouse.schema.errors import BenchError, BusyError
from benchhouse.schema.layout import WorkspaceFolder
from benchhouse.schema.query import QueryLimits, named_query_limits
from benchhouse.warehouse.ingest import collect
from benchhouse.warehouse.query import Warehouse
from benchhouse.warehouse.query_deadline import Deadline

SMALL = QueryLimits(seconds=1.0, memory=128 << 20, answer=1 << 20, spill=16 << 20, at_once=1, wait=0.2)
LONGER = SMALL.model_copy(update={"seconds": 20.0})
ENDLESS = "SELECT sum(x * y) FROM range(1000000) a(x), range(1000000) b(y)"
SPILLING = "SELECT max(h) FROM (SELECT hash(x) AS h FROM range(100000000) t(x) ORDER BY h)"


@pytest.fixture(scope="module")
def filled(tmp_path_factory) -> WorkspaceFolder:
    workspace = WorkspaceFolder(tmp_path_factory.mktemp("limits"))
    collect(workspace, "run-a", make_run(workspace, "run-a"))
    (workspace.root / ".bench" / "baselines.jsonl").write_text("")
    return workspace


def rows(workspace, sql, limits=SMALL):
    with Warehouse.open(workspace) as warehouse:
        return [json.loads(row) for row in warehouse.query_within(limits, sql).json_rows]


HOSTILE = [
    # The binder takes longer for each level of a list, and can't be interrupted.
    (f"SELECT {'[' * 900}1{']' * 900}", "no answer within 1 s"),
    (ENDLESS, "no answer within 1 s"),
    ("WITH RECURSIVE t AS (SELECT 1 AS x UNION ALL SELECT x + 1 FROM t) SELECT max(x) FROM t", "no answer within 1 s"),
    ("SELECT length(repeat('x', 1000000000))", "more than 128 MiB of memory"),
    ("SELECT list(x) FROM range(100000000) t(x)", "more than 128 MiB of memory"),
    (SPILLING, "more than 16 MiB of temporary files"),
    ("SELECT repeat('x', 100000) FROM range(100)", "more than 1 MiB, of which 10 rows fit"),
    ("SELECT repeat('x', 2000000)", "more than 1 MiB, of which 0 rows fit"),
]


@check_table("sql, words", HOSTILE)
def test_a_query_that_exceeds_a_limit_is_ended_and_says_which(filled, sql, words):
    assert rows(filled, "SELECT random() IS NULL AS x") == [{"x": False}]  # a process is ready, and good again
    before, peak = time.monotonic(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    limits = SMALL if "1 s" in words else LONGER
    with pytest.raises(BenchError, match=words) as refused:
        rows(filled, sql, limits)
    assert refused.value.hint.startswith("ask for less")
    assert time.monotonic() - before < limits.seconds + 3
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak < 64 << 10, "KiB, of this process"


def test_the_process_of_a_query_has_no_more_memory_than_its_limit(filled):
    rows(filled, "SELECT random()")
    before = {child.pid: child.memory_info().rss for child in psutil.Process().children()}
    peaks, over = dict[int, int](), threading.Event()

    def watch():
        while not over.wait(0.01):
            for child in psutil.Process().children():
                with contextlib.suppress(psutil.Error):
                    peaks[child.pid] = max(peaks.get(child.pid, 0), child.memory_info().rss)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        with pytest.raises(BenchError, match="memory"):
            rows(filled, "SELECT length(string_agg(x, ',')) FROM range(50000000) t(x)", LONGER)
    finally:
        over.set()
        watcher.join()
    assert peaks and all(peak < before.get(pid, 100 << 20) + SMALL.memory for pid, peak in peaks.items())


def test_queries_share_one_warm_process(filled):
    before = {child.pid for child in psutil.Process().children()}
    for _ in range(3):
        rows(filled, "SELECT random()")
    started = {child.pid for child in psutil.Process().children()} - before
    assert len(started) <= 1
    with pytest.raises(BenchError, match="run_idd"):
        rows(filled, "SELECT run_idd FROM trial_fact")
    assert rows(filled, "SELECT count(*) AS n, max(random()) < 2 AS x FROM trial_fact") == [{"n": 13, "x": True}]
    assert {child.pid for child in psutil.Process().children()} - before == started, "a mistake costs no process"


def test_further_queries_wait_a_bounded_time(filled):
    rows(filled, "SELECT random()")

    def ask_endlessly():
        with pytest.raises(BenchError, match="no answer within 1 s"):
            rows(filled, ENDLESS)

    first = threading.Thread(target=ask_endlessly)
    first.start()
    time.sleep(0.3)
    with pytest.raises(BusyError, match="1 queries run already"):
        rows(filled, "SELECT random()")
    first.join()


def test_a_query_ends_when_nobody_waits_for_it_any_more(filled):
    limits, began = LONGER.model_copy(update={"seconds": 60.0}), time.monotonic()

    def ask_impatiently():
        patience = Deadline()
        threading.Timer(0.5, patience.end).start()
        with pytest.raises(BenchError):
            rows(filled, ENDLESS, limits)

    caller = threading.Thread(target=ask_impatiently)
    caller.start()
    caller.join()
    assert time.monotonic() - began < 20


def test_a_server_that_is_killed_leaves_no_process_and_its_temporary_files_are_removed(filled):
    unfinished = filled.warehouse / ".unfinished"
    program = (
        "import sys; from pathlib import Path; from benchhouse.schema.layout import WorkspaceFolder;"
        "from benchhouse.schema.query import QueryLimits; from benchhouse.warehouse.query import Warehouse;"
        "w = Warehouse.open(WorkspaceFolder(Path(sys.argv[1])));"
        "w.query_within(QueryLimits(seconds=4.0, memory=128 << 20), sys.argv[2])"
    )
    server = subprocess.Popen([sys.executable, "-c", program, filled.root, SPILLING])
    until = time.monotonic() + 30
    while not any(unfinished.rglob("*temp*")) and server.poll() is None and time.monotonic() < until:
        time.sleep(0.02)
    (child,) = psutil.Process(server.pid).children()
    assert any(unfinished.rglob("*temp*"))
    server.send_signal(signal.SIGKILL)
    server.wait()
    child.wait(timeout=30)
    larger = SMALL.model_copy(update={"memory": 130 << 20})
    assert rows(filled, "SELECT random() < 2 AS x", larger) == [{"x": True}]
    assert not any(unfinished.rglob("*temp*"))


SHOWS = [
    "SELECT name, value FROM duckdb_settings()",
    "SELECT * FROM pg_settings",
    "SELECT * FROM pg_catalog.pg_settings",
    "SELECT current_setting('allowed_paths') AS x",
    "SELECT 'allowed_' || 'paths', 'allowed_paths'.current_setting()",
    "SHOW allowed_paths",
    "SHOW temp_directory",
    "SHOW secret_directory",
    "SHOW extension_directory",
    "FROM query('FROM duckdb_' || 'settings()')",
    "FROM query /* */ ('FROM duckdb_' || 'settings()')",
    "FROM query_table('pg_' || 'settings')",
    "FROM json_execute_serialized_sql(json_serialize_sql('FROM duckdb_' || 'settings()'))",
    "FROM duckdb_extensions()",
    "FROM duckdb_secrets()",
    "SELECT sql FROM duckdb_views()",
    "SELECT view_definition FROM information_schema.views",
    "SELECT getenv('HOME')",
    "FROM read_csv('/etc/passwd')",
    "FROM read_text('{root}/.bench/warehouse/catalog.sqlite')",
    "FROM read_blob('catalog.sqlite')",
    "FROM glob('/etc/*')",
    "FROM glob('*')",
    "FROM glob('../*')",
    "FROM '/etc/passwd'",
    "FROM sniff_csv('/etc/passwd')",
    "FROM parquet_schema('/etc/passwd')",
    "FROM read_text('/proc/self/environ')",
    "FROM sqlite_scan('catalog.sqlite', 'file')",
    "FROM enable_profiling(save_location = '/tmp/planted-profile')",
    "SELECT now()",
    "FROM test_all_types()",
]


@check_table("sql", SHOWS)
def test_sql_shows_no_path_of_the_machine_and_reads_no_other_file(filled, sql):
    try:
        shown = json.dumps(rows(filled, sql.format(root="/elsewhere"), LONGER))
    except BenchError as error:
        shown = str(error)
    homes = {str(filled.root), os.path.realpath(filled.root), os.path.expanduser("~"), sys.prefix}
    assert not [home for home in homes if home in shown], shown[:1000]
    assert "root:" not in shown and "SQLite format" not in shown and "PATH=" not in shown
    assert not os.path.exists("/tmp/planted-profile")


def test_text_without_an_end_of_a_word_or_a_comment_is_looked_at_quickly(filled):
    for sql in (f"SELECT '{'a' * 99_000}' AS x", f"SELECT avg(1) AS x -- {'/*' * 49_000}", f"SELECT {'q' * 99_000}"):
        began = time.process_time()
        with contextlib.suppress(BenchError):
            rows(filled, sql)
        assert time.process_time() - began < 1.0, sql[:30]


def test_values_that_json_has_no_word_for_are_plain(filled):
    sql = (
        "SELECT 'NaN'::DOUBLE AS a, [1.5, 'inf'::DOUBLE] AS b, MAP {DATE '2026-01-02': 1} AS c, 1.5::DECIMAL(4, 2) AS"
        " d, TIMESTAMP '2026-01-02' AS e, {'x': INTERVAL 1 DAY} AS f, 12345678901234567890123::HUGEINT AS g"
    )
    (row,) = rows(filled, sql)
    assert row == {
        "a": None, "b": [1.5, None], "c": {"2026-01-02": 1}, "d": 1.5, "e": "2026-01-02T00:00:00.000+00:00",
        "f": {"x": "1 day, 0:00:00"}, "g": 12345678901234567890123,
    }  # fmt: skip


def test_limits_are_named_as_on_the_command_line():
    limits = named_query_limits({"memory": "1GiB", "at_once": "5", "wait": "2s"})
    assert (limits.memory, limits.at_once, limits.wait, limits.rows) == (1 << 30, 5, 2.0, 100_000)
    for wrong in ({"memory": "1"}, {"cpu": "1"}, {"at_once": "0"}, {"answer": "much"}):
        with pytest.raises(BenchError, match=re.escape(f"--query-limit {next(iter(wrong))}")):
            named_query_limits(wrong)
