"""Trials on a real Slurm cluster of four virtual nodes: submitted, followed from anywhere, broken, and brought home."""

import json
import os
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest
from laboratory import Lab, wait_until
from services.slurm_cluster import cluster as cluster
from services.slurm_cluster import needs_slurm
from services.slurm_cluster import slurm as slurm

from benchhouse.claims.contracts import template

pytestmark = needs_slurm
BENCHMARK_AI = Path(__file__).parents[2] / "examples" / "benchmark-ai"


def status(lab: Lab) -> dict:
    return json.loads(lab.bench("status", "@last", "--json", code=None).stdout)


def submit(lab: Lab, *args: object, **options) -> dict:
    return json.loads(lab.bench("submit", *args, "--json", **options).stdout)


def settled(lab: Lab, limit_s: float = 240) -> dict:
    """Collect, as a cron job would, until nothing is under way."""
    deadline = time.monotonic() + limit_s
    while True:
        said = json.loads(lab.bench("collect", "@last", "--json").stdout)
        if not said["under_way"]:
            return said
        assert time.monotonic() < deadline, said
        time.sleep(0.5)


def task_of(lab: Lab, cluster, state: str = "RUNNING") -> str:
    """The first task of the lab's last run that is in that state."""
    wait_until(lambda: runs_of(lab), "a run")
    name = f"bench-{lab.run_id()}-"
    found: list[str] = []

    def look() -> bool:
        rows = cluster.call("squeue", "-h", "-r", "-o", "%i|%T|%j").splitlines()
        found[:] = [row.split("|")[0] for row in rows if row.split("|")[1] == state and name in row]
        return bool(found)

    wait_until(look, f"a task that is {state}")
    return found[0]


def test_descriptors_of_benchmark_ai_run_as_jobs_also_over_two_nodes(slurm):
    shutil.copytree(BENCHMARK_AI, slurm.workspace / "descriptors")
    with (slurm.workspace / "site.yaml").open("a") as site:
        site.write("instance_types: {t3.medium: {cpus: 1}, p3.8xlarge: {cpus: 1}}\n")
    for name, metric, mean, nodes in (("emit", "accuracy", 0.6, 1), ("horovod-nodes", "throughput", 801.5, 2)):
        done = json.loads(slurm.bench("run", f"descriptors/{name}.toml", "--runtime", "process", "--json").stdout)
        rows = {(row["metric"], row["stat"]): row["mean"] for row in done["points"]}
        assert rows[metric, "mean"] == pytest.approx(mean)
        (trial,) = slurm.trials(done["scenario"])
        assert trial.meta["slurm_job_id"] and trial.spec["resources"]["nodes"] == nodes
    slurm.is_tidy()


def test_a_sweep_is_one_array_and_its_evidence_is_that_of_a_laptop(slurm, cluster):
    scenario = slurm.scenario("once", axes=[{"grid": {"n": [0, 2, 4]}}], repetitions=2, partition="cpu")
    said = submit(slurm, scenario)
    assert (said["trials"], said["under_way"]) == (6, 6)
    assert settled(slurm)["trials"] == 6
    trials = slurm.trials()
    jobs = {trial.meta["slurm"]["array_job_id"] for trial in trials}
    assert len(jobs) == 1
    assert {trial.meta["slurm_job_id"] for trial in trials} == {f"{next(iter(jobs))}_{index}" for index in range(6)}
    for trial in trials:
        meta = trial.meta
        assert meta["outcome"] == "succeeded"
        assert meta["partition"] == meta["slurm"]["partition"] == "cpu"
        assert meta["slurm_node_list"] == meta["host"]
        assert meta["attempts"][0]["job"] == meta["slurm_job_id"]
        assert 0 <= meta["slurm"]["queue_s"] < 300
    local = json.loads(slurm.bench("run", scenario, "--executor", "local", "--json").stdout)
    assert local["outcomes"] == {"succeeded": 6}
    runs = {json.loads(path.read_text())["executor"]: json.loads(path.read_text()) for path in runs_of(slurm)}
    assert runs["slurm"]["plan_digest"] == runs["local"]["plan_digest"]
    here = [trial for trial in slurm.trials() if trial.spec["executor"] == "local"]
    assert {trial.spec["instance_digest"] for trial in here} == {trial.spec["instance_digest"] for trial in trials}
    assert shape(here[0].metrics) == shape(trials[0].metrics)
    slurm.is_tidy()


