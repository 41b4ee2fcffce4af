"""Reports of large sweeps: bounded in bytes, nothing lost that can't be reached, and a folder for each run."""

import json
import os

import pytest
import trial_maker

from benchhouse.report import html, markdown
from benchhouse.report.data import LARGE, gather, pick_columns
from benchhouse.report.files import write_report
from benchhouse.report.png import converter
from benchhouse.results.lineage import trace
from benchhouse.schema.layout import WorkspaceFolder
from benchhouse.warehouse.ingest import collect


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """One trial of each of a few more points than are shown one by one."""
    workspace = WorkspaceFolder(tmp_path_factory.mktemp("large") / "ws")
    folders = [
        trial_maker.make_trial(workspace, "run-l", repetition, target=target, ef=ef)
        for ef in range(1, LARGE // 2 + 3)
        for target in ("flat", "hnsw")
        for repetition in (1,)
    ]
    collect(workspace, "run-l", folders)
    return workspace, gather(workspace, ["run-l"])


def test_a_large_sweep_keeps_leading_statistics_and_says_how_many_it_left_out(large):
    _, data = large
    assert len(data.points) > LARGE
    stats = {(number.metric, number.stat) for point in data.points for number in point.numbers}
    assert {stat for _, stat in stats} <= {"value", "mean", "p50", "p99"}
    assert "24 further statistics" in html.render(data.model_copy(update={"statistics_left_out": 24}))


def test_the_leading_statistics_are_picked_metric_by_metric():
    present = [("qps", "value"), ("ms", "mean"), ("ms", "p50"), ("ms", "p90"), ("ms", "p99"), ("odd", "p75")]
    rows = [{"metric": metric, "stat": stat, "points": LARGE + 1} for metric, stat in present]
    assert pick_columns(rows) == ([("qps", "value"), ("ms", "mean"), ("ms", "p99"), ("odd", "p75")], 2)
    small = [row | {"points": LARGE} for row in rows]
    assert pick_columns(small) == (None, 0)
    assert pick_columns(small, most_numbers=LARGE * len(rows)) == (None, 0)
    assert pick_columns(small, most_numbers=LARGE) == pick_columns(rows), "a page that shows less at first"


def test_a_large_sweep_is_summed_up_by_axis(large):
    _, data = large
    assert {axis.axis for axis in data.spreads[0].axes} >= {"ef"}
    page = html.render(data)
    assert 'id="spread"' in page
    assert "## Spread\n" in markdown.render(data)
    assert (data.scalings, data.tradeoff, data.cases) == ([], None, [])


def test_each_number_of_a_large_report_leads_back(large):
    workspace, data = large
    page = write_report(workspace, data)
    cells = json.loads((page.parent / "report.json").read_text())["cells"]
    assert len(cells) == sum(len(point.numbers) for point in data.points)
    assert trace(workspace, cells[-1]["ref"]).ok


def test_page_grows_by_little_more_than_a_hundred_bytes_a_number(large):
    _, data = large
    numbers = sum(len(point.numbers) for point in data.points)
    assert len(html.render(data)) < 120_000 + 300 * len(data.points) + 120 * numbers


def test_reports_of_two_runs_of_one_scenario_stand_side_by_side(collected):
    collect(collected, "run-b", trial_maker.make_run(collected, "run-b", 2))
    first = write_report(collected, gather(collected, ["run-a"]))
    before = first.read_bytes()
    second = write_report(collected, gather(collected, ["run-b"]))
    assert first != second
    assert first.read_bytes() == before
    assert b"run-b" in second.read_bytes()
    assert (collected.reports / "demo" / "index.html").read_bytes() == second.read_bytes()  # the newest
    assert not list(collected.reports.rglob(".*.tmp"))


def test_the_newest_report_may_be_written_again(collected):
    for _ in range(2):
        page = write_report(collected, gather(collected, ["run-a"]))
    assert page.read_bytes() == (collected.reports / "demo" / "index.html").read_bytes()
    assert not list(collected.reports.rglob(".*.tmp"))


def test_what_a_killed_report_left_unfinished_goes_with_the_next(collected, leave_behind):
    folder = write_report(collected, gather(collected, ["run-a"])).parent
    for place in (folder, folder / "charts", folder.parent, folder.parent / "published"):
        leave_behind(place, "index.html")
    write_report(collected, gather(collected, ["run-a"]))
    assert not list(collected.reports.rglob(".*.tmp"))


def test_charts_are_files_too(collected):
    page = write_report(collected, gather(collected, ["run-a"]))
    charts = sorted((page.parent / "charts").glob("*.svg"))
    assert charts
    assert all(chart.read_text().startswith("<svg") for chart in charts)
    text = (page.parent / "report.md").read_text()
    assert all(f"](charts/{chart.name})" in text for chart in charts)
    newest = page.parent.parent
    assert (newest / "report.md").read_text() == text
    of_run, of_scenario = ({path.name for path in (place / "charts").iterdir()} for place in (page.parent, newest))
    assert of_run == of_scenario


def test_charts_of_an_earlier_report_go(collected):
    page = write_report(collected, gather(collected, ["run-a"]))
    for folder in (page.parent / "charts", page.parent.parent / "charts"):
        (folder / "old.svg").write_text("<svg/>")
        (folder / "old.png").write_bytes(b"")
    write_report(collected, gather(collected, ["run-a"]))
    assert not list(collected.reports.rglob("old.*"))


@pytest.mark.skipif(converter() is None, reason="neither rsvg-convert nor cairosvg is installed")
def test_charts_are_png_too_where_a_converter_is_there(collected):
    page = write_report(collected, gather(collected, ["run-a"]))
    charts = sorted((page.parent / "charts").glob("*.svg"))
    for chart in charts:
        assert chart.with_suffix(".png").read_bytes().startswith(b"\x89PNG\r\n")
        assert (page.parent.parent / "charts" / chart.with_suffix(".png").name).is_file()


def test_a_converter_that_fails_costs_its_picture_only(collected, tmp_path, monkeypatch):
    fake = tmp_path / "rsvg-convert"
    fake.write_text("#!/bin/sh\nexit 1\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    page = write_report(collected, gather(collected, ["run-a"]))
    assert list((page.parent / "charts").glob("*.svg"))
    assert not list(collected.reports.rglob("*.png"))
    assert not list(collected.reports.rglob(".*.tmp"))
