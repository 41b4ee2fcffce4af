"""`bench export`: only good numbers leave, whole or not at all, and nothing that is there is lost."""

import csv
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tables import check_table

from benchhouse.api.workspace import Workspace
from benchhouse.catalog.entries import entries, load_object
from benchhouse.schema.errors import BenchError
from benchhouse.schema.exported import DocumentExporter, Exporter, Names

TEXTS = sorted(e.name for e in entries("exporters") if isinstance(load_object(e.object), DocumentExporter))


def test_every_exporter_says_what_it_is():
    assert {entry.name for entry in entries("exporters")} == {
        "bencher", "croissant", "github-action-benchmark", "google-benchmark", "mlflow", "openmetrics", "ro-crate",
        "wandb",
    }  # fmt: skip
    for entry in entries("exporters"):
        exporter = load_object(entry.object)
        assert isinstance(exporter, Exporter) and exporter.about


@check_table("kind", TEXTS)
def test_invalid_points_and_figures_are_left_out_and_reported(doubted, kind):
    done = json.loads(doubted.bench("export", "@last", "--as", kind, "--json").stdout)
    assert done["points"] == 2
    assert "n=1" not in done["text"] and "p99" not in done["text"].replace("p99.9", "").replace("p99_9", "")
    assert "n=2" in done["text"]
    assert "n=1: INVALID in all of 3 trials" in done["left_out"]
    assert any(line.startswith("wait.p99 is INVALID in every trial of n=0, n=2") for line in done["left_out"])


def test_stdout_is_the_document_and_nothing_else(doubted):
    done = doubted.bench("export", "@last", "--as", "bencher")
    assert "s/n=0" in json.loads(done.stdout)
    assert "left out: n=1: INVALID" in done.stderr and "exported" in done.stderr


def test_failed_points_are_told(greetings):
    made = greetings.export("@last", "bencher")
    assert "name=broken: failed in all of 3 trials" in made.left_out
    assert "broken" not in made.text


def test_a_run_without_a_good_number_is_refused(tmp_path):
    workspace = Workspace(tmp_path)
    workspace.run({"scenario": "s", "experiment": "command", "target": {"argv": ["false"]}, "monitors": False,
                   "workload": {"executions": 1}, "repetitions": 1})  # fmt: skip
    with pytest.raises(BenchError, match=r"has no good number: .*failed in all of 1 trial") as refused:
        workspace.export("@last", "openmetrics")
    assert "bench status" in refused.value.hint


def test_an_unknown_kind_is_told_with_those_that_there_are(greetings):
    with pytest.raises(BenchError, match="no exporter named 'openmetric' is installed") as refused:
        greetings.export("@last", "openmetric")
    assert "openmetrics" in refused.value.hint


def test_what_is_there_is_replaced_with_force_alone(greetings, tmp_path):
    path = tmp_path / "out.json"
    path.write_text("mine")
    with pytest.raises(BenchError, match="is there already"):
        greetings.export("@last", "bencher", path)
    assert path.read_text() == "mine"
    greetings.export("@last", "bencher", path, force=True)
    assert json.loads(path.read_bytes())


def test_a_folder_that_is_no_export_is_never_replaced(greetings, tmp_path):
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "thesis.tex").write_text("years")
    with pytest.raises(BenchError, match="no earlier export"):
        greetings.export("@last", "bencher", folder)
    with pytest.raises(BenchError, match="no earlier export"):
        greetings.export("@last", "github-action-benchmark", folder, force=True)
    assert (folder / "thesis.tex").read_text() == "years"
    greetings.export("@last", "github-action-benchmark", tmp_path / "new")
    (tmp_path / "new" / "older").touch()
    greetings.export("@last", "github-action-benchmark", tmp_path / "new", force=True)
    names = {path.name for path in (tmp_path / "new").iterdir()}
    assert names >= {"customSmallerIsBetter.json", "benchhouse.json"} and "older" not in names
    assert {path.name for path in tmp_path.iterdir()} == {"mine", "new"}


KILLED_HALFWAY = """
import os, signal
from pathlib import Path
from benchhouse.schema.exported import FolderExporter
def write(run, folder):
    (folder / "half.json").write_text("{")
    os.kill(os.getpid(), signal.SIGKILL)
HALF = FolderExporter("half", write)
"""


def test_killed_halfway_leaves_nothing_under_the_name_and_the_next_export_sweeps(greetings, tmp_path):
    site = tmp_path / "site"
    (site / "half-1.0.dist-info").mkdir(parents=True)
    (site / "half.py").write_text(KILLED_HALFWAY)
    (site / "half-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: half\nVersion: 1.0\n")
    (site / "half-1.0.dist-info" / "entry_points.txt").write_text("[benchhouse.exporters]\nhalf = half:HALF\n")
    out = tmp_path / "out"
    command = [sys.executable, "-m", "benchhouse", "export", "@last", "--as", "half", "-o", str(out / "e")]
    done = subprocess.run(command, cwd=greetings.root, env=dict(os.environ) | {"PYTHONPATH": str(site)}, check=False)
    assert done.returncode == -signal.SIGKILL
    assert not (out / "e").exists() and len(list(out.iterdir())) == 1
    greetings.export("@last", "github-action-benchmark", out / "e")
    assert [path.name for path in out.iterdir()] == ["e"]


def test_names_that_become_one_are_told_apart_whatever_their_order():
    def allowed(name):
        return name.replace("/", "_")

    names = Names.of(["a/b", "a_b", "c"], allowed, 20)
    assert names["c"] == "c"
    assert names["a/b"] != names["a_b"] and names["a/b"].startswith("a_b-")
    other = Names.of(["c", "a_b", "a/b"], allowed, 20)
    assert [other[name] for name in ("a/b", "a_b")] == [names[name] for name in ("a/b", "a_b")]
    long = Names.of(["x" * 30, "x" * 31], str, 20)
    assert len(long["x" * 30]) == 20 and long["x" * 30] != long["x" * 31]


def test_the_exporters_of_the_guide_work_as_they_stand(greetings, packages, numbers, tmp_path):
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "export-results.md").read_text(encoding="utf-8")
    code, files = [block.removeprefix("python\n") for block in page.split("```")[1::2] if block.startswith("python\n")]
    packages.add("bench-csv", "bench_csv", code, "csv = bench_csv:CSV", group="exporters")
    text = greetings.export("@last", "csv").text
    rows = list(csv.reader(text.splitlines()))
    assert {len(row) for row in rows} == {5} and any('"ü"' in row[0] for row in rows)
    row = numbers(greetings)["name=plain", "wall_ms", "mean"]
    assert ["greetings/name=plain", "wall_ms.mean", "ms", "3", repr(row.mean)] in rows
    packages.add("bench-files", "bench_files", files, "files = bench_files:FILES", group="exporters")
    greetings.export("@last", "files", tmp_path / "out")
    assert f"wall_ms.mean,{row.mean!r}\n" in (tmp_path / "out" / "greetings-name-plain.csv").read_text()


def test_exporters_are_listed(doubted):
    assert "bencher run --adapter json" in doubted.bench("list", "exporters").stdout
    assert {item["kind"] for item in json.loads(doubted.bench("list", "exporters", "--json").stdout)} >= set(TEXTS)


def test_a_run_exports_itself(greetings):
    assert json.loads(greetings["@last"].export("bencher").text)