def runs_of(lab: Lab) -> list[Path]:
    return sorted((lab.workspace / ".bench" / "runs").glob("*/run.json"))


def shape(value: object) -> object:
    """Keys and kinds, not values."""
    if isinstance(value, dict):
        return {key: shape(item) for key, item in value.items()}
    if isinstance(value, list):
        return [shape(value[0])] if value else []
    return "number" if isinstance(value, int | float) else type(value).__name__


def test_packed_trials_share_a_task_and_run_together(slurm):
    """Eight naps of half a second, four at a time, in one task: two rounds, not eight."""
    scenario = slurm.scenario("slow", workload={"seconds": 0.5}, repetitions=8, slurm={"pack": 8, "together": 4})
    submit(slurm, scenario)
    settled(slurm)
    trials = slurm.trials()
    assert [trial.outcome for trial in trials] == ["succeeded"] * 8
    assert len({trial.meta["slurm_job_id"] for trial in trials}) == 1
    spans = [(trial.meta["custom"]["began"], trial.meta["custom"]["ended"]) for trial in trials]
    most = max(sum(began <= at < ended for began, ended in spans) for at, _ in spans)
    assert most == 4
    job = next((slurm.workspace / ".bench" / "runs" / slurm.run_id() / "jobs").glob("*/job.sh")).read_text()
    assert "--cpus-per-task=4" in job
    slurm.is_tidy()


def test_trials_of_a_packed_task_may_share_a_process(slurm):
    scenario = slurm.scenario("once", repetitions=3, runtime={"shared": True}, slurm={"pack": 3})
    submit(slurm, scenario)
    settled(slurm)
    assert sorted(trial.meta["trials_before"] for trial in slurm.trials()) == [0, 1, 2]
    slurm.is_tidy()


def test_a_run_in_the_foreground_ends_with_its_results(slurm):
    done = slurm.run("once", axes=[{"grid": {"n": [1, 3]}}])
    assert done["complete"]
    assert done["outcomes"] == {"succeeded": 2}
    assert len(done["points"]) == 2


def test_status_tells_what_runs_and_what_waits_without_an_orchestrator(slurm, cluster):
    slurm.hold(0)
    submit(slurm, slurm.scenario("slow", workload={"seconds": 0}, repetitions=3, slurm={"throttle": 1}))
    task_of(slurm, cluster)
    wait_until(lambda: status(slurm)["queue"]["running"] == 1, "one that runs")
    said = status(slurm)
    assert said["state"] == "running"
    assert said["queue"]["pending"] == 2
    assert list(said["queue"]["reasons"]) == ["JobArrayTaskLimit"]
    shown = slurm.bench("status", "@last").stdout
    assert "1 running, 2 waiting (JobArrayTaskLimit 2)" in shown
    slurm.bench("stop", "@last")
    assert status(slurm)["state"] == "interrupted"
    assert not cluster.call("squeue", "-h", f"--name=bench-{slurm.run_id()}-0001").strip()
    assert status(slurm)["outcomes"] == {"cancelled": 3}
    slurm.is_tidy()
    slurm.release()
    resumed = slurm.bench("run", "--resume", "@last", "--json")  # as `bench stop` says
    assert json.loads(resumed.stdout)["outcomes"] == {"succeeded": 3}
    assert {len(trial.meta["attempts"]) for trial in slurm.trials()} == {2}
    slurm.is_tidy()


def test_a_killed_orchestrator_is_replaced_and_nothing_runs_twice(slurm, cluster):
    scenario = slurm.scenario("slow", workload={"seconds": 1.5}, repetitions=6)
    process = slurm.start("run", scenario)
    task_of(slurm, cluster)
    process.send_signal(signal.SIGKILL)
    process.wait()
    done = slurm.bench("run", "--resume", "@last", "--json")
    assert json.loads(done.stdout)["outcomes"] == {"succeeded": 6}
    assert len(list((slurm.workspace / ".bench" / "runs" / slurm.run_id() / "jobs").glob("*/job.sh"))) == 1
    assert all(len(trial.meta["attempts"]) == 1 for trial in slurm.trials())
    slurm.is_tidy()


