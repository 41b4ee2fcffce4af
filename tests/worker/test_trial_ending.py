"""How a trial ended is told by what its process did and said; what it said is read without its secrets."""

import json
import signal
from pathlib import Path
from types import SimpleNamespace

import pytest
from tables import check_rows

from benchhouse.processes import tree
from benchhouse.schema.service import SECRET, Address, Addresses, ServiceFolder
from benchhouse.schema.trial import Failure
from benchhouse.worker import supervise
from benchhouse.worker.experiment import ExperimentEnd
from benchhouse.worker.results import Handover
from benchhouse.worker.shared_process import Done

OWN = Failure(code="busy", message="away", retryable=True)
CRASH = Failure(code="ValueError", message="wrong", traceback="line 1")
INVALID = Failure(code="load", message="not as asked")


def judge(ended=None, *, memory=None, **handover):
    limits = SimpleNamespace(wall=1.5, cpu=None if ended and ended.signal else 2.5, memory=memory)
    return supervise._judge(ended or ExperimentEnd(0), Handover(**handover), SimpleNamespace(limits=limits))


@pytest.fixture(autouse=True)
def _no_batch_job(monkeypatch):
    for name in ("SLURM_JOB_ID", "SLURM_ARRAY_JOB_ID"):
        monkeypatch.delenv(name, raising=False)


def test_every_ending_has_one_name():
    rows = [
        (ExperimentEnd(9, "wall"), {"finished": True}, "timeout", "wall_limit", "ended after 1.5 s of wall-clock time"),
        (ExperimentEnd(9, "job"), {}, "timeout", "job_time", "the time of its batch job was nearly over"),
        (ExperimentEnd(9, "cpu"), {}, "timeout", "cpu_limit", "ended after 0 s of CPU time"),
        (ExperimentEnd(0, "cpu"), {}, "timeout", "cpu_limit", "ended after 2.5 s of CPU time"),
        (ExperimentEnd(signal.SIGXCPU), {}, "timeout", "cpu_limit", "ended after 0 s of CPU time"),
        (ExperimentEnd(9, oom_kills=1), {}, "out_of_memory", "memory_limit", "the machine has no more memory"),
        (ExperimentEnd(0), {"out_of_memory": True}, "out_of_memory", "memory_limit", "the machine has no more memory"),
        (ExperimentEnd(0), {"failure": OWN, "finished": True}, "failed", "busy", "away"),
        (ExperimentEnd(0), {"failure": CRASH}, "error", "ValueError", "wrong"),
        (ExperimentEnd(0), {"finished": True, "invalid": INVALID}, "invalid", "load", "not as asked"),
        (ExperimentEnd(9), {}, "error", "SIGKILL", "the experiment's process was killed by SIGKILL"),
        (ExperimentEnd(11), {}, "error", "SIGSEGV", "the experiment's process was killed by SIGSEGV"),
        (ExperimentEnd(3 << 8), {}, "error", "exit", "the experiment's process exited with code 3 and no result"),
    ]

    def check(ended, handover, outcome, code, message):
        found, failure = judge(ended, **handover)
        assert (found, failure.code, failure.message) == (outcome, code, message)
        assert failure.retryable is (code in ("SIGKILL", "busy")), (
            "only what the machine or the experiment says is worth it"
        )

    check_rows(check, rows)


def test_what_finished_and_holds_has_succeeded():
    assert judge(finished=True) == ("succeeded", None)
    assert judge(ExperimentEnd(9), finished=True) == ("succeeded", None), "it had handed over before it was killed"


def test_who_lacks_memory_is_told(monkeypatch):
    assert judge(ExperimentEnd(9, oom_kills=1), memory=5)[1].message == "the limit is 5 bytes"
    assert judge(ExperimentEnd(9, oom_kills=1), failure=CRASH)[1].traceback == "line 1"
    assert judge(ExperimentEnd(9, oom_kills=1))[1].traceback == ""
    assert judge(ExperimentEnd(0, oom_kills=2), finished=True, oom_kills_overcome=2) == ("succeeded", None)
    assert judge(ExperimentEnd(0, oom_kills=2), finished=True, oom_kills_overcome=1)[0] == "out_of_memory"
    assert judge(ExperimentEnd(0, oom_kills=1), failure=OWN, memory=5)[1].message == "the limit is 5 bytes; away"
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    assert judge(ExperimentEnd(9, oom_kills=1))[1].message.startswith("its batch job, or the node, has no more memory")


