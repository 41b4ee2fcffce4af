"""Relative paths of a scenario start in the folder of its file: at the plan, in the worker, and in a repeated trial."""

import json
import shutil

READER = """
from pathlib import Path
from pydantic import BaseModel, FilePath
from benchhouse import Context, Metric, experiment


class Reading(BaseModel, extra="forbid"):
    file: FilePath
    note: str = ""


@experiment("read", version="1.0", metrics=[Metric(name="size", unit="B", direction="lower")])
def read(workload: Reading, ctx: Context):
    ctx.emit("size", len(workload.file.read_bytes()))
    ctx.metadata(file=str(workload.file))
"""


def install(lab):
    lab.install("reader", "1.0", READER, "[benchhouse.experiments]\nread = reader:read\n")
    folder = lab.workspace / "scenarios"
    folder.mkdir()
    (folder / "data.txt").write_text("12345")
    return folder


def write(path, **more):
    path.write_text(json.dumps({"scenario": path.stem, "experiment": "read", **more}))
    return path


def test_a_file_is_found_next_to_the_scenario_also_when_the_run_is_resumed_or_a_trial_is_repeated(lab):
    folder = install(lab)
    scenario = write(folder / "s.yaml", workload={"file": "data.txt"}, repetitions=2, budget={"trials": 1})
    lab.bench("run", scenario, code=1)
    (trial,) = lab.trials()
    assert trial.outcome == "succeeded"
    assert trial.meta["custom"]["file"] == str(folder / "data.txt")
    assert trial.spec["parameters"]["file"] == "data.txt"

    moved = lab.root / "elsewhere"
    shutil.copytree(folder, moved)
    first, second = (json.loads(lab.bench("plan", path, "--json").stdout) for path in (scenario, moved / "s.yaml"))
    assert first["plan_digest"] == second["plan_digest"]

    ledger = lab.workspace / ".bench" / "runs" / lab.run_id() / "scenario.yaml"
    ledger.write_text(json.dumps(json.loads(ledger.read_text()) | {"budget": {}}))
    lab.bench("run", "--resume", lab.run_id())
    assert [trial.outcome for trial in lab.trials()] == ["succeeded"] * 2

    lab.bench("run", trial.folder / "effective_config.yaml", "--new")
    again = next(item for item in lab.trials() if item.spec["run_id"] != trial.spec["run_id"])
    assert again.outcome == "succeeded"
    assert again.spec["instance_digest"] == trial.spec["instance_digest"]


def test_a_benchmark_finds_its_file_beside_itself(lab):
    folder = install(lab)
    benchmarks = lab.workspace / "benchmarks"
    benchmarks.mkdir()
    (benchmarks / "own.txt").write_text("1234567")
    (benchmarks / "b.yaml").write_text(
        json.dumps({"benchmark": "b", "experiment": "read", "axes": [{"grid": {"file": ["own.txt"]}}]})
    )
    path = folder / "s.yaml"
    path.write_text(json.dumps({"scenario": "s", "uses": "b", "workload": {"note": "x"}}))
    lab.bench("run", path)
    (trial,) = lab.trials()
    assert trial.meta["custom"]["file"] == str(benchmarks / "own.txt")
    assert trial.spec["parameters"]["file"] == "../benchmarks/own.txt"


def test_a_file_that_is_not_there_is_told_at_the_plan_with_its_place(lab):
    folder = install(lab)
    done = lab.bench("plan", write(folder / "s.yaml", workload={"file": "none.txt"}), code=2)
    assert "s.yaml:1" in done.stderr
    assert "file" in done.stderr


def test_a_command_runs_in_a_folder_beside_the_scenario(lab):
    folder = install(lab)
    scenario = folder / "s.yaml"
    content = {"scenario": "s", "experiment": "command", "target": {"shell": "test -f data.txt"},
               "workload": {"cwd": ".", "executions": 1, "warmup": 0}}  # fmt: skip
    scenario.write_text(json.dumps(content))
    lab.bench("run", scenario)
    assert lab.trials()[0].outcome == "succeeded"


def test_local_packages_and_binds_start_beside_the_scenario(lab):
    folder = install(lab)
    (folder / "reader-1.0-py3-none-any.whl").write_bytes(b"")
    runtime = {"kind": "venv", "requirements": ["reader-1.0-py3-none-any.whl", "numpy>=1"]}
    scenario = write(folder / "s.yaml", workload={"file": "data.txt"}, runtime=runtime, binds=["data:/data"])
    planned = json.loads(lab.bench("plan", scenario, "--json").stdout)
    assert f"{folder}/reader-1.0-py3-none-any.whl, numpy>=1" in planned["runtime"]
