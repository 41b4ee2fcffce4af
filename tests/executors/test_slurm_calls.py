"""How Slurm's programs are read, and what is made of their refusals; with fake ones that print what real ones do."""

import shutil
from pathlib import Path

import pytest
from laboratory import Lab
from services.slurm_cluster import Cluster, can_be_had

from benchhouse.executors import slurm_calls as calls
from benchhouse.executors.slurm import SlurmExecutor
from benchhouse.executors.slurm_calls import TaskState, UnreachableError
from benchhouse.schema.errors import BenchError
from benchhouse.schema.layout import RunFolder, SubmissionFolder
from benchhouse.schema.protocols import Assignment


@pytest.fixture
def fake_slurm(tmp_path, monkeypatch):
    """`fake_slurm(squeue="text", ...)`: programs that print a text; with a code, to stderr."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")

    def make(code: int = 0, **texts: str) -> None:
        for name, text in texts.items():
            (folder / f"{name}.txt").write_text(text)
            program = folder / name
            program.write_text(f"#!/bin/sh\ncat {folder}/{name}.txt {'>&2' if code else ''}\nexit {code}\n")
            program.chmod(0o755)

    return make


def test_answers_of_squeue(fake_slurm):
    fake_slurm(
        squeue="12_0|RUNNING|None|node01\n"
        "12_1|PENDING|ReqNodeNotAvail, UnavailableNodes:node[01-02]|\n"
        "12_2|NODE_FAIL|NodeDown|gpu[01-02]\n"
        "12_3|PENDING|odd|reason|\n"
    )
    assert calls.states(["bench-x-0001"]) == {
        "12_0": TaskState("RUNNING", "", "node01"),
        "12_1": TaskState("PENDING", "ReqNodeNotAvail, UnavailableNodes:node[01-02]", ""),
        "12_2": TaskState("NODE_FAIL", "NodeDown", "gpu[01-02]"),
        "12_3": TaskState("PENDING", "odd|reason", ""),
    }
    assert calls.find("bench-x-0001") == "12"


def test_answers_of_sacct(fake_slurm):
    """The accounting knows jobs that the controller has forgotten; tasks that never began are one row."""
    cases = {
        "12_0|COMPLETED|0:0|node01\n12_1|CANCELLED by 1000|0:15|node02\n12_2|OUT_OF_MEMORY|0:125|node02\n": {
            "12_0": TaskState("COMPLETED", "", "node01"),
            "12_1": TaskState("CANCELLED", "exit code 0:15", "node02"),
            "12_2": TaskState("OUT_OF_MEMORY", "exit code 0:125", "node02"),
        },
        "12_0|COMPLETED|0:0|node01\n12_[1-2%1]|CANCELLED by 0|0:0|None assigned\n": {
            "12_0": TaskState("COMPLETED", "", "node01"),
            "12_1": TaskState("CANCELLED", "", "None assigned"),
            "12_2": TaskState("CANCELLED", "", "None assigned"),
        },
        "": {},
    }
    for printed, states in cases.items():
        fake_slurm(sacct=printed)
        assert calls.recorded(["12_0", "12_1", "12_2", "13_0"]) == states, printed
    fake_slurm(squeue="", sacct="12_0\n")
    assert calls.find("bench-x-0001") == "12"
    fake_slurm(code=1, sacct="Slurm accounting storage is disabled")
    assert calls.recorded(["12_0"]) == {} and calls.find("bench-x-0001") == ""


def test_answers_of_sbatch(fake_slurm, tmp_path):
    fake_slurm(sbatch="sbatch: a word of the site\n4711;lab\n")
    assert calls.submit(tmp_path / "job.sh") == "4711"
    for message in (
        "slurm_load_jobs error: Unable to contact slurm controller (connect failure)",
        "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation",
        "sbatch: error: Slurm temporarily unable to accept job, sleeping and retrying",
    ):
        fake_slurm(code=1, sbatch=message)
        with pytest.raises(UnreachableError):
            calls.submit(tmp_path / "job.sh")
    hints = {
        "Batch job submission failed: Invalid account or account/partition combination specified": "sinfo",
        "Batch job submission failed: Invalid qos specification": "sacctmgr show assoc",
        "Batch job submission failed: Requested node configuration is not available": "no node has that much",
        "Batch job submission failed: Job violates accounting/QOS policy (job submit limit, ...)": "sacctmgr",
        "Batch job submission failed: Invalid job array specification": "slurm: {pack: N}",
        "fatal: Unable to process configuration file": "set SLURM_CONF",
        "something else": "--dry-run",
    }
    for message, hint in hints.items():
        fake_slurm(code=1, sbatch=f"sbatch: error: {message}\n")
        with pytest.raises(BenchError) as caught:
            calls.submit(tmp_path / "job.sh")
        assert not isinstance(caught.value, UnreachableError)
        assert message in caught.value.message and hint in caught.value.hint, message


def test_the_longest_array_that_scontrol_reports(fake_slurm):
    for printed, longest in {
        "MaxArraySize            = 5001\n": 5001,
        "MaxArraySize = 0\n": 1,
        "X = 3\n": 1001,
    }.items():
        fake_slurm(scontrol=printed)
        assert calls.largest_array() == longest


def test_the_last_words_of_a_task_are_its_own_not_slurms(tmp_path):
    made = SlurmExecutor(Assignment(run=RunFolder(tmp_path)))
    made._names["3"] = "bench-r-0001"
    made.run.job_logs.mkdir()
    begun = SubmissionFolder(made.run.jobs / "0001").begun
    begun.mkdir(parents=True)
    (begun / "0.7").touch()
    slurms = "slurmstepd-node01: error: Detected 1 oom-kill event(s)\nslurmstepd: error: more\nsrun: error: more\n"
    (made.run.job_logs / "bench-r-0001_7.err").write_text(f"no such module\n{slurms}")
    assert made._last_line("3_0") == "no such module"
    assert made._last_line("3_1") == "", "it has not begun"


def test_a_machine_without_slurm_is_reported(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BenchError, match="there is no squeue on this machine"):
        calls.states(["x"])


@pytest.mark.slow("starts a cluster with its database, and waits until the controller has forgotten a job")
@pytest.mark.skipif(
    not can_be_had() or not shutil.which("slurmdbd") or not shutil.which("mariadbd"),
    reason="needs root, slurmdbd and mariadb-server-core",
)
def test_a_job_that_the_controller_has_forgotten_is_found_in_the_real_accounting(lab: Lab):
    """`MinJobAge` is two seconds here: when the run is looked at, only slurmdbd knows that its job was cancelled."""
    cluster = Cluster(Path("/tmp") / f"bench-acct-{lab.root.name[-20:]}")
    cluster.start("--accounting", port=26000)
    try:
        conf = Path(cluster.conf)
        conf.write_text(conf.read_text().replace("MinJobAge=300", "MinJobAge=2"))
        cluster.call("scontrol", "reconfigure")
        lab.variables["SLURM_CONF"] = cluster.conf
        (lab.workspace / "site.yaml").write_text("site: t\nexecutor: slurm\nslurm: {account: lab, partition: all}\n")
        lab.bench("submit", lab.scenario("slow", workload={"seconds": 60}))
        lab.wait_for_mark("slow-*")
        cluster.call("scancel", "--name", f"bench-{lab.run_id()}-0001")
        deadline = 60
        while cluster.call("squeue", "-h", "-t", "all") and deadline:
            cluster.call("sleep", "1")
            deadline -= 1
        lab.bench("collect", "@last")
        (ended,) = [event for event in lab.events() if event["event"] == "ended"]
        assert ended["outcome"] == "cancelled"
        assert "ended as CANCELLED" in ended["reason"]
    finally:
        cluster.stop()
