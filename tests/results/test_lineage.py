import json
import shutil
import sys
from pathlib import Path

import pytest

from benchhouse.evidence.writing import write_text
from benchhouse.report.data import gather
from benchhouse.report.files import write_report as write_files
from benchhouse.results.lineage import LineageTrace, publish, trace
from benchhouse.results.table_cells import make_cells
from benchhouse.schema.errors import BenchError
from benchhouse.schema.histogram import Histogram
from benchhouse.schema.layout import WorkspaceFolder
from benchhouse.schema.query import Cell
from benchhouse.warehouse.ingest import collect, rebuild
from benchhouse.warehouse.queries import points
from benchhouse.warehouse.query import Warehouse

sys.path.insert(0, str(Path(__file__).parents[1] / "warehouse"))
from tables import check_table
from trial_maker import flip_byte, make_run, make_trial


@pytest.fixture
def workspace(tmp_path: Path) -> WorkspaceFolder:
    workspace = WorkspaceFolder(tmp_path / "ws")
    collect(workspace, "run-a", make_run(workspace, samples=True))
    return workspace


@pytest.fixture
def report(workspace: WorkspaceFolder) -> list[Cell]:
    return write_report(workspace)


def write_report(workspace: WorkspaceFolder, run: str = "run-a", name: str = "one") -> list[Cell]:
    with Warehouse.open(workspace) as warehouse:
        result = points(warehouse, [run])
    cells = make_cells(result)
    path = workspace.reports / name / "report.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    queries = {result.spec.digest(): result.spec.model_dump()}
    write_text(path, json.dumps({"queries": queries, "cells": [cell.model_dump() for cell in cells]}))
    publish(workspace, path, [result.spec], cells)
    return cells


def said(found: LineageTrace, name: str) -> str:
    return "\n".join(next(step for step in found.steps if step.name == name).says)


def failing(found: LineageTrace) -> list[str]:
    assert found.ok == all(step.ok for step in found.steps)
    return [step.name for step in found.steps if not step.ok]


def the(cells: list[Cell], metric: str = "qps", stat: str = "value") -> Cell:
    return next(cell for cell in cells if (cell.key["metric"], cell.key["stat"]) == (metric, stat))


def test_a_published_number_walks_back_to_its_bytes(workspace, report):
    cell = the(report, "latency", "p99")
    found = trace(workspace, cell.ref)
    assert found.ok, found
    assert [step.name for step in found.steps] == ["report", "query", "identity", "evidence"]
    assert f"reports/one/report.json: {cell.value!r} ms" in said(found, "report")
    assert "bit for bit" in said(found, "query")
    assert [row["trial_id"] for row in found.steps[2].details] == cell.trials
    for proof in found.steps[3].details:
        (line,) = proof["lines"]
        text = (workspace.root / line["file"]).read_text().splitlines()[line["line"] - 1]
        assert text == line["text"]
        assert text.split(",")[2:5] == ["latency", "p99", repr(line["value"])]
        pointer = line["json"].partition("#/benchhouse/measurements/")
        listed = json.loads((workspace.root / pointer[0]).read_text())["benchhouse"]["measurements"]
        assert listed[int(pointer[2])]["value"] == line["value"]
        assert [(one["rows"], one["first_line"], one["last_line"]) for one in proof["samples"]] == [(20, 2, 21)]
        assert [one["recomputed"] for one in proof["samples"]] == [["p99"]]
    json.dumps(found.as_dict(), allow_nan=False)


def test_the_beginning_of_a_ref_is_enough(workspace, report):
    cell = the(report)
    assert trace(workspace, cell.ref[:6]).steps[0].details[0]["ref"] == cell.ref
    with pytest.raises(BenchError, match="nothing to trace"):
        trace(workspace, cell.ref[:3])
    with pytest.raises(BenchError, match="nothing to trace"):
        trace(workspace, "zzzzzz")


