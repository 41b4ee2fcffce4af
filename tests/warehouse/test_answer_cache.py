"""What was answered is answered again from memory only for the same question to the same bytes."""

import duckdb
from trial_maker import make_trial

from benchhouse.schema.layout import WorkspaceFolder
from benchhouse.schema.query import QueryLimits
from benchhouse.warehouse import queries
from benchhouse.warehouse.answer_cache import KnownAnswers
from benchhouse.warehouse.ingest import collect
from benchhouse.warehouse.query import Warehouse
from benchhouse.warehouse.repeatable_sql import is_repeatable


def trials(workspace):
    with Warehouse.open(workspace) as warehouse:
        return queries.trials(warehouse, ["run-a"])


def test_trials_that_were_collected_since_are_in_the_answer(tmp_path):
    workspace = WorkspaceFolder(tmp_path)
    collect(workspace, "run-a", [make_trial(workspace)])
    first = trials(workspace)
    first.rows.clear()  # whoever asked may do with it as he likes
    assert len(trials(workspace).rows) == 1
    collect(workspace, "run-a", [make_trial(workspace, repetition=2)])
    assert len(trials(workspace).rows) == 2


def test_a_damaged_file_is_noticed_though_its_answer_is_known(tmp_path):
    workspace = WorkspaceFolder(tmp_path)
    collect(workspace, "run-a", [make_trial(workspace)])
    known = trials(workspace)
    (path,) = (workspace.warehouse / "trial_fact").iterdir()
    whole = path.read_bytes()
    path.write_bytes(whole[:-100])
    assert trials(workspace).rows == known.rows
    assert path.read_bytes() == whole  # made again from the evidence


def test_an_answer_to_a_user_is_kept_only_where_it_is_the_same_every_time():
    engine = duckdb.connect()
    changing = "SELECT DISTINCT function_name FROM duckdb_functions() WHERE stability <> 'CONSISTENT'"
    for (name,) in engine.execute(changing).fetchall():
        assert not is_repeatable(f"SELECT count(*), {name}() FROM trial_fact"), name
    for sql in ("SELECT current_date", "SELECT random/**/()", 'SELECT "random"()', "SELECT random ()", "FROM pg_class",
                "SELECT * FROM trial_fact USING SAMPLE 3", "SELECT 1 -- (", "FROM duckdb_settings()"):  # fmt: skip
        assert not is_repeatable(sql), sql
    assert is_repeatable("SELECT scenario, count(*), round(avg(duration_s), 2) FROM trial_fact GROUP BY 1")


def test_an_answer_that_is_known_has_the_limits_of_who_asks(tmp_path):
    workspace = WorkspaceFolder(tmp_path)
    collect(workspace, "run-a", [make_trial(workspace, repetition=at) for at in (1, 2, 3)])
    with Warehouse.open(workspace) as warehouse:
        shown = [
            warehouse.query_within(QueryLimits(rows=rows), "SELECT repetition FROM trial_fact ORDER BY 1")
            for rows in (3, 2, 3)
        ]
    assert [(len(result.json_rows), result.more) for result in shown] == [(3, False), (2, True), (3, False)]


def test_answers_are_bounded_in_bytes_with_their_questions():
    for answer, sql in (("x" * (1 << 20), ""), ("", "SELECT " + "1" * (1 << 18))):
        known = KnownAnswers[str]()
        keys = [("root", sql, str(at), ()) for at in range(40)]
        for key in keys:
            known.keep(key, answer, 1)
        found = [known.find(key) is not None for key in keys]
        assert found == sorted(found) and 25 <= sum(found) <= 32, "the last 32 MiB"
    known.keep(("root", "SELECT", "long", ()), "x" * (7 << 20), 1)
    known.keep(("root", "SELECT", "many", ()), "", 1_000_000)
    assert known.find(("root", "SELECT", "long", ())) is None
    assert known.find(("root", "SELECT", "many", ())) is None
    lists = KnownAnswers[list[dict[str, str]]]()
    lists.keep(keys[0], [{"x" * 1000: "x" * 1000}] * 10_000, 1)
    assert lists.find(keys[0]) is None, "what is inside of an answer counts"
