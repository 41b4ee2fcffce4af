"""The same scenario on several executors: one table, the executor as a column, and never a cause by itself."""

import trial_maker

from benchhouse.report import html, markdown
from benchhouse.report.data import gather
from benchhouse.report.payload import payload
from benchhouse.results.comparison_sides import compare_selected
from benchhouse.results.comparisons import compare_target_rankings
from benchhouse.schema.layout import WorkspaceFolder
from benchhouse.warehouse.ingest import collect
from benchhouse.warehouse.query import Warehouse


def collected(tmp_path, **places):
    """Run after run of three trials each, by the executor of every trial."""
    workspace = WorkspaceFolder(tmp_path / "ws")
    for run_id, executors in places.items():
        folders = [
            trial_maker.make_trial(workspace, run_id, at, executor=executor, value=100.0 + at)
            for at, executor in enumerate(executors, 1)
        ]
        collect(workspace, run_id, folders)
    return workspace


def test_runs_on_three_executors_are_one_table_with_the_executor_as_a_column(tmp_path):
    three = {name: [name] * 3 for name in ("dask", "local", "ray")}
    workspace = collected(tmp_path, **three)
    data = gather(workspace, list(three))
    assert [point.executor for point in data.points] == list(three)
    assert [point.label.rpartition(" ")[2] for point in data.points] == ["(dask)", "(local)", "(ray)"]
    assert len({point.instance_digest for point in data.points}) == 1
    (head,) = (line for line in markdown.render(data).splitlines() if line.startswith("| point | executor |"))
    assert head.endswith("| trace |")
    (axis,) = (axis for axis in payload(data)["axes"] if axis["name"] == "@executor")
    assert (axis["title"], axis["values"]) == ("executor", list(three))
    assert "executor (3)" in html.render(data)
    found = compare_target_rankings(workspace, list(three), [], 0.95)
    assert [member.executor for member in found.members] == list(three)
    assert "differs: executor: dask | local | ray" in found.notes


def test_where_all_ran_in_one_place_no_column_says_so(tmp_path):
    data = gather(collected(tmp_path, a=["local"] * 3, b=["local"] * 3), ["a", "b"])
    assert "| executor |" not in markdown.render(data)
    assert [axis["name"] for axis in payload(data)["axes"]] == ["@run"]


def test_another_executor_is_told_but_does_not_make_a_comparison_exploratory(tmp_path):
    with Warehouse.open(collected(tmp_path, a=["local"] * 3, b=["dask"] * 3)) as warehouse:
        table = compare_selected(warehouse, "a", "b")
    assert [(item.dimension, item.a, item.b) for item in table.differences] == [("executor", "local", "dask")]
    assert not table.exploratory
    assert not any("Exploratory" in note for note in table.notes)


def test_a_run_that_was_finished_elsewhere_names_each_place(tmp_path):
    workspace = collected(tmp_path, a=["dask", "local", "local"])
    data = gather(workspace, ["a"])
    assert data.runs[0].executor == data.points[0].executor == "dask, local"
    with Warehouse.open(workspace) as warehouse:
        rows = warehouse.query("SELECT executor FROM benchmark_run_fact").rows
        by_trial = warehouse.query("SELECT executor, count(*) FROM trial_fact GROUP BY 1 ORDER BY 1").rows
    assert rows == [("dask, local",)]
    assert by_trial == [("dask", 1), ("local", 2)]
