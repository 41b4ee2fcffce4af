"""The view `points`: intervals without a t-table, the same in every engine and in the report; points in order."""

import random

import pytest
from engines_at_hand import new_database
from published_queries import ask
from services.on_demand import provide
from trial_maker import make_trial

from benchhouse.analysis.student import critical_t
from benchhouse.results.numbers import mean_interval
from benchhouse.schema.errors import BenchError
from benchhouse.schema.layout import WorkspaceFolder
from benchhouse.schema.measurement import Measurement
from benchhouse.warehouse.engine_lake import LakeEngine
from benchhouse.warehouse.ingest import collect
from benchhouse.warehouse.points import POINTS_VIEW, T_QUANTILES, T_TERMS
from benchhouse.warehouse.queries import points, refused_figures, trials
from benchhouse.warehouse.query import Warehouse
from benchhouse.warehouse.transfer import open_engine, transfer

COUNTS = {1: 1, 2: 2, 16: 3, 128: 5, 9: 61, 10: 70}
"""Trials by ef."""
SQL = f"SELECT {', '.join(f'{column.name}' for column in POINTS_VIEW.columns if column.name != 'values')} FROM points"


def numbers(draw: random.Random) -> list[Measurement]:
    """One that is positive, one that is never below zero, though its interval could be, and one that is."""
    return [
        Measurement(metric="time", stat="value", value=draw.lognormvariate(0, 2), unit="s", direction="lower"),
        Measurement(metric="wait", stat="value", value=max(0.0, draw.gauss(0, 1)), unit="s", direction="lower"),
        Measurement(metric="skew", stat="value", value=draw.gauss(0, 1), unit="ms", error_bound=draw.random()),
    ]


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    workspace, draw = WorkspaceFolder(tmp_path_factory.mktemp("swept")), random.Random(7)
    folders = [
        make_trial(workspace, "run-a", at, ef=ef, target=target, numbers=numbers(draw))
        for target in ("gpu10", "gpu9")
        for ef, count in COUNTS.items()
        for at in range(1, count + 1)
    ]
    collect(workspace, "run-a", folders)
    return workspace


@pytest.fixture
def warehouse(swept):
    with Warehouse.open(swept) as opened:
        yield opened


def test_intervals_are_those_of_the_report(warehouse):
    rows = warehouse.query("SELECT * FROM points").dicts()
    assert {(row["n"], row["ci_low"] is None) for row in rows} == {(n, n == 1) for n in COUNTS.values()}
    metrics = {row["metric"] for row in rows}
    smallest = {metric: min(row["min"] for row in rows if row["metric"] == metric) for metric in metrics}
    for row in rows:
        expected = mean_interval(row["mean"], row["stdev"], row["n"], smallest[row["metric"]])
        if expected is None:
            assert (row["stderr"], row["ci_low"], row["ci_high"]) == (None, None, None)
            continue
        assert (row["ci_low"], row["ci_high"]) == pytest.approx(expected, rel=1e-7, abs=1e-9)
        assert row["stderr"] == pytest.approx(row["stdev"] / row["n"] ** 0.5, rel=1e-12)
    assert any(row["ci_low"] == 0 for row in rows if row["metric"] == "time")
    skewed = [row["ci_high"] - row["mean"] > 1.01 * (row["mean"] - row["ci_low"]) for row in rows if row["n"] > 1]
    assert skewed == [row["metric"] == "time" or row["ci_low"] == 0 for row in rows if row["n"] > 1]
    assert any(row["ci_low"] < 0 for row in rows if row["metric"] == "skew" and row["n"] > 1)


def test_quantiles_are_those_of_the_analysis():
    expected = [critical_t(0.95, df) for df in range(1, 61)]
    assert list(T_QUANTILES) == pytest.approx(expected, rel=1e-11)
    for df in (61, 100, 400, 10_000):
        assert sum(term / df**power for power, term in enumerate(T_TERMS)) == pytest.approx(critical_t(0.95, df), 1e-9)


def test_points_and_trials_come_in_the_order_of_their_numbers(warehouse):
    names = [f"name={target} ef={ef}" for target in ("gpu9", "gpu10") for ef in sorted(COUNTS)]
    assert list(dict.fromkeys(row["point"] for row in points(warehouse, ["run-a"]).dicts())) == names
    assert list(dict.fromkeys(row["point"] for row in trials(warehouse, ["run-a"]).dicts())) == names
    placed = warehouse.query("SELECT DISTINCT place, point FROM points ORDER BY place").rows
    assert placed == list(enumerate(names, start=1))


