"""Runs on a real Slurm cluster of four virtual nodes: submitted, followed, stopped, resumed and collected."""

import json
import os
import shutil
import signal
from pathlib import Path

import pytest
from laboratory import Lab
from services.slurm_cluster import cluster as cluster
from services.slurm_cluster import collect, collect_until_done, needs_slurm, status, submit, use_cluster
from services.slurm_cluster import slurm as slurm
from services.small_server import with_small

from benchhouse.executors.slurm import SlurmExecutor
from benchhouse.schema.errors import BenchError
from benchhouse.schema.protocols import Assignment
from benchhouse.schema.resources import Resources
from benchhouse.schema.scenario import Scenario
from benchhouse.schema.site import Site

pytestmark = needs_slurm
DESCRIPTOR = Path(__file__).parents[2] / "examples" / "benchmark-ai" / "horovod-nodes.toml"
SLOW_TO_END = """
import atexit, os, pathlib, time
if pathlib.Path(f"/proc/{os.getppid()}/comm").read_text().startswith("slurmstepd"):
    task = os.getpid()
    atexit.register(lambda: os.getpid() == task and time.sleep(1))
"""
END = """
import os, pathlib, re, signal, subprocess, time
from benchhouse import Context

def end(ctx: Context, how: str):
    mark = pathlib.Path(os.environ["LAB"], how)
    first = not mark.exists()
    mark.touch()
    task = os.environ["SLURM_ARRAY_JOB_ID"] + "_" + os.environ["SLURM_ARRAY_TASK_ID"]
    if how == "task_killed" and first:
        status = pathlib.Path(f"/proc/{os.getppid()}/status").read_text()
        os.kill(int(re.search(r"PPid:\\s+(\\d+)", status)[1]), signal.SIGKILL)
    if how == "cancelled":
        subprocess.run(["scancel", task])
    if how == "time_over":  # what Slurm sends before the end of the time limit
        subprocess.run(["scancel", "--batch", "--signal=USR2", task])
    if how == "memory":
        held = [os.urandom(1 << 20) * 16 for _ in range(100)]
    if first and how != "good":
        time.sleep(300)
    ctx.emit("x", 1)
"""


def jobs_folder(lab: Lab) -> Path:
    return lab.workspace / ".bench" / "runs" / lab.run_id() / "jobs"


def shape(value: object) -> object:
    """Keys and kinds, not values."""
    if isinstance(value, dict):
        return {key: shape(item) for key, item in value.items()}
    if isinstance(value, list):
        return [shape(value[0])] if value else []
    return "number" if isinstance(value, int | float) else type(value).__name__


def test_a_submitted_sweep_is_one_array_with_the_evidence_of_a_local_run(slurm, cluster):
    """The path of the workspace holds blanks, quotes, a percent sign and a command, and the tasks are slow to end."""
    odd = slurm.root / "a b $(touch pwned) %j 'x'"
    odd.mkdir()
    shutil.copy(slurm.workspace / "site.yaml", odd)
    slurm.workspace = odd
    (slurm.root / "site" / "sitecustomize.py").write_text(SLOW_TO_END)
    word = {"WORD": "$$(touch pwned) `id`"}
    scenario = slurm.scenario("once", workload={"n": [0, 2]}, repetitions=2, partition="cpu", environment=word)
    submitted = submit(slurm, scenario)
    assert (submitted["trials"], submitted["under_way"]) == (4, 4)
    assert collect_until_done(slurm, cluster)["trials"] == 4
    assert not list(slurm.root.rglob("pwned"))
    assert set(cluster.tasks(slurm.run_id()).values()) <= {("COMPLETED", "node01"), ("COMPLETED", "node02")}
    trials = slurm.trials()
    (job,) = {trial.meta["slurm"]["array_job_id"] for trial in trials}
    assert {trial.meta["slurm_job_id"] for trial in trials} == {f"{job}_{index}" for index in range(4)}
    for trial in trials:
        meta = trial.meta
        assert meta["outcome"] == "succeeded"
        assert meta["partition"] == meta["slurm"]["partition"] == "cpu"
        assert meta["slurm_node_list"] == meta["host"]
        assert meta["attempts"][0]["job"] == meta["slurm_job_id"]
        assert meta["slurm"]["queue_s"] >= 0
    local = json.loads(slurm.bench("run", scenario, "--executor", "local", "--json").stdout)
    assert local["outcomes"] == {"succeeded": 4}
    here = [trial for trial in slurm.trials() if trial.spec["executor"] == "local"]
    for digest in ("plan_digest", "instance_digest"):
        assert {trial.spec[digest] for trial in here} == {trial.spec[digest] for trial in trials}
    assert shape(here[0].metrics) == shape(trials[0].metrics)
    slurm.is_tidy()


