"""Batch scripts for Slurm, compared with the files in tests/data/golden/slurm; nothing is submitted."""

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from golden import STORED

from benchhouse.executors.slurm import SlurmExecutor
from benchhouse.executors.slurm_keepers import SlurmKeepers
from benchhouse.executors.slurm_script import Array, clock, quoted, script
from benchhouse.schema.errors import BenchError
from benchhouse.schema.layout import RunFolder
from benchhouse.schema.protocols import Assignment, Job
from benchhouse.schema.recipe import Recipe
from benchhouse.schema.resources import Resources
from benchhouse.schema.scenario import Scenario
from benchhouse.schema.service import ServiceFolder, ServiceSpec
from benchhouse.schema.site import Site

RUN = Path("/home/ada/benchmarks/.bench/runs/r1")
PYTHON = ("/opt/venv/bin/python",)
SITE = {
    "modules": ["Apptainer/1.3", "CUDA"],
    "environment": {"FOO": "a 'b' $(touch pwned)"},
    "network": {"environment": {"NCCL_SOCKET_IFNAME": "ib0"}},
    "slurm": {"partition": "cpu", "gpu_partition": "gpu", "gres": "gpu:a100", "account": "p1", "qos": "default",
              "throttle": 50, "flags": ["--switches=1"]},
}  # fmt: skip
EVERYTHING = {
    "partition": "fat", "account": "p2", "qos": "short", "limits": {"wall": 100.0},
    "slurm": {"throttle": 7, "constraint": "a100", "reservation": "course", "exclusive": True,
              "flags": ["--gpu-bind=none"]},
}  # fmt: skip
ARRAYS: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    "defaults": ({}, {}, {}, {}),
    "site": ({}, SITE, {"gpus": 2, "memory": 2**30 + 1}, {}),
    "scenario": (EVERYTHING, SITE, {"cpus": 4}, {"delay_s": 1.2, "after": ("71", "72")}),
    "nodes": ({}, SITE, {"nodes": 3}, {}),
    "tasks": ({}, SITE, {"ntasks": 3, "cpus": 2, "gpus": 1, "gres": "gpu:h100:1,nvme:2"}, {}),
    "tasks-per-node": ({"slurm": {"ntasks_per_node": 4}}, {}, {"nodes": 2, "ntasks": 8}, {}),
    "packed": (
        {"slurm": {"pack": 8, "together": 4}, "limits": {"wall": 60.0}},
        {},
        {"cpus": 2, "memory": 2**30, "gpus": 1, "gres": "nvme:1"},
        {},
    ),
    "time": ({"slurm": {"time": 5400.0}}, {}, {}, {}),
    "odd-paths": ({}, {}, {}, {"folder": Path("/a b/$(touch x) %j 'x'/0001"), "logs": Path("/logs/50%")}),
}
"""By the name of the stored file: the scenario, the site, the resources of a trial, and more of the array."""


def array(name: str) -> str:
    scenario, site, resources, more = ARRAYS[name]
    given = {"folder": RUN / "jobs" / "0001", "logs": RUN / "logs", "throttle": None} | more
    made = Array("bench-r1-0001", 6, python=PYTHON, resources=Resources(**resources), **given)
    return script(made, Scenario(scenario="s", **scenario), Site(site="test", **site))


def test_the_scripts_of_arrays(golden):
    for name in ARRAYS:
        golden(f"slurm/array-{name}.sh", array(name))


def test_the_number_of_tasks_at_a_time():
    cases: list[tuple[dict[str, Any], dict[str, Any], int | None]] = [
        ({}, {}, None),
        ({}, {"throttle": 50}, 50),
        ({"parallel": 8}, {"throttle": 50}, 8),
        ({"parallel": 8, "slurm": {"pack": 4, "together": 4}}, {}, 2),
        ({"parallel": 8, "slurm": {"throttle": 3}}, {}, 3),
    ]
    for scenario, site, throttle in cases:
        made = SlurmExecutor(Assignment(scenario=Scenario(scenario="s", **scenario), site=Site(slurm=site)))
        assert made.throttle == throttle, (scenario, site)