def test_a_submitter_that_was_killed_before_it_wrote_the_id_down_finds_its_job(slurm, cluster):
    submit(slurm, slurm.scenario("slow", workload={"seconds": 1.0}, repetitions=2))
    (noted,) = (slurm.workspace / ".bench" / "runs" / slurm.run_id() / "jobs").glob("*/job.json")
    known = json.loads(noted.read_text())
    noted.unlink()
    settled(slurm)
    assert json.loads(noted.read_text())["job_id"] == known["job_id"]
    assert [len(trial.meta["attempts"]) for trial in slurm.trials()] == [1, 1]


def test_a_submission_that_never_reached_slurm_is_made_again(slurm):
    submit(slurm, slurm.scenario("once", repetitions=2))
    settled(slurm)
    jobs = slurm.workspace / ".bench" / "runs" / slurm.run_id() / "jobs"
    shutil.copytree(jobs / "0001", jobs / "0002")
    (jobs / "0002" / "job.json").unlink()
    for folder in slurm.folders():
        shutil.rmtree(folder)
    events = slurm.workspace / ".bench" / "runs" / slurm.run_id() / "events.jsonl"
    events.write_text("\n".join(line for line in events.read_text().splitlines() if '"ended"' not in line) + "\n")
    done = slurm.bench("run", "--resume", "@last", "--json")
    assert json.loads(done.stdout)["outcomes"] == {"succeeded": 2}
    assert "before Slurm had it" in json.loads((jobs / "0002" / "job.json").read_text())["reason"]


def test_a_worker_that_is_killed_is_tried_again_and_both_attempts_are_told(slurm, cluster):
    submit(slurm, slurm.scenario("slow", workload={"seconds": 4}, repetitions=1, retries={"backoff": 0.1}))
    (mark,) = slurm.wait_for_mark("slow-*")
    experiment = int(mark.read_text())
    worker = int(re.search(r"PPid:\s+(\d+)", Path(f"/proc/{experiment}/status").read_text())[1])
    task = int(re.search(r"PPid:\s+(\d+)", Path(f"/proc/{worker}/status").read_text())[1])
    os.kill(task, signal.SIGKILL)
    settled(slurm)
    (trial,) = slurm.trials()
    first, second = trial.meta["attempts"]
    assert (first["outcome"], second["outcome"]) == ("lost", "succeeded")
    assert "ended as FAILED" in first["reason"]
    assert first["job"] != second["job"]
    slurm.is_tidy()


def test_a_job_that_somebody_cancelled_is_told_and_not_tried_again(slurm, cluster):
    submit(slurm, slurm.scenario("slow", workload={"seconds": 30}))
    cluster.call("scancel", task_of(slurm, cluster))
    settled(slurm)
    said = status(slurm)
    assert said["outcomes"] == {"cancelled": 1}
    assert "CANCELLED" in said["failures"][0]["reason"]
    assert slurm.trials() == []
    again = slurm.bench("collect", "@last", "--json")
    assert json.loads(again.stdout)["under_way"] == 0, "a cron job does not revive it"
    slurm.is_tidy()


@pytest.mark.slow
def test_a_job_whose_time_is_over_is_sealed_as_a_timeout(slurm):
    scenario = slurm.scenario("slow", workload={"seconds": 300}, slurm={"time": "1m"})
    submit(slurm, scenario)
    settled(slurm, 120)
    (trial,) = slurm.trials()
    assert trial.outcome == "timeout"
    assert trial.code == "job_time"
    slurm.is_tidy()


