"""Every engine of the warehouse stores a run whole or not at all, returns equal bytes and refuses SQL that writes."""

from pathlib import Path

import pyarrow as pa
import pytest
from engines_at_hand import RUNS, filled, new_database
from published_queries import PUBLISHED, ask
from services.on_demand import provide
from tables import check_table
from trial_maker import flip_byte, lake_bytes, make_run, make_trial

from benchhouse.schema.errors import BenchError
from benchhouse.schema.layout import WorkspaceFolder
from benchhouse.schema.measurement import Measurement
from benchhouse.warehouse.engine import rows_digest
from benchhouse.warehouse.engine_lake import LakeEngine
from benchhouse.warehouse.ingest import collect
from benchhouse.warehouse.table import Column, Table
from benchhouse.warehouse.transfer import open_engine, transfer

KINDS = ("lake", "postgresql", "clickhouse")


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    return filled(tmp_path_factory.mktemp("source") / "ws")


@pytest.fixture
def lake(source):
    engine = LakeEngine(source)
    yield engine
    engine.close()


@pytest.fixture
def opened(tmp_path, request):
    """Opens engines by their kind, each empty; closed after the test."""
    engines = []

    def open_one(kind: str):
        if kind == "postgresql":
            address = new_database(request.getfixturevalue("postgres_server").endpoint)
        else:
            if kind == "clickhouse":
                provide("clickhouse", "chdb")
            address = f"clickhouse:{tmp_path / 'ch'}" if kind == "clickhouse" else str(tmp_path / "other")
            (tmp_path / "other").mkdir(exist_ok=True)
        engines.append(open_engine(address))
        return engines[-1]

    yield open_one
    for engine in engines:
        engine.close()


@pytest.mark.parametrize("kind", KINDS)
def test_an_engine_holds_what_was_pushed_and_answers_queries(kind, source, lake, opened, tmp_path):
    sink = opened(kind)
    assert [(one.what, one.rows > 0) for one in transfer(lake, sink, dry_run=True)] == [("new", True)] * 2
    assert sink.runs() == {}, "a dry run writes nothing"

    transfer(lake, sink, ["run-b"])
    if kind != "lake":
        lone = ask(sink, "regression", {"base": "run-a", "run": "run-b"})
        assert all(row["base"] is None and row["now"] for row in lone.dicts())
    assert [(one.run_id, one.what) for one in transfer(lake, sink)] == [("run-a", "new"), ("run-b", "same")]
    assert sink.runs() == lake.runs()
    check_published_queries(lake, sink)
    for sql in WRITES:
        with pytest.raises(BenchError):
            sink.query(sql)
    assert sink.query("SELECT count(*) AS n FROM trial_fact").rows == [(28,)]

    back = WorkspaceFolder(tmp_path / "back")
    back.root.mkdir()
    home = LakeEngine(back)
    transfer(sink, home)
    home.close()
    assert lake_bytes(back) == lake_bytes(source)


def check_published_queries(lake, sink):
    """Each published query gives the same numbers in the engine as in the lake."""
    case = lake.query("SELECT min(benchmark_case_id) FROM trial_fact").rows[0][0]
    two, runs = {"base": RUNS[0], "run": RUNS[1]}, {"runs": RUNS}
    parameters = {"pivot": two, "regression": two, "recent": runs | {"metric": "qps", "case": case}}
    for name in PUBLISHED["duckdb"]:
        expected = ask(lake, name, parameters.get(name, runs))
        found = ask(sink, name, parameters.get(name, runs))
        assert expected.rows, name
        assert found.columns == expected.columns
        if name == "quantiles":  # by definition: engines round the interpolation in their own ways
            assert [row[:-2] for row in found.rows] == [row[:-2] for row in expected.rows]
            numbers, wanted = ([number for row in one.rows for number in row[-2:]] for one in (found, expected))
            assert numbers == pytest.approx(wanted, rel=1e-14)
        else:
            assert found.rows == expected.rows, name  # to the bit
        assert {one.sha256 for one in found.spec.inputs} == {one.sha256 for one in expected.spec.inputs}


WRITES = [
    "DROP TABLE trial_fact", "DELETE FROM trial_fact", "INSERT INTO trial_fact SELECT * FROM trial_fact",
    "SELECT 1; SELECT 2", "CREATE TABLE x (a int)", "SELECT 1) x; DROP TABLE trial_fact; --", "", "SELECT nothing",
]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_that_grew_replaces_its_earlier_state_and_two_units_are_refused(kind, opened, tmp_path):
    small, large = WorkspaceFolder(tmp_path / "small"), WorkspaceFolder(tmp_path / "large")
    for workspace, repetitions in ((small, 1), (large, 2)):
        collect(workspace, "run-a", make_run(workspace, "run-a", repetitions=repetitions))
    for run, unit in (("run-ms", "ms"), ("run-s", "s")):
        numbers = [Measurement(metric="wait", stat="value", value=1.0, unit=unit, direction="lower")]
        collect(large, run, [make_trial(large, run, numbers=numbers)])
    less, more, sink = LakeEngine(small), LakeEngine(large), opened(kind)
    transfer(less, sink)
    assert [one.what for one in transfer(more, sink, ["run-a"])] == ["renewed"]
    assert sink.query("SELECT count(*) AS n FROM trial_fact").rows == [(9,)]

    (refused,) = transfer(less, sink)
    assert refused.what == "refused"
    assert "has 4 of its trials that" in refused.reason
    assert sink.runs()["run-a"] == more.runs()["run-a"]
    assert [one.what for one in transfer(less, sink, replace=True)] == ["renewed"]
    assert sink.query("SELECT count(*) AS n FROM trial_fact").rows == [(5,)]

    transfer(more, sink, ["run-ms", "run-s"])
    sql = "SELECT avg(value) AS mean FROM measurement_fact WHERE metric = 'wait'"
    with pytest.raises(BenchError, match=r"wait was measured in different units: ms \(run run-ms\), s \(run run-s\)"):
        sink.query(sql)
    assert sink.query(f"{sql} AND unit = 's'").rows == [(1.0,)]
    less.close()
    more.close()


