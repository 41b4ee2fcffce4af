"""What the how-to pages show is what happens."""

import re
import shlex
import sys
import types
from typing import get_args

from doc_pages import DOCS, blocks, pages
from tables import check_table

from benchhouse.analysis.compare import Verdict
from benchhouse.nexus import scaffold
from benchhouse.runs.ledger import new_run_id
from benchhouse.schema.experiment import Experiment

HOW_TO = DOCS / "how-to"


def test_the_experiment_shown_is_an_experiment(monkeypatch):
    declared = next(block for block in blocks(HOW_TO / "write-an-experiment.md") if "@experiment(" in block.text)
    module = types.ModuleType("shown")
    monkeypatch.setitem(sys.modules, "shown", module)
    exec(compile(declared.text, "write-an-experiment.md", "exec"), module.__dict__)
    assert isinstance(module.run, Experiment)
    assert module.run.name == "my.sort"


def test_the_entry_point_shown_is_the_one_that_new_writes(tmp_path):
    (shown,) = (block.text for block in blocks(HOW_TO / "write-an-experiment.md") if block.language == "toml")
    assert shown in (scaffold.experiment("my.sort", tmp_path) / "pyproject.toml").read_text()


@check_table("page", ["quickstart.md", "how-to/compare.md"])
def test_every_verdict_is_listed(page):
    text = (DOCS / page).read_text()
    assert [word for word in get_args(Verdict) if word not in text] == []


def test_run_ids_shown_have_the_format_of_real_ones():
    shape = r"\d{8}-\d{6}-\d{3}[0-9a-f]{4}"
    assert re.fullmatch(shape, new_run_id())
    shown = {found for page in pages() for found in re.findall(r"\b\d{8}-\d{6}-[0-9a-z]+", page.read_text())}
    assert shown
    monitor = r"\d{8}-\d{6}-[0-9a-f]{6}"
    assert [run for run in shown if not re.fullmatch(f"{shape}|{monitor}", run)] == []


def test_the_queries_shown_are_answered_with_their_comments(bench):
    shown = [block.text for block in blocks(HOW_TO / "query-the-warehouse.md") if block.language == "sql"]
    assert len(shown) == 2
    for sql in "\n\n".join(map(str.strip, shown)).split("\n\n"):
        assert sql.startswith("-- ")
        done = bench("query", sql)
        assert done.code == 0, done.err


def test_the_query_about_monitors_finds_the_numbers_of_a_run(bench, tmp_path):
    page = blocks(HOW_TO / "monitor-a-run.md")
    (scenario,) = (block.text for block in page if block.language == "yaml")
    (sql,) = (block.text for block in page if block.language == "sql")
    (tmp_path / "s.yaml").write_text(scenario)
    assert bench("run", "s.yaml").code == 0
    done = bench("query", sql)
    assert done.code == 0, done.err
    assert re.search(r"^[0-9a-f]{8} +cpu +[\d.]+ +[\d.]+", done.out, re.MULTILINE)


@check_table("page", ["run-servers.md", "monitor-a-run.md"])
def test_scenarios_and_recipes_shown_are_valid(bench, tmp_path, page):
    for at, block in enumerate(block for block in blocks(HOW_TO / page) if block.language == "yaml"):
        (tmp_path / f"{at}.yaml").write_text(block.text)
        verb = ["validate"] if "scenario:" in block.text else ["servers", "validate"]
        done = bench(*verb, f"{at}.yaml")
        assert done.code == 0, done.err


def test_levels_of_gzip_are_compared_as_shown(bash, bench, tmp_path):
    page = HOW_TO / "time-a-command.md"
    (scenario,) = (block.text for block in blocks(page) if "scenario: gzip_levels" in block.text)
    (tmp_path / "s.yaml").write_text(scenario.replace("repetitions: 5", "repetitions: 2"))
    make, compare = re.findall(r"`(seq [^`]+|bench compare [^`]+)`", page.read_text())
    small = make.replace("seq 1000000", "seq 1000")
    assert small != make
    assert bash(small, tmp_path).returncode == 0
    assert bench("run", "s.yaml").code == 0
    done = bench(*shlex.split(compare)[1:])
    assert done.code == 0, done.err
    assert "differs: parameter values.level: 1 | 9" in done.err


def test_the_pipeline_of_the_gate_works_in_two_workspaces(bash, tmp_path):
    """What the main branch does and what a change does, each in a folder of its own."""
    shell = [block.text for block in blocks(HOW_TO / "gate-a-change.md") if block.language == "sh"]
    (main,) = (text for text in shell if "evidence push" in text)
    (change,) = (text for text in shell if "--baseline" in text)
    scenario = "scenario: speed\nexperiment: command\ntarget: {argv: [sleep, '0.02']}\n"
    scenario += "workload: {executions: 2}\nrepetitions: 2\n"
    for name in ("main", "change"):
        (tmp_path / name / "scenarios").mkdir(parents=True)
        (tmp_path / name / "scenarios" / "speed.yaml").write_text(scenario)
    store = {"BENCH_STORE": str(tmp_path / "store")}
    first = bash(f"set -e\n{change}", tmp_path / "change", **store)
    assert first.returncode == 0 and "no baseline yet, passed" in first.stdout, first.stderr
    assert bash(f"set -e\n{main}", tmp_path / "main", **store).returncode == 0
    second = bash(f"set -e\n{change}", tmp_path / "change", **store)
    assert second.returncode in (0, 3, 6) and "wall_ms mean" in second.stdout, second.stderr