@pytest.mark.skipif(
    not os.access("/sys/fs/cgroup/memory", os.W_OK), reason="Slurm holds jobs to their memory by cgroups"
)
def test_a_trial_that_needs_more_memory_than_its_job_has_is_told_so(slurm):
    asked = {"resources": {"memory": "300MiB"}, "limits": {"wall": "60s"}}
    submit(slurm, slurm.scenario("mischief", workload={"act": "fill"}, **asked))
    settled(slurm)
    assert status(slurm)["outcomes"] == {"out_of_memory": 1}
    (trial,) = slurm.trials()
    assert trial.meta["failure"]["message"].startswith("its batch job, or the node, has no more memory")
    slurm.is_tidy()


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"partition": "nowhere"}, ["partition", "all, cpu, gpu"]),
        ({"resources": {"cpus": 5000}}, ["refused", "no node has that much"]),
        ({"resources": {"memory": "900GB"}}, ["refused", "no node has that much"]),
        ({"resources": {"gpus": 40}, "partition": "gpu"}, ["refused"]),
        ({"slurm": {"constraint": "no_such_feature"}}, ["refused"]),
        ({"slurm": {"reservation": "no_such_thing"}}, ["refused"]),
    ],
)
def test_what_slurm_refuses_is_told_before_anything_is_made(slurm, more, words):
    done = slurm.bench("submit", slurm.scenario("once", **more), code=2)
    for word in words:
        assert word in done.stderr
    assert not (slurm.workspace / ".bench" / "runs").exists()


def test_names_and_paths_that_mean_something_to_a_shell_mean_nothing(slurm, cluster):
    """The workspace has a blank, a dollar and a percent sign in its path; a scenario's words are refused or quoted."""
    odd = slurm.root / "a b $(touch pwned) %j 'x'"
    odd.mkdir()
    shutil.copy(slurm.workspace / "site.yaml", odd)
    slurm.workspace = odd
    submit(slurm, slurm.scenario("slow", workload={"seconds": 0.1}, environment={"WORD": "$$(touch pwned) `id`"}))
    settled(slurm)
    assert [trial.outcome for trial in slurm.trials()] == ["succeeded"]
    assert not list(slurm.root.rglob("pwned"))
    done = slurm.bench("plan", slurm.scenario("once", partition="cpu; touch pwned"), code=2)
    assert "not one plain word" in done.stderr
    done = slurm.bench("plan", slurm.scenario("once", slurm={"flags": ["--wrap=$(touch pwned)"]}), code=2)
    assert "is not a flag" in done.stderr
    done = slurm.bench("plan", slurm.scenario("once", slurm={"flags": ["--array=1-3"]}), code=2)
    assert "--array is reserved" in done.stderr


def test_the_script_is_shown_exactly_and_is_good_bash(slurm):
    asked = {"resources": {"cpus": 2, "memory": "1GiB", "gpus": 1}, "slurm": {"flags": ["--switches=1"]}}
    scenario = slurm.scenario("once", repetitions=5, **asked)
    site = {"site": "test", "executor": "slurm", "modules": ["Apptainer/1.3"], "environment": {"FOO": "a b"}}
    (slurm.workspace / "site.yaml").write_text(json.dumps(site | {"slurm": {"gpu_partition": "gpu"}}))
    text = slurm.bench("plan", scenario, "--dry-run").stdout
    for line in ("--array=0-4", "--cpus-per-task=2", "--mem=1024M", "--gres=gpu:1", "--partition=gpu", "--switches=1"):
        assert f"#SBATCH {line}\n" in text
    assert "module load Apptainer/1.3\nexport FOO='a b'\nexec " in text
    subprocess.run(["bash", "-n"], input=text, text=True, check=True)
    if checker := shutil.which("shellcheck"):
        subprocess.run([checker, "-"], input=text, text=True, check=True)


def test_what_the_scheduler_did_is_kept(slurm):
    submit(slurm, slurm.scenario("slow", workload={"seconds": 1}))
    wait_until(lambda: status(slurm)["state"] == "to be collected", "the end")
    lines = (slurm.workspace / ".bench" / "runs" / slurm.run_id() / "jobs" / "states.jsonl").read_text().splitlines()
    seen = [json.loads(line) for line in lines]
    assert {"RUNNING"} <= {row["state"] for row in seen} <= {"PENDING", "RUNNING", "COMPLETED"}
    assert all(row["time"] and row["task"] for row in seen)


