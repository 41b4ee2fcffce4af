"""`bench list` and `bench show`."""

import json


def test_the_built_in_experiments_are_listed(bench):
    done = bench("list", "experiments")
    assert done.code == 0
    for name in ("command", "storage.file", "vector.search"):
        assert name in done.out
    assert done.err == "next:  bench show EXPERIMENT\n"
    assert {"command", "storage.file", "vector.search"} <= {
        item["name"] for item in json.loads(bench("list", "experiments", "--json").out)
    }


def test_a_workspace_without_benchmarks_or_targets_says_so(bench):
    done = bench("list", "benchmarks")
    assert done.code == 0
    assert "a benchmark is a YAML file in benchmarks/" in done.err
    assert json.loads(bench("list", "targets", "--json").out) == []


def test_show_tells_inputs_metrics_and_resources(bench):
    done = bench("show", "command")
    assert done.code == 0
    assert "executions" in done.out and "Measured executions." in done.out
    assert "wall_ms" in done.out and "lower" in done.out
    assert done.out.endswith("resources  nodes 1, cpus 1, gpus 0\n")
    shown = json.loads(bench("show", "command", "--json").out)
    assert {item["name"] for item in shown["target"]} >= {"argv", "shell"}


def test_show_tells_what_a_key_may_hold_by_full_names_and_kinds(bench):
    lines = bench("show", "vector.search").out.splitlines()
    (data,) = [line for line in lines if line.startswith("data ") and "synthetic" in line]
    assert "synthetic | file" in data
    (path,) = [line for line in lines if line.startswith("data.path ")]
    assert path.split()[1:4] == ["str", "required", "file:"]
    assert any(line.split()[:2] == ["arrivals.rates", "list[float]"] for line in lines)
    names = [line.split()[0] for line in bench("show", "storage.postgres").out.splitlines() if line.startswith("sql")]
    assert names == [
        "sql",
        "sql.*.text",
        "sql.*.params",
        "sql.*.params.*.low",
        "sql.*.params.*.high",
    ]


def test_every_listed_experiment_can_be_shown(bench):
    for item in json.loads(bench("list", "experiments", "--json").out):
        done = bench("show", item["name"])
        assert done.code == 0, done.err


def test_show_fits_a_screen_of_80_columns(bench, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    for name in ("storage.s3", "storage.postgres", "vector.search"):
        tables = bench("show", name).out.partition("\ntarget\n")[2]
        assert max(map(len, tables.splitlines())) <= 80
        assert tables.count("─" * 60) == 3, "tables, not lists of records"


def test_show_of_something_unknown_is_answered_with_the_nearest(bench):
    done = bench("show", "comand")
    assert done.code == 2
    assert "did you mean 'command'?" in done.err


def test_show_of_a_version_that_is_not_there_names_those_that_are(bench):
    done = bench("show", "command", "--version", "99")
    assert done.code == 2
    assert "installed: 1.0" in done.err


def test_errors_are_json_where_json_was_asked_for(bench):
    done = bench("show", "comand", "--json")
    assert json.loads(done.out)["exit_code"] == done.code == 2
    assert done.err == ""


BENCHMARK = """\
benchmark: small
description: Ten executions of nearly nothing.
experiment: command
workload: {executions: 7, timeout: 3s}
limits: {wall: 1m}
"""


def test_show_of_a_benchmark_tells_its_file_and_what_it_fixes_first(bench, tmp_path):
    (tmp_path / "benchmarks").mkdir()
    path = tmp_path / "benchmarks" / "small.yaml"
    path.write_text(BENCHMARK)
    lines = bench("show", "small").out.splitlines()
    assert lines[0] == f"benchmark small  (workspace, {path})"
    assert lines[1] == "Ten executions of nearly nothing."
    assert "executions 7, timeout 3s" in lines[2]
    assert any(line.split()[:4] == ["executions", "int", "fixed:", "7"] for line in lines)
    shown = json.loads(bench("show", "small", "--json").out)["benchmark"]
    assert (shown["benchmark"], shown["file"]) == ("small", str(path))
    assert shown["workload"] == {"executions": 7, "timeout": "3s"}
    assert json.loads(bench("show", "command", "--json").out)["benchmark"] is None