def test_a_packed_task_runs_some_trials_together_and_may_be_started_twice(slurm, cluster):
    slurm.hold(0)
    settings = {"pack": 4, "together": 2, "exclusive": True}
    submit(slurm, slurm.scenario("slow", workload={"seconds": 0}, repetitions=4, slurm=settings))
    slurm.wait_for_mark("slow-*", 2)
    slurm.release()
    collect_until_done(slurm, cluster)
    trials = slurm.trials()
    assert [trial.outcome for trial in trials] == ["succeeded"] * 4
    assert len({trial.meta["slurm_job_id"] for trial in trials}) == 1
    assert {trial.meta["slurm"]["cpus_on_node"] for trial in trials} == {"8"}, "the whole node"
    spans = [(trial.meta["custom"]["began"], trial.meta["custom"]["ended"]) for trial in trials]
    assert max(sum(began <= at < ended for began, ended in spans) for at, _ in spans) == 2

    before = {trial.folder.name: (trial.folder / "manifest.json").read_bytes() for trial in trials}
    shutil.rmtree(trials[0].folder)
    cluster.call("sbatch", "--wait", str(jobs_folder(slurm) / "0001" / "job.sh"))
    after = {trial.folder.name: (trial.folder / "manifest.json").read_bytes() for trial in slurm.trials()}
    changed = [name for name in before if after[name] != before[name]]
    assert after.keys() == before.keys() and changed == [trials[0].folder.name]
    slurm.is_tidy()


def test_every_way_in_which_a_job_ends(slurm):
    slurm.install("end", "1.0", END, "[benchhouse.experiments]\nend = end:end\n")
    ways = ["good", "task_killed", "cancelled", "time_over"]
    if os.access("/sys/fs/cgroup/memory", os.W_OK):  # by which Slurm limits the memory of jobs
        ways.append("memory")
    ended = slurm.run("end", code=1, workload={"how": ways}, resources={"memory": "300MiB"}, retries={"backoff": 0.1})
    by_way = slurm.by("how")
    assert "cancelled" not in by_way and ended["outcomes"]["cancelled"] == 1
    assert by_way["good"].outcome == "succeeded"
    first, second = by_way["task_killed"].meta["attempts"]
    assert (first["outcome"], second["outcome"]) == ("lost", "succeeded")
    assert "ended as FAILED" in first["reason"] and first["job"] != second["job"]
    assert (by_way["time_over"].outcome, by_way["time_over"].code) == ("timeout", "job_time")
    if "memory" in ways:
        failure = by_way["memory"].meta["failure"]
        assert by_way["memory"].outcome == "out_of_memory" and "batch job" in failure["message"]
    (reason,) = [item["reason"] for item in status(slurm)["failures"] if item["outcome"] == "cancelled"]
    assert "ended as CANCELLED" in reason
    assert collect(slurm)["under_way"] == 0, "what somebody cancelled is not submitted again"
    slurm.is_tidy()