def test_a_task_that_can_not_even_begin_tells_why(slurm):
    """The site profile names a module that the nodes don't have."""
    (slurm.workspace / "site.yaml").write_text(
        "site: test\nexecutor: slurm\nmodules: [no_such_module]\nslurm: {poll: 2s, partition: all}\n"
    )
    submit(slurm, slurm.scenario("once", name="again", retries={"max_retries": 0}))
    settled(slurm)
    (failure,) = status(slurm)["failures"]
    assert failure["outcome"] == "lost"
    assert "ended as FAILED" in failure["reason"] and "module" in failure["reason"]


def test_a_task_that_the_scheduler_starts_twice_does_no_harm(slurm, cluster):
    """A controller that lost its memory does so: what was sealed stays, and what was not is done."""
    submit(slurm, slurm.scenario("slow", workload={"seconds": 0.1}, repetitions=2, slurm={"pack": 2}))
    settled(slurm)
    before = {trial.folder.name: (trial.folder / "manifest.json").read_bytes() for trial in slurm.trials()}
    kept = slurm.trials()[0].folder.name
    (gone,) = set(before) - {kept}
    shutil.rmtree(slurm.workspace / "results" / "s" / gone)
    (script,) = (slurm.workspace / ".bench" / "runs" / slurm.run_id() / "jobs").glob("*/job.sh")
    cluster.call("sbatch", "--wait", str(script))
    after = {trial.folder.name: (trial.folder / "manifest.json").read_bytes() for trial in slurm.trials()}
    assert set(after) == set(before) and after[kept] == before[kept]
    slurm.is_tidy()


def test_a_sweep_longer_than_the_site_allows_becomes_several_arrays(slurm):
    site = {"site": "test", "executor": "slurm", "slurm": {"poll": "2s", "partition": "all", "max_array": 2}}
    (slurm.workspace / "site.yaml").write_text(json.dumps(site))
    path = slurm.scenario("once", repetitions=5)
    assert "the first of 3 arrays" in slurm.bench("plan", path, "--dry-run").stdout
    submit(slurm, path)
    settled(slurm)
    assert [trial.outcome for trial in slurm.trials()] == ["succeeded"] * 5
    assert sorted(trial.meta["slurm"]["array_task_id"] for trial in slurm.trials()) == ["0", "0", "0", "1", "1"]
    slurm.is_tidy()


def test_two_people_may_submit_from_one_checkout_at_once(slurm):
    path = slurm.scenario("once", repetitions=3)
    both = [slurm.start("submit", "--new", path) for _ in range(2)]
    assert [process.wait(timeout=60) for process in both] == [0, 0]
    runs = [found.parent.name for found in runs_of(slurm)]
    assert len(runs) == 2
    for run in runs:
        wait_until(lambda run=run: not json.loads(slurm.bench("collect", run, "--json").stdout)["under_way"], "its end")
    assert [trial.outcome for trial in slurm.trials()] == ["succeeded"] * 6
    assert {trial.spec["run_id"] for trial in slurm.trials()} == set(runs)
    slurm.is_tidy()


def test_a_run_folder_that_can_not_be_written_is_told_and_nothing_is_submitted(slurm, cluster):
    """The shared filesystem is read-only: as root every folder is writable, so a file stands where it is to be."""
    (slurm.workspace / ".bench").write_text("")
    done = slurm.bench("submit", slurm.scenario("once"), code=None)
    assert done.returncode != 0
    assert "can't" in done.stderr and "Traceback" not in done.stderr
    assert not cluster.call("squeue", "-h", "-t", "all", "-o", "%Z").count(str(slurm.workspace))


