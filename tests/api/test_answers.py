"""What methods return: typed rows, data frames, the very text that `bench` prints, and HTML without surprises."""

import json

import pyarrow as pa
import pytest
from services.on_demand import module

import benchhouse as bh
from benchhouse.api.answers import CurveComparison, TargetComparison


def test_points_are_typed_rows(two_runs):
    points = two_runs.points()
    walls = [row for row in points if row.metric == "wall_ms" and row.headline]
    assert len(walls) == 2 and len(points) == len(list(points))
    for row in walls:
        assert (row.run_id, row.unit, row.direction, row.n) == (two_runs["@last"].id, "ms", "lower", 3)
        assert min(row.values) == row.min <= row.mean <= row.max == max(row.values) and len(row.trials) == 3
        assert json.loads(row.axes) == {"target.name": row.target_name}
    assert {point.label: (point.succeeded, point.trials) for point in points.tried} == {
        "name=echo": (3, 3),
        "name=true": (3, 3),
    }
    with pytest.raises(AttributeError):
        walls[0].mean = 0.0


def test_points_become_data_frames(two_runs):
    import pandas as pd

    points = two_runs.points("@last-1", "@last")
    table = points.arrow()
    assert isinstance(table, pa.Table) and table.num_rows == len(points)
    frame = points.df()
    assert isinstance(frame, pd.DataFrame) and frame["run_id"].nunique() == 2
    assert frame["mean"].tolist() == [row.mean for row in points]
    result = two_runs.query("select target_name, count(*) as trials from trial_fact group by all order by all")
    assert result.columns == ("target_name", "trials") and list(result) == result.rows == [("echo", 6), ("true", 6)]
    assert result.df().to_dict("records") == result.to_dict()["rows"]
    assert len(result.to_dict()["query_spec_digest"]) == 64


@pytest.mark.starts  # it installs polars
def test_points_and_rows_become_polars_frames(two_runs):
    pl = module("polars", "polars")
    points = two_runs.points("@last-1", "@last")
    frame = points.df("polars")
    assert isinstance(frame, pl.DataFrame) and frame["mean"].to_list() == [row.mean for row in points]
    result = two_runs.query("select target_name, count(*) as trials from trial_fact group by all order by all")
    assert result.df("polars").to_dicts() == result.to_dict()["rows"]


def test_an_empty_answer_becomes_an_empty_frame(two_runs):
    result = two_runs.query("select run_id from trial_fact where false")
    assert len(result) == 0 and result.df().columns.tolist() == ["run_id"]


@pytest.mark.parametrize(
    ("ask", "command"),
    [
        (lambda ws: ws.compare("@last-1", "@last"), ["compare", "@last-1", "@last"]),
        (lambda ws: ws["@last"].compare("@last-1", every=True), ["compare", "@last-1", "@last", "--all"]),
        (
            lambda ws: ws.compare("@last:name=echo", "@last:name=true", metrics=["wall_ms.p99"]),
            ["compare", "@last:name=echo", "@last:name=true", "--metric", "wall_ms.p99"],
        ),
        (lambda ws: ws["@last"].compare(), ["compare", "@last"]),
        (lambda ws: ws["@last"].why("@last-1"), ["why", "@last", "--vs", "@last-1"]),
        (lambda ws: ws.history("wall_ms", "greetings/echo"), ["history", "greetings/echo", "--metric", "wall_ms"]),
        (lambda ws: ws.trace("@last:name=echo:wall_ms"), ["trace", "@last:name=echo:wall_ms"]),
        (lambda ws: ws.query("select 1 as one"), ["query", "select 1 as one"]),
    ],
    ids=["compare", "compare all", "compare points", "side by side", "why", "history", "trace", "query"],
)
def test_show_prints_exactly_what_bench_prints(two_runs, bench, capsys, ask, command):
    typed = bench(*command, cwd=two_runs.root)
    assert typed.code == 0, typed.err
    ask(two_runs).show()
    shown = capsys.readouterr()
    assert shown.out == typed.out and len(shown.out) > 5
    assert shown.err == typed.err


def test_plain_data_is_what_json_prints(two_runs, bench):
    for answer, command in (
        (two_runs.compare("@last-1", "@last"), ["compare", "@last-1", "@last"]),
        (two_runs["@last"].compare(), ["compare", "@last"]),
        (two_runs.history("wall_ms", "greetings/echo"), ["history", "greetings/echo", "--metric", "wall_ms"]),
        (two_runs.why("@last", "@last-1"), ["why", "@last", "--vs", "@last-1"]),
    ):
        printed = json.loads(bench(*command, "--json", cwd=two_runs.root).out)
        assert json.loads(json.dumps(answer.to_dict(), default=str)) == printed, command