def test_a_killed_orchestrator_is_replaced_and_nothing_runs_twice(slurm, cluster):
    """One of its two arrays runs although its id was never written down; the other one never reached Slurm."""
    use_cluster(slurm, cluster, slurm={"max_array": 2})
    slurm.hold(0)
    process = slurm.start("run", slurm.scenario("slow", workload={"seconds": 0}, repetitions=3))
    slurm.wait_for_mark("slow-*", 3)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    jobs = jobs_folder(slurm)
    first, second = (json.loads((jobs / name / "job.json").read_text())["job_id"] for name in ("0001", "0002"))
    (jobs / "0001" / "job.json").unlink()
    cluster.call("scancel", second)
    (jobs / "0002" / "job.json").unlink()
    (jobs / "0002").rename(jobs / "0003")
    slurm.release()
    resumed = slurm.bench("run", "--resume", "@last", "--json")
    assert json.loads(resumed.stdout)["outcomes"] == {"succeeded": 3}
    assert json.loads((jobs / "0001" / "job.json").read_text())["job_id"] == first
    lost = json.loads((jobs / "0003" / "job.json").read_text())
    assert not lost["job_id"] and lost["reason"]
    third = json.loads((jobs / "0004" / "job.json").read_text())["job_id"]
    ids = sorted(trial.meta["slurm_job_id"] for trial in slurm.trials())
    assert ids == [f"{first}_0", f"{first}_1", f"{third}_0"]
    slurm.is_tidy()


def test_a_run_with_a_service_is_looked_at_stopped_and_resumed(slurm, cluster):
    with_small(slurm).hold(0)
    web = {"web": {"recipe": "small", "mode": "attached"}}
    scenario = slurm.scenario("slow", workload={"seconds": 0}, repetitions=3, slurm={"throttle": 1}, services=web)
    submit(slurm, scenario)
    slurm.wait_for_mark("slow-*")
    found = status(slurm)
    assert (found["state"], found["queue"]["running"], found["queue"]["pending"]) == ("running", 1, 2)
    assert found["queue"]["reasons"] == {"JobArrayTaskLimit": 2}
    seen = [json.loads(line) for line in (jobs_folder(slurm) / "states.jsonl").read_text().splitlines()]
    assert {(row["state"], row["reason"]) for row in seen} == {("RUNNING", ""), ("PENDING", "JobArrayTaskLimit")}
    run = slurm.run_id()
    assert cluster.jobs(run) == {f"bench-{run}-{name}" for name in ("0001", "web", "reaper")}

    slurm.bench("stop", "@last")
    assert not cluster.jobs(run)
    assert (status(slurm)["state"], status(slurm)["outcomes"]) == ("interrupted", {"cancelled": 3})
    service = json.loads((jobs_folder(slurm).parent / "services" / "web" / "state.json").read_text())
    assert service["phase"] == "stopped"
    slurm.is_tidy()
    slurm.release()
    resumed = slurm.bench("run", "--resume", "@last", "--json")
    assert json.loads(resumed.stdout)["outcomes"] == {"succeeded": 3}
    assert {len(trial.meta["attempts"]) for trial in slurm.trials()} == {2}
    assert not cluster.jobs(run)
    slurm.is_tidy()


def test_what_slurm_refuses_is_reported_before_anything_is_made(slurm, cluster, monkeypatch):
    monkeypatch.setenv("SLURM_CONF", cluster.conf)
    cases = [
        ({"partition": "nowhere"}, {}, "this cluster has: all, cpu, gpu"),
        ({}, {"cpus": 5000}, "no node has that much"),
        ({}, {"memory": 900 << 30}, "no node has that much"),
        ({"partition": "gpu"}, {"gpus": 40}, ""),
        ({"slurm": {"constraint": "no_such_feature"}}, {}, ""),
        ({"slurm": {"reservation": "no_such_thing"}}, {}, ""),
    ]
    for scenario, resources, hint in cases:
        made = SlurmExecutor(Assignment(scenario=Scenario(scenario="s", **scenario), site=Site(site="test")))
        with pytest.raises(BenchError, match="sbatch refused") as refused:
            made.check(Resources(**resources))
        assert hint in refused.value.hint, (scenario, resources)
    SlurmExecutor(Assignment()).check(Resources())
    done = slurm.bench("submit", slurm.scenario("once", resources={"nodes": [1, 64]}), code=2)
    assert "at resources.nodes=64: sbatch refused" in done.stderr
    with_small(slurm)
    done = slurm.bench("servers", "start", "small", "--executor", "slurm", "--mem", "900000G", code=2)
    assert "sbatch refused" in done.stderr
    assert not (slurm.workspace / ".bench" / "runs").exists()
    slurm.is_tidy()