def test_a_partition_is_enough_and_a_job_has_the_tasks_and_gpus_that_were_asked_for(slurm):
    """No executor is named, neither by a site; what the job was given is asked of Slurm inside of it."""
    (slurm.workspace / "site.yaml").write_text("site: test\nslurm: {poll: 2s}\n")
    given = '[ "$$SLURM_NTASKS $$SLURM_NNODES" = "3 1" ] && [ -n "$$SLURM_JOB_GPUS" ] && [ $$(srun id | wc -l) = 3 ]'
    scenario = slurm.scenario(
        "command", target={"shell": given}, workload={"executions": 1}, partition="gpu",
        resources={"nodes": 1, "ntasks": 3, "cpus_per_task": 2, "gres": "gpu:1", "mem_gb": 1},
    )  # fmt: skip
    done = slurm.bench("submit", "-c", scenario)
    assert "note: partition: runs on Slurm\n" in done.stderr
    settled(slurm)
    (trial,) = slurm.trials()
    assert trial.outcome == "succeeded" and trial.meta["partition"] == "gpu", trial.meta["failure"]
    assert trial.spec["resources"]["ntasks"] == 3 and trial.spec["resources"]["gpus"] == 1
    slurm.is_tidy()


def test_logs_are_where_the_site_wants_them_and_their_last_words_are_told(slurm):
    """A Python that can't start prints to Slurm's own log, by the id that the task has."""
    slurm.variables["WORK"] = str(slurm.root)
    site = {"site": "test", "executor": "slurm", "slurm": {"poll": "2s", "partition": "all"}}
    site |= {"folders": {"logs": "$WORK/logs"}, "environment": {"PYTHONHOME": "/nowhere"}}
    (slurm.workspace / "site.yaml").write_text(json.dumps(site))
    slurm.bench("run", slurm.scenario("once", axes=[{"grid": {"n": [1, 2]}}], retries={"max_retries": 0}), code=1)
    jobs = slurm.workspace / ".bench" / "runs" / slurm.run_id() / "jobs"
    name, begun = f"bench-{slurm.run_id()}-0001", [path.name.split(".") for path in jobs.glob("0001/begun/*")]
    assert {index for index, _ in begun} == {"0", "1"}
    logs = sorted((slurm.root / "logs" / "s").glob("*.err"))
    assert {path.name for path in logs} == {f"{name}_{job}.err" for _, job in begun}
    assert "No module named 'encodings'" in logs[0].read_text()
    ended = [event for event in slurm.events() if event["event"] == "ended"]
    assert len(ended) == 2 and all("no Python frame" in json.dumps(event) for event in ended), ended
    packed = json.loads(slurm.bench("logs", "get", "--component", "slurm", "--json").stdout)["files"]
    assert {f"jobs/{path.name}" for path in logs} <= {file["path"] for file in packed}


@pytest.mark.parametrize("exclusive", [True, False])
def test_a_contract_sees_what_slurm_gave_the_job(slurm, exclusive):
    contract = template("realism-inference").model_dump(mode="json", by_alias=True, exclude_none=True)
    contract["layers"]["end_to_end"]["suites"] = ["slow"]
    contract["workload"] |= {"model": "m", "datasetRef": "unknown"}
    contract["comparison"] |= {"baseline": {"artifactRef": "a"}, "candidate": {"artifactRef": "b"}}
    contract["provenance"] = {"gitCommit": "unknown", "packageLockDigest": "unknown"}
    contract["executionPolicy"] |= {"multiTenant": False, "exclusiveScheduling": True}
    (slurm.workspace / "contract.yaml").write_text(json.dumps(contract))
    settings = {"exclusive": exclusive}
    scenario = slurm.scenario(
        "slow", repetitions=3, slurm=settings, contract="contract.yaml", workload={"seconds": 0.5}
    )
    done = slurm.bench("run", scenario, "--json", code=None)
    if not exclusive:
        assert done.returncode == 2
        assert "slurm.exclusive is not set, but the contract demands" in done.stdout
        return
    seen = {item["name"]: item for item in json.loads(done.stdout)["contract"]["guarantees"]}
    assert seen["exclusiveScheduling"]["says"].startswith("in 3 trials; Slurm gave the job "), seen
    sql = "SELECT name, count(*) AS n FROM raw_evidence_fact WHERE kind = 'scheduler_event' GROUP BY 1 ORDER BY 1"
    events = json.loads(slurm.bench("query", sql, "--json").stdout)["rows"]
    counts = {row["name"]: row["n"] for row in events}
    counts.pop("job_started", None)  # newer versions of Slurm say when
    assert counts == dict.fromkeys(("submitted", "trial_ended", "trial_started"), 3)