@check_table("name", ["metrics.json", "metrics.csv", "meta.json", "trial.json", "samples.csv", "manifest.json"])
def test_a_flipped_byte_of_evidence_is_found_and_named(workspace, report, name):
    cell = the(report)
    path = workspace.trial("demo", cell.trials[1]).path / name
    flip_byte(path, at=path.stat().st_size // 2)
    found = trace(workspace, cell.ref)
    flip_byte(path, at=path.stat().st_size // 2)  # as it was
    assert failing(found) == ["evidence"]
    assert f"{cell.trials[1]}/{name}" in said(found, "evidence")


def test_a_removed_and_an_added_file_are_named(workspace, report):
    cell = the(report)
    folder = workspace.trial("demo", cell.trials[0]).path
    (folder / "meta.json").unlink()
    (folder / "more.txt").write_text("x")
    found = trace(workspace, cell.ref)
    assert failing(found) == ["evidence"]
    assert "meta.json: missing" in said(found, "evidence")
    assert "more.txt: added" in said(found, "evidence")
    shutil.rmtree(folder)
    assert failing(trace(workspace, cell.ref)) == ["evidence"]


def test_a_flipped_byte_of_a_table_is_found_and_named(workspace, report):
    file = next(workspace.warehouse.glob("measurement_fact/*"))
    flip_byte(file, at=200)
    found = trace(workspace, the(report).ref)
    assert failing(found) == ["query"]
    assert file.name in said(found, "query")
    assert trace(workspace, the(report).ref).ok, "it was made again from evidence"


def test_a_changed_number_in_the_report_is_found(workspace, report):
    path = workspace.reports / "one" / "report.json"
    content = json.loads(path.read_text())
    ref = content["cells"][0]["ref"]
    content["cells"][0]["value"] *= 1.1
    path.write_text(json.dumps(content))
    found = trace(workspace, ref)
    assert failing(found) == ["query"]
    assert "off by" in said(found, "query")


def test_a_changed_query_or_key_in_the_report_is_found(workspace, report):
    path = workspace.reports / "one" / "report.json"
    content = json.loads(path.read_text())
    cell = content["cells"][0]
    content["queries"][cell["query"]]["sql"] += " "
    path.write_text(json.dumps(content))
    assert failing(trace(workspace, cell["ref"])) == ["report"]
    path.unlink()
    assert failing(trace(workspace, cell["ref"])) == ["report", "query", "identity", "evidence"]


def test_a_number_stays_provable_when_its_tables_grow(workspace, report):
    cell = the(report)
    collect(workspace, "run-a", [make_trial(workspace, repetition=9, target="flat", value=500.0)])
    found = trace(workspace, cell.ref)
    assert found.ok, found
    assert "tables have grown since; re-run on the present tables gives" in said(found, "query")
    assert "(n=4)" in said(found, "query")


def test_inputs_that_are_gone_are_answered_from_the_present_tables(workspace, report):
    cell = the(report)
    collect(workspace, "run-a", [make_trial(workspace, repetition=9, target="flat", value=500.0)])
    with Warehouse.open(workspace) as warehouse:
        present = {entry.file for entry in warehouse.catalog.files(["trial_fact", "measurement_fact"])}
    for path in workspace.warehouse.glob("*_fact/*"):
        if path.relative_to(workspace.warehouse).as_posix() not in present and "run_fact" not in str(path):
            path.unlink()
    found = trace(workspace, cell.ref)
    assert failing(found) == ["query"]
    assert "replaced by a later collect" in said(found, "query")
    assert "(n=4)" in said(found, "query")
    assert [row["trial_id"] for row in found.steps[2].details] == cell.trials


def test_refs_are_found_again_after_everything_but_evidence_and_reports_is_lost(workspace, report):
    shutil.rmtree(workspace.state)
    rebuild(workspace)
    for cell in report:
        assert trace(workspace, cell.ref).ok


def test_a_number_whose_trials_a_rebuild_dropped_is_still_computed_again_and_says_what_is_gone(workspace, report):
    cell = the(report)
    shutil.rmtree(workspace.trial("demo", cell.trials[0]).path)
    rebuild(workspace)
    found = trace(workspace, cell.ref)
    assert failing(found) == ["evidence"]
    assert "bit for bit" in said(found, "query")
    assert cell.trials[0] in said(found, "evidence")


def test_an_older_published_number_is_found_after_a_rebuild_and_a_newer_report(workspace):
    write_files(workspace, gather(workspace, ["run-a"]))
    old = json.loads((workspace.reports / "demo" / "report.json").read_text())["cells"][0]["ref"]
    rebuild(workspace)
    collect(workspace, "run-a", [make_trial(workspace, repetition=9, target="flat", value=500.0)])
    write_files(workspace, gather(workspace, ["run-a"]))
    assert old not in (workspace.reports / "demo" / "report.json").read_text()
    found = trace(workspace, old)
    assert found.ok, found
    assert "reports/demo/published/" in said(found, "report")


def test_a_metric_of_a_run_can_be_traced_without_a_report(workspace):
    found = trace(workspace, "run-a:latency.p99")
    assert found.ok, found
    assert len(found.steps[0].details) == 4
    assert {cell["key"]["stat"] for cell in found.steps[0].details} == {"p99"}
    assert {cell["key"]["stat"] for cell in trace(workspace, "run-a:latency").steps[0].details} == {"p50"}
    assert len(found.steps[3].details) == 12
    with pytest.raises(BenchError, match=r"(?s)no metric 'qsp'.*latency \(p50, p99\), qps \(value\)"):
        trace(workspace, "run-a:qsp")
    with pytest.raises(BenchError, match="run 'nope' has not been collected"):
        trace(workspace, "nope:qps")


def test_a_trial_can_be_traced_by_the_beginning_of_its_id(workspace):
    folder = make_trial(workspace, "run-b", value=42.0)
    lost = make_trial(workspace, "run-b", 2, outcome="timeout")
    collect(workspace, "run-b", [folder, lost])
    found = trace(workspace, folder.name[:8])
    assert found.ok, found
    assert len(found.steps[3].details[0]["lines"]) == 4, "a number about a window too"
    assert trace(workspace, lost.name).ok
    flip_byte(folder / "metrics.csv")
    assert failing(trace(workspace, folder.name)) == ["evidence"]


def test_cells_have_refs_of_their_own_and_skip_what_is_no_number(workspace):
    with Warehouse.open(workspace) as warehouse:
        result = points(warehouse, ["run-a"])
        collect(workspace, "run-b", [make_trial(workspace, "run-b")])
        single = points(warehouse, ["run-b"])
    cells = make_cells(result) + make_cells(result, "stdev")
    assert len({cell.ref for cell in cells}) == len(cells) == 24
    assert make_cells(single, "stdev") == []


COUNTED = Histogram(range(1_000_000, 30_000_000, 7_919))


def test_a_number_from_a_histogram_is_computed_from_it_again_bit_for_bit(workspace):
    folders = [make_trial(workspace, "run-h", at, histogram=COUNTED) for at in (1, 2)]
    collect(workspace, "run-h", folders)
    found = trace(workspace, "run-h:wait.p99.9")
    assert found.ok, found
    told = [proof["histograms"] for proof in found.steps[3].details]
    assert [[(one["n"], one["recomputed"]) for one in entries] for entries in told] == [[(COUNTED.n, ["p99.9"])]] * 2
    assert f"histograms.json#/histograms/0: a histogram of {COUNTED.n} values" in said(found, "evidence")
    assert "relative error at most 0.05%" in said(found, "evidence")
    whole = trace(workspace, folders[0].name)
    (entry,) = whole.steps[3].details[0]["histograms"]
    assert entry["recomputed"] == ["max", "mean", "min", "p50", "p90", "p95", "p99", "p99.9", "stdev"]
    json.dumps(whole.as_dict(), allow_nan=False)


def test_a_histogram_that_does_not_give_the_number_is_found_though_it_was_sealed(workspace):
    other = Histogram([*range(1_000_000, 30_000_000, 7_919), 30_000_001])
    collect(workspace, "run-h", [make_trial(workspace, "run-h", 1, histogram=COUNTED, histogram_file=other)])
    found = trace(workspace, "run-h:wait.mean")
    assert failing(found) == ["evidence"]
    assert "histograms.json: its histogram does not give wait.mean of the tables" in said(found, "evidence")


def test_a_flipped_byte_of_a_histogram_is_found_and_named(workspace):
    folder = make_trial(workspace, "run-h", 1, histogram=COUNTED)
    collect(workspace, "run-h", [folder])
    flip_byte(folder / "histograms.json", at=(folder / "histograms.json").stat().st_size // 2)
    found = trace(workspace, "run-h:wait.p99")
    assert failing(found) == ["evidence"]
    assert f"{folder.name}/histograms.json" in said(found, "evidence")


def test_the_numbers_of_an_invalid_trial_are_evidence_and_it_is_said_that_nothing_takes_them(workspace):
    folder = make_trial(workspace, "run-a", 9, outcome="invalid")
    collect(workspace, "run-a", [folder])
    found = trace(workspace, folder.name)
    assert found.ok, found
    assert "INVALID, so its numbers enter no summary or comparison" in said(found, "identity")
    assert len(found.steps[0].details) == 4