def test_the_last_words_of_a_task_that_cannot_begin_are_in_its_events_and_logs(slurm, cluster):
    """Its Python cannot start; the site has the logs in a folder of its own."""
    slurm.variables["WORK"] = str(slurm.root)
    use_cluster(slurm, cluster, folders={"logs": "$WORK/logs"}, environment={"PYTHONHOME": "/nowhere"})
    slurm.run("once", code=1, workload={"n": [1, 2]}, retries={"max_retries": 0})
    name = f"bench-{slurm.run_id()}-0001"
    begun = [path.name.split(".") for path in (jobs_folder(slurm) / "0001" / "begun").iterdir()]
    assert {index for index, _ in begun} == {"0", "1"}
    logs = sorted((slurm.root / "logs" / "s").glob("*.err"))
    assert {path.name for path in logs} == {f"{name}_{job}.err" for _, job in begun}
    assert "No module named 'encodings'" in logs[0].read_text()
    ended = [event for event in slurm.events() if event["event"] == "ended"]
    assert [event["outcome"] for event in ended] == ["lost"] * 2
    assert all("ended as FAILED" in event["reason"] and "no Python frame" in event["reason"] for event in ended)
    packed = json.loads(slurm.bench("logs", "get", "--component", "slurm", "--json").stdout)["files"]
    assert {f"jobs/{path.name}" for path in logs} <= {file["path"] for file in packed}


def test_a_partition_selects_slurm_and_the_job_has_its_tasks_and_gpus(slurm):
    (slurm.workspace / "site.yaml").write_text("site: test\nslurm: {poll: 1s}\n")
    given = '[ "$$SLURM_NTASKS $$SLURM_NNODES" = "3 1" ] && [ -n "$$SLURM_JOB_GPUS" ] && [ $$(srun id | wc -l) = 3 ]'
    scenario = slurm.scenario(
        "command", target={"shell": given}, workload={"executions": 1}, partition="gpu",
        resources={"nodes": 1, "ntasks": 3, "cpus_per_task": 2, "gres": "gpu:1", "mem_gb": 1},
    )  # fmt: skip
    slurm.bench("run", scenario)
    (trial,) = slurm.trials()
    assert trial.outcome == "succeeded" and trial.meta["partition"] == "gpu", trial.meta["failure"]
    assert trial.spec["resources"]["ntasks"] == 3 and trial.spec["resources"]["gpus"] == 1
    slurm.is_tidy()


def test_a_descriptor_of_benchmark_ai_runs_over_two_nodes(slurm):
    shutil.copytree(DESCRIPTOR.parent, slurm.workspace / "descriptors")
    settings = json.loads((slurm.workspace / "site.yaml").read_text()) | {"instance_types": {"p3.8xlarge": {"cpus": 1}}}
    (slurm.workspace / "site.yaml").write_text(json.dumps(settings))
    command = ("run", f"descriptors/{DESCRIPTOR.name}", "--runtime", "process", "--json")
    done = json.loads(slurm.bench(*command).stdout)
    rows = {(row["metric"], row["stat"]): row["mean"] for row in done["points"]}
    assert rows["throughput", "mean"] == pytest.approx(801.5)
    (trial,) = slurm.trials(done["scenario"])
    assert trial.meta["slurm_job_id"] and trial.spec["resources"]["nodes"] == 2
    slurm.is_tidy()