def test_secrets_are_taken_out_of_every_text_that_is_handed_over(tmp_path):
    said = {"finished": True, "custom": {"key hunter2": ["hunter2", {"a": "x hunter2"}, 3, None, True]}}
    (tmp_path / "result").write_text(json.dumps(said))
    handover = supervise._handover(tmp_path / "result", lambda text: text.replace("hunter2", "*"))
    assert handover.finished
    assert handover.custom == {"key *": ["*", {"a": "x *"}, 3, None, True]}


@pytest.mark.parametrize("content", [None, "", "{", "[]", '{"finished": "perhaps"}'])
def test_what_is_no_result_is_none(tmp_path, content):
    if content is not None:
        (tmp_path / "result").write_text(content)
    assert supervise._handover(tmp_path / "result", str) == Handover()


CGROUP = {"cpu_s": 1.0, "peak_memory_bytes": 50, "throttled_s": 0.5, "oom_kills": 2}


@pytest.mark.parametrize(
    ("cage", "done", "cpu_s", "peak", "largest", "source"),
    [
        (CGROUP, None, 1.0, 50, 30, "cgroup (memory includes page cache)"),
        (CGROUP | {"peak_memory_bytes": 0}, None, 1.0, 0, 30, "cgroup (memory includes page cache)"),
        ({}, None, 6.0, 30, 30, "rusage (largest process)"),
        (CGROUP, Done(9.0, 40), 1.0, 40, 40, "cgroup since the trial began (memory: largest process)"),
        ({}, Done(9.0, 20), 9.0, 30, 30, "rusage since the trial began (memory: largest process)"),
    ],
)
def test_what_was_used_is_told_by_the_cgroup_else_by_the_processes(
    monkeypatch, cage, done, cpu_s, peak, largest, source
):
    usage = {"cpu_user_s": 4.0, "cpu_system_s": 2.0, "max_rss_bytes": 30}
    monkeypatch.setattr(tree, "tree_usage", lambda: usage)
    assert supervise._usage(SimpleNamespace(usage=lambda: cage), done) == {
        "cpu_s": cpu_s, "peak_memory_bytes": peak, "max_rss_bytes": largest, "throttled_s": cage.get("throttled_s"),
        "oom_kills": cage.get("oom_kills"), "source": source,
    }  # fmt: skip


def service(folder, recipe=True):
    ready = SimpleNamespace(timeout=5.0)
    folders = [ServiceFolder(Path(folder))] if folder else []
    return SimpleNamespace(folders=folders, recipe=SimpleNamespace(ready=ready) if recipe else None)


def test_secrets_of_attached_servers_are_known_before_a_word_is_written(tmp_path):
    servers = [Address(name=name, endpoint="e", places=places) for name, places in (("a", {"secret": "s1"}), ("b", {}))]
    (tmp_path / "endpoints.json").write_text(Addresses(servers=servers).model_dump_json())
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "endpoints.json").write_text("{")
    services = {"x": service(None), "y": service(tmp_path), "z": service(tmp_path / "broken"), "n": service("/nowhere")}
    assert supervise._attached_secrets(SimpleNamespace(services=services)) == {
        f"{SECRET}_0_SECRET": "s1",
        f"{SECRET}_1_SECRET": "",
    }


def test_a_server_that_is_starting_is_waited_for_as_long_as_it_may_take(tmp_path, monkeypatch):
    """By a clock that goes as fast as it is slept."""
    clock = [0.0]
    monkeypatch.setattr(supervise.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(supervise.time, "sleep", lambda seconds: clock.__setitem__(0, clock[0] + seconds))

    def waited(phase, ended="", **more):
        clock[0] = 0.0
        state = phase and SimpleNamespace(phase=phase)
        monkeypatch.setattr(supervise, "read_state", lambda folder: state)
        monkeypatch.setattr(supervise, "end_of", lambda name, folder: ended)
        supervise._wait_for_attached(SimpleNamespace(services={"a": service(**{"folder": tmp_path, **more})}))
        return clock[0]

    assert waited("starting") == pytest.approx(125.0, abs=0.3)
    assert waited("ready") == waited(None) == waited("starting", ended="it died") == 0.0
    assert waited("starting", recipe=False) == waited("starting", folder=None) == 0.0
