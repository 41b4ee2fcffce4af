"""Sides that ran one after the other: earlier runs say whether noise lasts, or the verdict says that nobody knows."""

from tables import check_table
from test_comparison import row
from trial_maker import make_trial

from benchhouse.results.comparison import CompareOptions, ComparisonSide, compare_runs
from benchhouse.results.comparison_sides import compare_selected
from benchhouse.results.noise_persistence import earlier_rows
from benchhouse.schema.layout import WorkspaceFolder
from benchhouse.warehouse import queries
from benchhouse.warehouse.ingest import collect
from benchhouse.warehouse.query import Warehouse

A, B = (10.0, 10.1, 9.9, 10.2, 9.8), (10.5, 10.6, 10.4, 10.7, 10.3)
WAVES = [10.0, 10.1, 10.2, 10.3, 10.2, 10.1, 10.0, 9.9, 9.8, 9.7, 9.8, 9.9] * 2
FLAT = [10.0, 10.2, 9.9, 10.1, 9.8, 10.3, 9.9, 10.0, 10.2, 9.8, 10.1, 9.9] * 2


def side(name, values, first_minute, step=1):
    points = [row(run=name, values=values)]
    trials = [
        {"trial_id": trial, "repetition": at, "started": f"2026-03-01T12:{first_minute + step * at:02}"}
        for at, trial in enumerate(points[0]["trials"])
    ]
    return ComparisonSide(name, points, trials=trials)


def compared(earlier=(), late=20, **options):
    history = [row(run=f"old-{at}", values=values) for at, values in enumerate(earlier)]
    return compare_runs(side("a", A, 0), side("b", B, late), CompareOptions(**options), earlier=lambda columns: history)


def test_where_noise_lasts_intervals_are_wider_and_the_note_says_why():
    table = compared([WAVES])
    (found,) = table.rows
    assert found.verdict == "no evidence of a difference"
    assert found.memory > 0.5 and "noise that remembers" in found.method
    assert any(note.startswith("Intervals are wider: the sides did not take turns") for note in table.notes)


def test_where_noise_does_not_last_nothing_changes():
    table = compared([FLAT])
    (found,) = table.rows
    assert (found.verdict, found.memory) == ("better", 0.0)
    assert found.sentence.endswith(": better")
    assert not any("take turns" in note for note in table.notes)


@check_table("earlier", [[], [WAVES[:10]]])
def test_the_verdict_reports_a_missing_history(earlier):
    table = compared(earlier)
    (found,) = table.rows
    assert (found.verdict, found.memory) == ("better", None)
    assert found.sentence.endswith(": better; the sides did not take turns")
    assert any(note.startswith("Perhaps drift: the sides did not take turns") for note in table.notes)


def test_another_metric_says_nothing_about_this_one():
    history = [row(run="old", metric="latency", values=WAVES), row(run="old", target="flat", values=WAVES)]
    table = compare_runs(side("a", A, 0), side("b", B, 20), earlier=lambda columns: history)
    assert table.rows[0].memory is None


def test_sides_that_took_turns_need_no_history():
    def ask(columns):
        raise AssertionError("nobody needs it")

    table = compare_runs(side("a", A, 0, step=2), side("b", B, 1, step=2), CompareOptions(paired=False), earlier=ask)
    assert (table.rows[0].verdict, table.rows[0].memory) == ("better", 0.0)


def test_earlier_runs_of_the_scenario_are_read_from_the_warehouse(tmp_path):
    workspace = WorkspaceFolder(tmp_path)
    for number, values in enumerate((WAVES[:12], WAVES[:12], WAVES[:12], A, B)):
        run, start = f"run-{number + 1}", 60 * number
        folders = [make_trial(workspace, run, at, value=value, minute=start + at) for at, value in enumerate(values, 1)]
        collect(workspace, run, folders)
    with Warehouse.open(workspace) as warehouse:
        rows = queries.points(warehouse, ["run-3", "run-4"]).dicts()
        read = earlier_rows(warehouse, rows, {("qps", "value")})
        assert {(item["run_id"], item["metric"]) for item in read} == {("run-1", "qps"), ("run-2", "qps")}
        (found,) = compare_selected(warehouse, "run-4", "run-5", CompareOptions(("qps",))).rows
        assert found.memory > 0.5 and found.verdict == "no evidence of a difference"
        (early,) = compare_selected(warehouse, "run-1", "run-2", CompareOptions(("qps",))).rows
        assert early.memory is None
