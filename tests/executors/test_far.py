"""The piece on a node, and what is refused before a cluster is asked for it; with a host that is faked by a shell."""

import json
import os
import threading
import time

import pytest

from benchhouse.executors import cluster_node, remote_cluster
from benchhouse.executors.cluster_capacity import CapacityWatch, refuse_unless_fits
from benchhouse.executors.cluster_engine import ClusterNode, SlotRequest, carried
from benchhouse.executors.cluster_node import ALIVE, ORDERS, PLACED, REPORTS, Tail, append, keep_slot
from benchhouse.schema.errors import BenchError, Exit
from benchhouse.schema.layout import RunFolder
from benchhouse.schema.protocols import Assignment, Job
from benchhouse.schema.resources import Resources
from benchhouse.worker import batch


def fake_host(tmp_path, script):
    path = tmp_path / "fake-python"
    path.write_text(f"#!/bin/bash\n{script}\n")
    path.chmod(0o755)
    return [str(path)]


@pytest.fixture
def slot(tmp_path):
    folder = tmp_path / "slots" / "one"
    folder.mkdir(parents=True)
    (folder.parent / ALIVE).write_text("1")
    return folder


def reports(slot):
    return Tail(slot / REPORTS).read()


def test_a_slot_carries_orders_and_reports_until_it_is_told_to_end(slot, tmp_path):
    append(slot / ORDERS, {"id": "a", "folder": "f"})
    python = fake_host(tmp_path, 'echo \'{"ready": 1}\'; read line; echo \'{"id": "a", "exit": 0}\'; cat >/dev/null')
    ended = []
    thread = threading.Thread(
        target=lambda: ended.append(keep_slot(str(slot), python, {}, {"executor": "x", "node": "n7"}))
    )
    thread.start()
    deadline = time.monotonic() + 120
    while {"id": "a", "exit": 0} not in reports(slot):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    append(slot / ORDERS, {"end": "enough"})
    thread.join(120)
    assert ended == ["enough"]
    assert reports(slot)[0] == {"placed": {"node": "n7", "executor": "x"}}
    assert reports(slot)[-1] == {"ended": "enough"}


def test_a_slot_ends_by_itself_when_its_orchestrator_is_silent(slot, tmp_path, monkeypatch):
    monkeypatch.setattr(cluster_node, "_BEAT_S", 0.05)
    python = fake_host(tmp_path, "cat >/dev/null")
    assert "has not been heard of for 0.2 s" in keep_slot(str(slot), python, {}, {}, patience_s=0.2)


def test_a_host_that_dies_is_told_with_its_last_words(slot, tmp_path):
    python = fake_host(tmp_path, "echo 'No module named benchhouse' >&2; exit 3")
    assert keep_slot(str(slot), python, {}, {}) == "the worker host ended with code 3: No module named benchhouse"


def test_a_node_without_the_shared_folder_or_the_python_says_so(slot, tmp_path):
    assert "file system that all nodes share" in keep_slot(str(tmp_path / "none"), ["python"], {}, {"node": "n1"})
    assert "there is no /no/python on n1" in keep_slot(str(slot), ["/no/python"], {}, {"node": "n1"})


def test_a_line_that_is_being_written_waits_for_its_end(tmp_path):
    tail = Tail(tmp_path / "lines")
    assert tail.read() == []
    with (tmp_path / "lines").open("ab", buffering=0) as file:
        file.write(b'{"a": 1}\n{"b"')
        assert tail.read() == [{"a": 1}]
        file.write(b": 2}\n")
    assert tail.read() == [{"b": 2}]
    assert tail.read() == []


