"""Numbers of all runs, page by page, however few runs are looked at for one."""

import pytest
from tables import check_table
from trial_maker import make_run

from benchhouse.results import measured_values
from benchhouse.schema.layout import WorkspaceFolder
from benchhouse.warehouse.ingest import collect

RUNS = ("run-a", "run-b", "run-c")


@pytest.fixture
def filled(tmp_path):
    workspace = WorkspaceFolder(tmp_path)
    for minute, run in enumerate(RUNS):
        collect(workspace, run, make_run(workspace, run, repetitions=1, minute=minute))
    return workspace


def pages(workspace, limit, **filters):
    after = ""
    while after is not None:
        page = measured_values.measured(workspace, filters, "", "", after, limit)
        yield page.rows
        after = page.cursor


@check_table("most, limit", [(1, 7), (2, 7), (200, 7), (1, 1000)])
def test_pages_have_every_number_once_the_newest_runs_first(filled, monkeypatch, most, limit):
    (whole,) = pages(filled, 10_000)
    assert list(dict.fromkeys(row.run_id for row in whole)) == [*reversed(RUNS)]
    with monkeypatch.context() as patch:
        patch.setattr(measured_values, "_MOST_RUNS", most)
        assert [row for rows in pages(filled, limit) for row in rows] == whole


def test_a_page_may_be_empty_before_the_last(filled, monkeypatch):
    monkeypatch.setattr(measured_values, "_MOST_RUNS", 1)
    found = list(pages(filled, 1000, metric="none"))
    assert len(found) > 1 and not any(found)
