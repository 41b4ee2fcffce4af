"""`bench compare` and the table of points, at the widths people have."""

import json
from dataclasses import fields

import pytest
from laboratory import Lab

from benchhouse.api.screen import number
from benchhouse.report.terminal import screen
from benchhouse.report.terminal.points import points_table
from benchhouse.results.run_points import PointValue, TriedPoint, tried_points
from benchhouse.schema.layout import WorkspaceFolder


def point(at, metric="qps", *, mean=8681.0, stdev=2329.0, label="name=a", **changes):
    row = {
        "run_id": "r", "instance_digest": str(at), "point": label, "target_name": "a", "scenario": "s",
        "metric": metric, "stat": "value", "unit": "1/s", "n": 3, "mean": mean, "stdev": stdev, "shaky": False,
        "headline": True, "direction": None,
    }  # fmt: skip
    unused = dict.fromkeys(field.name for field in fields(PointValue))
    return PointValue(**unused | row | changes)


def attempts(at, succeeded, trials=3, label="name=a"):
    return TriedPoint("r", str(at), label, "a", "s", succeeded, trials)


@pytest.fixture
def printed(monkeypatch, capsys):
    def at_width(width, *args):
        monkeypatch.setenv("COLUMNS", str(width))
        points_table(*args)
        return capsys.readouterr()

    return at_width


@pytest.mark.parametrize("width", [40, 80, 100])
def test_numbers_are_never_wrapped_and_what_has_no_room_is_counted(printed, width):
    rows = [point(0, f"metric_{at}", mean=43927.0, stdev=12329.0) for at in range(9)]
    shown = printed(width, rows)
    lines = shown.out.splitlines()
    assert max(map(len, lines)) <= width
    fit = lines[0].count("metric_")
    assert 1 <= fit < 9
    assert lines[2].count("43\u2009927 ± 12\u2009329") == fit
    assert len(lines) == 3
    assert shown.err == f"{9 - fit} more metrics: bench report, or --json\n"


def test_one_metric_too_many_is_singular(printed):
    rows = [point(0, name) for name in ("first_metric", "second_metric")]
    assert printed(40, rows).err == "1 more metric: bench report, or --json\n"


def test_a_large_sweep_shows_leaders_spread_and_how_many_more(printed):
    axes = [(a, b) for a in range(25) for b in range(40)]
    rows = [
        point(at, mean=100.0 * a + b, stdev=1.0, label=f"a={a} b={b}", direction="higher",
              axes=json.dumps({"a": a, "b": b}))
        for at, (a, b) in enumerate(axes)
    ]  # fmt: skip
    shown = printed(100, rows)
    lines = shown.out.splitlines()
    assert lines[2].startswith("a=24 b=39")  # the best first
    assert len(lines) <= 50
    assert "qps: 0/s to 2439/s, median 1220/s, over 1,000 points" in lines
    assert any(line.startswith("  a: highest at 24") for line in lines)
    assert "960 more: bench report" in shown.err


def test_a_small_screen_gets_fewer_leaders(printed, monkeypatch):
    monkeypatch.setattr(screen, "screen_lines", lambda: 24)
    rows = [
        point(at, mean=float(at), label=f"a={at}", direction="lower", axes=json.dumps({"a": at})) for at in range(99)
    ]
    shown = printed(100, rows)
    assert len(shown.out.splitlines()) + len(shown.err.splitlines()) <= 24
    assert "89 more: bench report" in shown.err


def test_points_with_equal_labels_are_two_rows(printed):
    assert printed(100, [point(0), point(1)]).out.count("8681 ± 2329") == 2


def test_points_without_a_successful_trial_are_rows_too(printed):
    lines = printed(100, [point(0)], [attempts(0, 3), attempts(1, 0, label="name=b")]).out.splitlines()
    assert lines[2].split()[:3] == ["name=a", "3/3", "8681"]
    assert lines[3].split() == ["name=b", "0/3"]


def test_trials_are_plain_numbers_where_none_failed(printed):
    lines = printed(100, [point(0)], [attempts(0, 3)]).out.splitlines()
    assert lines[0].split()[:2] == ["point", "n"]
    assert lines[2].split()[:2] == ["name=a", "3"]


def test_a_run_in_which_everything_failed_still_has_its_points(printed):
    assert "0/3" in printed(100, [], [attempts(0, 0)]).out
    assert printed(100, []).out == ""


def test_a_ratio_has_no_unit(printed):
    assert "recall (" not in printed(100, [point(0, "recall", unit="1", mean=1.0, stdev=0.0)]).out


def test_the_terminal_writes_numbers_as_reports_do():
    assert [number(value) for value in (None, -8681, 43927)] == ["–", "\u22128681", "43\u2009927"]


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    """Runs of three scenarios: `s` has two points, `half` failed at one of them, `other` ran another experiment."""
    lab = Lab(tmp_path_factory.mktemp("compared"))
    lab.run("once", workload={"n": [0, 1]}, repetitions=2)
    lab.run("mischief", name="other", workload={"act": ["ok"]})
    (lab.marks / "bad").touch()
    lab.run("once", name="half", workload={"n": [0, 1]}, repetitions=2, code=1)
    return lab


def test_tried_counts_what_failed_and_leaves_no_point_out(compared):
    tried = tried_points(WorkspaceFolder(compared.workspace), [compared.run_id()])
    assert {point.point: (point.succeeded, point.trials) for point in tried} == {"n=0": (2, 2), "n=1": (0, 2)}


def test_one_pair_fits_eighty_columns_and_a_run_against_itself_is_noted(compared, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    shown = compared.bench("compare", "s:n=0", "s:n=1")
    lines = shown.stdout.splitlines()
    assert lines[2].split()[:3] == ["metric", "A", "B"], "one pair needs no column for the point"
    assert max(map(len, lines)) <= 80
    assert "A and B are the same trials." in compared.bench("compare", "s", "s").stderr


def test_a_chart_and_markdown_for_a_pull_request(compared):
    chart = compared.root / "tmp" / "change.svg"
    shown = compared.bench("compare", "s:n=0", "s:n=1", "--markdown", "--svg", chart)
    assert shown.stdout.startswith("**B against A: ")
    assert chart.read_text().startswith("<svg")
    assert str(chart) in shown.stderr
    assert "--svg" in compared.bench("compare", "s", "--svg", chart, code=2).stderr


def test_all_adds_statistics(compared):
    few, every = (json.loads(compared.bench("compare", "s", "s", "--json", *more).stdout) for more in ((), ("--all",)))
    assert {row["stat"] for row in few["rows"]} <= {"value", "mean", "p50", "p99"}
    assert len(every["rows"]) >= len(few["rows"])


def test_runs_and_targets_with_nothing_in_common_are_bad_input(compared):
    shown = compared.bench("compare", "s", "other", code=2)
    assert "nothing to compare" in shown.stderr
    assert "n=0" in shown.stderr
    assert "no two targets ran the same test" in compared.bench("compare", "s", code=2).stderr
    assert "--of METRIC" in compared.bench("compare", "s", "--at", "x=1", code=2).stderr