def test_comparisons_by_what_is_asked(two_runs):
    pair = two_runs.compare("@last-1", "@last", metrics=["wall_ms"], confidence=0.9)
    assert {row.metric for row in pair.table.rows} == {"wall_ms"} and pair.table.confidence == 0.9
    assert "B against A" in pair.markdown() and pair.svg().startswith("<svg")
    assert isinstance(two_runs.compare(), TargetComparison), "without a name, the targets of the last run"
    for options, message in (
        ({"paired": True}, "paired: only for two runs"),
        ({"of": "wall_ms"}, "of: only with at or along"),
        ({"at": "wall_ms=1", "metrics": ["wall_ms"]}, "metrics: not with at or along"),
    ):
        with pytest.raises(bh.BenchError, match=message):
            two_runs.compare("@last", **options)


def test_targets_are_compared_along_an_axis(tmp_path):
    ws = bh.open(tmp_path)
    ws.run(
        {
            "scenario": "curve",
            "experiment": "command",
            "targets": [{"name": "echo", "argv": ["echo", "a"]}, {"name": "true", "argv": ["true"]}],
            "workload": {"executions": [1, 2, 4]},
            "repetitions": 2,
            "monitors": False,
        }
    )
    curves = ws.compare("@last", along="executions", of="executions_per_s")
    assert isinstance(curves, CurveComparison) and curves.run_ids == [ws["@last"].id]
    assert "executions" in curves.markdown()
    assert curves._repr_html_().startswith("<pre") and "echo" in curves._repr_html_()


def test_a_chart_is_written_and_what_is_in_the_way_is_named(two_runs, tmp_path):
    pair = two_runs.compare("@last-1", "@last")
    pair.write_svg(tmp_path / "a.svg")
    assert (tmp_path / "a.svg").read_text() == pair.svg()
    with pytest.raises(bh.BenchError, match="can't be written"):
        pair.write_svg(tmp_path / "nowhere" / "a.svg")


def test_history_why_report_and_verify(two_runs):
    history = two_runs.history("wall_ms", "greetings/echo").watched.history
    assert [run.run_id for run in history.runs] == [run.id for run in two_runs.runs()]
    with pytest.raises(bh.BenchError, match="several cases"):
        two_runs.history("wall_ms")
    assert {case.case for case in two_runs.cases()} == {"greetings/name=echo", "greetings/name=true"}
    assert two_runs.why().headline.startswith(two_runs["@last"].id)
    report = two_runs["@last"].report()
    assert report.html.is_file() and report.markdown.is_file() and report.json.is_file()
    assert two_runs.verify().ok and two_runs.verify("@last").checked == 6


def test_a_number_is_traced_and_claimed(two_runs):
    traced = two_runs.trace("@last:name=echo:wall_ms")
    assert traced.ok and [step.name for step in traced.steps] == ["report", "query", "identity", "evidence"]
    with pytest.raises(bh.BenchError) as raised:
        two_runs.claim("@last:name=echo:wall_ms")
    assert raised.value.exit_code == 4, "three repetitions are not publication-safe"
    assert len(two_runs.claims.list()) == 0


HOSTILE = "<script>alert(1)</script>"


@pytest.mark.starts
def test_hostile_names_are_text_in_a_notebook(tmp_path):
    ws = bh.open(tmp_path)
    scenario = {
        "scenario": "hostile",
        "experiment": "command",
        "targets": [{"name": HOSTILE, "argv": ["true"]}, {"name": "'\"&", "argv": ["true"]}],
        "repetitions": 2,
        "monitors": False,
    }
    run = ws.run(scenario)
    ws.run(scenario)
    answers = [
        run,
        run.points(),
        run.compare(),
        run.why(),
        ws.compare("@last-1", "@last"),
        ws.history("wall_ms", f"hostile/{HOSTILE}"),
        ws.trace(f"{run.id}:name='\"&:wall_ms"),
        ws.query('select target_name as "<b>" from trial_fact order by 1'),
        run.report(),
    ]
    for answer in answers:
        html = answer._repr_html_()
        assert "<script" not in html and "<b>&" not in html, type(answer)
    assert "&lt;script&gt;alert(1)" in run.points()._repr_html_()
    assert "&lt;b&gt;" in answers[-2]._repr_html_()


def test_many_rows_are_cut_and_counted(two_runs):
    html = two_runs.query("select unnest(range(1234)) as number")._repr_html_()
    assert html.count("<tr>") == 51 and "and 1,184 more rows" in html


def test_what_is_not_installed_is_named(two_runs, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "polars", None)
    with pytest.raises(bh.BenchError, match="polars is not installed") as raised:
        two_runs.points().df("polars")
    assert "pip install polars" in raised.value.hint