def test_a_dry_run_shows_the_first_array_and_the_labels_of_its_trials(golden):
    site = Site(site="test", slurm={"max_array": 2}, folders={"logs": "logs"})
    executor = SlurmExecutor(Assignment(scenario=Scenario(scenario="s"), site=site, run=RunFolder(RUN)))
    jobs = [Job(f"t{n}", RUN, PYTHON, Resources(), RUN, label=f"n={n}") for n in range(2)]
    golden("slurm/dry-run.sh", executor.render(jobs, 5))


@pytest.fixture
def sbatch(tmp_path, monkeypatch) -> Path:
    """A folder in which a stand-in for sbatch keeps the last script."""
    (tmp_path / "sbatch").write_text(f'#!/bin/sh\ncat "$2" > {tmp_path}/script\necho 4711\n')
    (tmp_path / "sbatch").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return tmp_path


def service(**more: Any) -> ServiceSpec:
    recipe = {"name": "small", "program": ["small"], "command": ["small"], "endpoint": "http://{host}:{port}"}
    recipe |= more.pop("recipe", {}) | {"ready": {"kind": "http"}}
    return ServiceSpec(id="web", recipe=Recipe.model_validate(recipe), **more)


def test_the_scripts_of_services_and_of_their_reaper(golden, sbatch):
    site = Site(site="test", **SITE | {"slurm": {"partition": "cpu", "partitions": {"cpu": {"max_time": 7200.0}}}})
    keepers = SlurmKeepers(Scenario(scenario="s", account="p2"), site)
    folder = ServiceFolder(RUN / "services" / "web")
    golden("slurm/service.sh", keepers.render(folder, service(run_id="r1"), PYTHON))
    chosen = service(time=5400.0, node="node07", recipe={"resources": {"cpus": 2}, "scale": {"nodes": 2}})
    golden("slurm/service-of-two-nodes.sh", keepers.render(folder, chosen, PYTHON))

    clients = [ServiceFolder(sbatch / "x y" / f"clients-{n}") for n in range(3)]
    for each in clients:
        each.path.mkdir(parents=True)
    keepers.start([(each, service()) for each in clients], PYTHON)
    text = (sbatch / "script").read_text().replace(str(sbatch), "/home/ada/benchmarks")
    golden("slurm/service-array.sh", text)
    assert [each.job.read_text() for each in clients] == [
        f'{{"executor":"slurm","job_id":"4711_{n}","name":"bench-clients-0","where":{{}}}}' for n in range(3)
    ]

    clients[0].stop.write_text("60")
    keepers.reap(clients[:2], ["12", "13"], "bench-r1-reaper", sbatch / "reaper.sh")
    assert not clients[0].stop.exists(), "what an earlier reaper wrote is taken back"
    golden("slurm/reaper.sh", (sbatch / "script").read_text().replace(str(sbatch), "/home/ada/benchmarks"))


def test_stored_scripts_are_valid_bash():
    stored = sorted(map(str, (STORED / "slurm").glob("*.sh")))
    assert len(stored) >= len(ARRAYS)
    checkers = [["bash", "-n"], ["shellcheck", "--severity=warning"]]
    for command in filter(lambda command: shutil.which(command[0]), checkers):
        files = [[path] for path in stored] if command[0] == "bash" else [stored]
        for each in files:
            done = subprocess.run([*command, *each], capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stdout + done.stderr


def test_a_value_is_one_word_of_the_shell_wherever_it_comes_from():
    """The body is run by bash with a stand-in for the interpreter; a command in a value would make a file."""
    text = array("odd-paths").replace("/opt/venv/bin/python", "printf '%s\\n'")
    body = "\n".join(line for line in text.splitlines() if not line.startswith(": >"))
    body = body.replace("exec printf", "printf")
    done = subprocess.run(["bash", "-c", body], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == str(ARRAYS["odd-paths"][3]["folder"])


def test_times_and_paths_in_the_words_of_sbatch():
    assert [clock(seconds) for seconds in (1, 60, 61, 5400, 360_000)] == [
        "0:01:00", "0:01:00", "0:02:00", "1:30:00", "100:00:00",
    ]  # fmt: skip
    assert quoted(Path("/a b/50%/%x_%j.out")) == '"/a b/50%%/%x_%j.out"'
    for name in ('a"b', "a\\b", "a\nb"):
        with pytest.raises(BenchError, match="can't be passed to Slurm"):
            quoted(Path("/home/ada/benchmarks", name, "x"))