def test_hosts_have_the_orchestrators_variables_but_the_nodes_own_devices(slot, tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    sent = carried({"MODEL": "m", "CUDA_VISIBLE_DEVICES": "0", "RAY_ADDRESS": "x", "TMPDIR": "/not/here"})
    assert sent == {"MODEL": "m", "TMPDIR": "/not/here"}
    python = fake_host(tmp_path, f'echo "$MODEL $CUDA_VISIBLE_DEVICES ${{TMPDIR}} ${PLACED}" > {tmp_path}/seen')
    keep_slot(str(slot), python, sent, {"executor": "x", "node": "n1"})
    seen = (tmp_path / "seen").read_text()
    assert seen.startswith("m 3 ")
    assert "/not/here" not in seen
    assert json.loads(seen[seen.index("{") :]) == {"node": "n1", "executor": "x"}


def test_node_and_worker_mean_the_same_variable(monkeypatch):
    assert batch.PLACED == PLACED
    monkeypatch.setenv(PLACED, json.dumps({"executor": "ray", "node": "n1", "id": "7"}))
    assert batch.placed("ray", "host") == {"executor": "ray", "node": "n1", "id": "7"}
    assert batch.placed("local", "host") == {"executor": "local", "node": "host"}  # a run inside of a trial
    monkeypatch.setenv(PLACED, "{torn")
    assert batch.placed("ray", "host")["node"] == os.environ.get("SLURMD_NODENAME", "host")


NODES = [
    ClusterNode(name="big", cpus=64, memory=10**12),
    ClusterNode(name="gpu", cpus=8, gpus=4, memory=10**11, custom={"TPU": 2}),
]


def test_a_request_that_no_single_node_can_satisfy_is_refused_with_what_the_nodes_have():
    wrong = [
        ({"cpus": 65}, "65 cores"),
        ({"gpus": 8}, "8 GPUs"),
        ({"memory": 2 * 10**12}, "of memory"),
        ({"custom": {"TPU": 4}}, "4 TPU"),
        ({"custom": {"none": 1}}, "1 none"),
        ({"cpus": 16, "gpus": 1}, "nodes: big has 64 cores, 0 GPUs"),  # each is available, but not on one node
    ]
    for ask, words in wrong:
        with pytest.raises(BenchError) as found:
            refuse_unless_fits("Ray", SlotRequest(**ask), NODES)
        assert words in found.value.message
        assert "gpu has 8 cores, 4 GPUs" in found.value.message


def test_what_one_node_has_is_accepted():
    refuse_unless_fits("Ray", SlotRequest(cpus=8, gpus=4, memory=10**11, custom={"TPU": 2}), NODES)


def test_a_cluster_without_a_node_is_waited_for_in_bounded_time_and_told_once():
    said: list[str] = []
    vacancy = CapacityWatch("Dask", 3600.0, said.append)
    assert vacancy.look(SlotRequest(), []) == vacancy.look(SlotRequest(), []) == ""
    assert len(said) == 1 and "no node is left in the Dask cluster: waiting 1 h" in said[0]
    assert vacancy.look(SlotRequest(), NODES) == ""  # they came back, and the time begins anew
    assert len(said) == 2 and "there again" in said[1]
    vacancy.patience_s = -1.0
    assert "none came within" in vacancy.look(SlotRequest(cpus=65), NODES)
    assert "no node that is left can hold a trial" in said[2]


@pytest.mark.parametrize("kind", ["ray", "dask", "spark"])
def test_a_cluster_whose_library_is_not_installed_is_refused_before_there_is_a_run(kind, bench, tmp_path, monkeypatch):
    monkeypatch.setattr(remote_cluster, "find_spec", lambda name: None)
    (tmp_path / "s.yaml").write_text("scenario: s\nexperiment: command\ntarget: {shell: 'true'}\n")
    done = bench("run", "s.yaml", "--executor", kind, cwd=tmp_path)
    assert done.code == 2
    assert f"pip install 'benchhouse[{kind}]'" in done.err or "Java" in done.err
    assert not (tmp_path / ".bench" / "runs").exists()


def test_an_executor_that_was_mistyped_on_the_command_line_is_not_blamed_on_the_file(bench, tmp_path):
    (tmp_path / "s.yaml").write_text("scenario: s\nexperiment: command\ntarget: {shell: 'true'}\nexecutor: ray\n")
    done = bench("run", "s.yaml", "--executor", "rya", cwd=tmp_path)
    assert done.code == 2
    assert "--executor rya: no executor named 'rya'" in done.err and "did you mean 'ray'" in done.err
    assert "s.yaml:" not in done.err


FAKE_ENGINE = """
import json, sys
for line in sys.stdin:
    order = json.loads(line)
    if "open" in order:
        print(json.dumps({"nodes": [{"name": "n1", "cpus": 2}]}), flush=True)
    elif "start" in order:
        print(json.dumps({"gone": order["start"]["name"], "reason": "its worker has left"}), flush=True)
    elif "nodes" in order:
        print(json.dumps({"lost": "its scheduler no longer answers"}), flush=True)
        break
"""


def test_a_cluster_that_is_lost_just_after_its_last_slot_is_told_as_gone(tmp_path, monkeypatch):
    (tmp_path / "fake_engine.py").write_text(FAKE_ENGINE)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    class Executor(remote_cluster.ClusterExecutor):
        title, engine, library = "Fake", "fake_engine", "json"

        def settings(self):
            return {}

    executor = Executor(Assignment(run=RunFolder(tmp_path / "run")), "fake://1", None)
    executor.submit([Job("1", tmp_path, ("python",), Resources(), tmp_path / "log")])
    with pytest.raises(BenchError) as caught:
        executor.poll(["1"], 60)
    executor.close()
    assert caught.value.message == "the Fake cluster (fake://1) is gone: its scheduler no longer answers"
    assert caught.value.hint.endswith("bench run --resume run --executor local")
    assert caught.value.exit_code == Exit.TRIAL_FAILED