@pytest.mark.parametrize("kind", ["postgresql", "clickhouse"])
def test_every_engine_has_the_view_with_the_same_rows(kind, swept, tmp_path, request):
    lake = LakeEngine(swept)
    if kind == "postgresql":
        engine = open_engine(new_database(request.getfixturevalue("postgres_server").endpoint))
    else:
        provide("clickhouse", "chdb")
        engine = open_engine(f"clickhouse:{tmp_path / 'ch'}")
    try:
        transfer(lake, engine)
        one, other = lake.query(SQL).dicts(), engine.query(SQL).dicts()
        assert [row["point"] for row in ask(engine, "points", {"runs": ["run-a"]}).dicts()] == [
            row["point"] for row in ask(lake, "points", {"runs": ["run-a"]}).dicts()
        ]
    finally:
        engine.close()
        lake.close()
    ends = ("stderr", "ci_low", "ci_high")
    for mine, theirs in zip(one, other, strict=True):
        assert {key: mine[key] for key in mine if key not in ends} == {
            key: theirs[key] for key in theirs if key not in ends
        }
        of_mine, of_theirs = ([row[key] for key in ends] for row in (mine, theirs))
        assert of_mine == (of_theirs if mine["n"] == 1 else pytest.approx(of_theirs, rel=1e-12))


BOUNDED = (("one", 1.0, 0.1, True), ("one", 3.0, 0.4, False), ("one", 2.0, 0.3, True))
"""Metric, value, bound and whether it is taken, a trial each."""


def bounded(workspace: WorkspaceFolder) -> None:
    """Three trials: of `one` the second is INVALID, of `all` every one; `plain` says nothing of its errors."""
    folders = []
    for at, (metric, value, bound, valid) in enumerate(BOUNDED, start=1):
        common = {"stat": "value", "unit": "ms", "direction": "lower"}
        measured = [
            Measurement(metric=metric, value=value, error_bound=bound, valid=valid, **common),
            Measurement(metric="all", value=value, error_bound=9.0, valid=False, **common),
            Measurement(metric="plain", value=value, **common),
        ]
        folders.append(make_trial(workspace, "run-a", at, numbers=measured))
    collect(workspace, "run-a", folders)


def test_a_point_takes_valid_figures_only_and_says_how_far_they_can_be_off(workspace):
    bounded(workspace)
    with Warehouse.open(workspace) as opened:
        facts = opened.query("SELECT value, error_bound, outcome FROM measurement_fact WHERE metric = 'one' ORDER BY 1")
        shown = opened.query("SELECT metric, n, mean, error_bound FROM points ORDER BY metric").rows
        refused = refused_figures(opened, ["run-a"]).dicts()
        outcomes = opened.query("SELECT DISTINCT outcome FROM trial_fact").rows
    assert facts.rows == [(1.0, 0.1, "succeeded"), (2.0, 0.3, "succeeded"), (3.0, 0.4, "invalid")]
    assert shown == [("one", 2, 1.5, 0.3), ("plain", 3, 2.0, None)]
    assert [(row["metric"], row["stat"], row["n"]) for row in refused] == [("all", "value", 3)]
    assert outcomes == [("succeeded",)]


def test_without_a_run_the_view_is_empty_and_has_all_columns(workspace):
    with Warehouse.open(workspace) as nothing:
        empty = nothing.query("SELECT * FROM points")
    assert (empty.rows, empty.columns) == ([], tuple(column.name for column in POINTS_VIEW.columns))
    assert empty.types == tuple(column.sql_type for column in POINTS_VIEW.columns)


def test_means_of_a_metric_whose_unit_changed_are_not_put_together(workspace):
    for run, unit in (("run-a", "ms"), ("run-b", "s")):
        measured = Measurement(metric="t", stat="value", value=1.0, unit=unit)
        collect(workspace, run, [make_trial(workspace, run, numbers=[measured])])
    with Warehouse.open(workspace) as opened:
        with pytest.raises(BenchError, match="different units"):
            opened.query("SELECT avg(mean) FROM points WHERE metric = 't'")
        assert len(opened.query("SELECT unit, avg(mean) FROM points GROUP BY unit").rows) == 2