@pytest.mark.parametrize("kind", KINDS)
def test_changed_rows_and_a_late_writer_are_refused(kind, lake, opened):
    sink, run = opened(kind), lake.read("run-a")
    if kind != "lake":
        changed = lake.read("run-a")
        changed.rows["measurement_fact"] = "0" * 64
        with pytest.raises(BenchError, match="the rows of measurement_fact have changed"):
            sink.write(changed, None)
        assert sink.runs() == {}
        for table in changed.tables:
            assert sink.query(f"SELECT count(*) AS n FROM {table}").rows == [(0,)]
    assert sink.write(run, None)
    assert not sink.write(run, None)
    assert not sink.write(run, {"trial_fact": "0" * 64})
    assert sink.write(run, run.files)
    assert sink.query("SELECT count(*) AS n FROM trial_fact").rows == [(14,)]


def test_a_damaged_file_of_the_lake_is_refused_and_the_others_go(opened, tmp_path):
    workspace = filled(tmp_path / "ws")
    flip_byte(next((workspace.warehouse / "measurement_fact").glob("run-a-*")))
    lake, sink = LakeEngine(workspace), opened("lake")
    moved = transfer(lake, sink)
    lake.close()
    assert [(one.run_id, one.what) for one in moved] == [("run-a", "refused"), ("run-b", "new")]
    assert "its bytes are not those that were collected" in moved[0].reason
    assert list(sink.runs()) == ["run-b"]


def test_the_digest_of_rows_depends_on_values_and_not_on_their_encoding():
    table = Table("t", "", (Column("a", "text", ""), Column("b", "texts", ""), Column("c", "number", "")), ())

    def digest(a, b, c):
        columns = [pa.array(a, pa.string()), pa.array(b, pa.list_(pa.string())), pa.array(c, pa.float64())]
        return rows_digest(table, pa.Table.from_arrays(columns, schema=table.schema))

    base = (["x", None, ""], [["p", "q"], None, []], [0.5, None, 0.0])
    others = [
        (["x", "", None], base[1], base[2]),
        (base[0], [["p"], ["q"], []], base[2]),
        (base[0], [["pq"], None, []], base[2]),
        (base[0], [["p", "q"], [], None], base[2]),
        (base[0], [["p", None], None, []], base[2]),
        (base[0], base[1], [0.5, 0.0, None]),
        (base[0], base[1], [0.5, None, -0.0]),
        (base[0], base[1], [0.5000000000000001, None, 0.0]),
        (["", None, "x"], base[1], base[2]),
    ]
    assert len({digest(*base), *(digest(*one) for one in others)}) == len(others) + 1
    plain = pa.Table.from_arrays(
        [pa.array(base[0], pa.string()), pa.array(base[1], pa.list_(pa.string())), pa.array(base[2], pa.float64())],
        schema=table.schema,
    )
    chunked = pa.concat_tables([plain.slice(0, 1), plain.slice(1, 2)])
    coded = plain.set_column(0, "a", plain.column("a").dictionary_encode())
    assert rows_digest(table, chunked) == rows_digest(table, coded) == rows_digest(table, plain) == digest(*base)
    assert rows_digest(table, plain.slice(1, 2)) == rows_digest(table, pa.concat_tables([plain.slice(1, 2)]))


@check_table(
    "address, said",
    [
        ("mysql://host/db", "mysql: no engine of that kind"),
        ("clickhouse://host:9000", "kept in a folder here"),
        ("clickhouse:", "kept in a folder here"),
        ("nowhere/at/all", "no such folder"),
        ("postgresql://ada:letmein@host/db", "a password in the address is visible to everyone"),
        ("postgresql://ada:$NOT_SET@host/db", "the variable NOT_SET is not set"),
        ("$NOT_SET", "the variable NOT_SET is not set"),
        ("postgresql://ada@127.0.0.1:1/db", "postgresql://127.0.0.1:1/db: "),
    ],
)
def test_a_wrong_address_is_refused(address, said):
    with pytest.raises(BenchError) as told:
        open_engine(address, {})
    assert said in str(told.value)
    assert "letmein" not in str(told.value)


def test_a_password_comes_from_a_variable(request):
    address = new_database(request.getfixturevalue("postgres_server").endpoint)
    named = address.replace("postgres@", "postgres:$TEAM_PASSWORD@")
    engine = open_engine(named, {"TEAM_PASSWORD": "p@ss/wörd:%"})
    assert engine.runs() == {}
    assert "p@ss" not in engine.name
    engine.close()
    whole = address.replace("postgres@", "postgres:anything@")
    engine = open_engine("$TEAM", {"TEAM": whole})
    assert "anything" not in engine.name
    engine.close()
    unreachable = named.replace(address.rpartition("@")[2].partition("/")[0], "127.0.0.1:1")
    with pytest.raises(BenchError) as told:
        open_engine(unreachable, {"TEAM_PASSWORD": "s3cr3t-word"})
    assert "s3cr3t" not in str(told.value)


def test_a_folder_is_another_workspace(tmp_path: Path):
    engine = open_engine(str(tmp_path))
    assert engine.name == str(tmp_path.resolve())
    assert engine.runs() == {}
    engine.close()
