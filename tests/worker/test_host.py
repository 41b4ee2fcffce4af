"""The warm host: lines of JSON in and out, and nothing left when its orchestrator or a worker goes."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest
from laboratory import Lab, children, wait_until


class Host:
    """A host driven by hand, as the executor does."""

    def __init__(self, lab, *program):
        self.lab = lab
        self.process = subprocess.Popen(
            [sys.executable, *(program or ("-m", "benchhouse.worker", "--host"))],
            env=lab.environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def send(self, **message):
        self.process.stdin.write(json.dumps(message) + "\n")
        self.process.stdin.flush()

    def hear(self):
        return json.loads(self.process.stdout.readline())

    def trial(self, act, name="a"):
        """Start one trial; its folder is made from the template's trial.json."""
        folder = self.lab.root / "jobs" / name
        folder.mkdir(parents=True)
        spec = self.lab.template | {"final": str(folder.with_name(f"{name}-sealed"))}
        spec["parameters"] = {"act": act, "n": 0}
        (folder / "trial.json").write_text(json.dumps(spec))
        self.send(id=name, folder=str(folder), log=str(folder.with_name(f"{name}.log")))
        return folder.with_name(f"{name}-sealed")

    def end(self):
        self.process.stdin.close()
        code = self.process.wait(120)
        self.process.stdout.close()
        return code


@pytest.fixture
def host(lab: Lab, template):
    lab.template = template | {"cache": str(lab.root / "cache")}
    made = Host(lab)
    assert made.hear() == {"ready": made.process.pid}
    yield made
    if made.process.poll() is None:
        made.end()
    lab.is_tidy()


def test_an_experiment_of_ours_is_imported_by_the_host_not_by_each_trial(lab):
    """With PYTHONPROFILEIMPORTTIME a process names on stderr what it imports; a trial's stderr is in its logs."""
    lab.variables["PYTHONPROFILEIMPORTTIME"] = "1"
    scenario = lab.scenario("command", target={"argv": ["true"]}, workload={"executions": 1, "warmup": 0})
    lab.bench("run", scenario)
    (trial,) = lab.trials()
    imports = trial.folder / "logs" / "stderr.log"
    assert trial.outcome == "succeeded"
    assert not imports.exists() or "benchhouse." not in imports.read_text()


def test_a_trial_is_told_with_its_pid_and_its_end(host):
    sealed = host.trial("ok")
    begun = host.hear()
    assert begun["id"] == "a"
    assert begun["pid"] in (children(host.process.pid) or [begun["pid"]])
    assert host.hear() == {"id": "a", "exit": 0}
    assert (sealed / "manifest.json").exists()
    assert not sealed.with_name("a.log").exists(), "a worker that has nothing to say leaves no log"


def test_what_is_told_of_its_place_before_the_first_trial_is_evidence(host):
    host.send(placed={"executor": host.lab.template["executor"], "node": "n7", "image_id": "sha256:1"})
    sealed = host.trial("ok")
    assert host.hear()["id"] == "a" and host.hear() == {"id": "a", "exit": 0}
    placed = json.loads((sealed / "meta.json").read_text())["placed"]
    assert (placed["node"], placed["image_id"]) == ("n7", "sha256:1")


def test_a_worker_that_can_not_begin_says_why_in_its_log(host):
    host.send(id="x", folder=str(host.lab.root / "nowhere"), log=str(host.lab.root / "x.log"))
    host.hear()
    assert host.hear() == {"id": "x", "exit": 1}
    assert "FileNotFoundError" in (host.lab.root / "x.log").read_text()


def test_a_stopped_trial_leaves_nothing_and_its_neighbour_goes_on(host):
    host.trial("stubborn", "a")
    neighbour = host.trial("stubborn", "b")
    host.hear()
    host.hear()
    wait_until(lambda: len(host.lab.left_running()) >= 9, "two families")
    host.send(stop="a")
    assert host.hear() == {"id": "a", "exit": 143}
    assert len(host.lab.left_running()) >= 5
    assert not neighbour.exists()


def test_a_killed_worker_takes_its_family_along_and_no_one_else(host):
    host.trial("stubborn", "a")
    first = host.hear()["pid"]
    host.trial("stubborn", "b")
    second = host.hear()["pid"]
    wait_until(lambda: len(host.lab.left_running()) >= 9, "two families")
    os.kill(first, signal.SIGKILL)
    assert host.hear() == {"id": "a", "exit": -9}
    left = {int(line.split()[0]) for line in host.lab.left_running()}
    assert second in left
    assert len(left) == 5, "the host, the second worker, its experiment and two children"
    assert len(list((host.lab.root / "tmp").iterdir())) == 1


@pytest.mark.parametrize("how", ["input ends", "terminated"])
def test_the_host_ends_everything_when_its_orchestrator_goes(host, how):
    host.trial("stubborn")
    host.hear()
    wait_until(lambda: len(host.lab.left_running()) >= 5, "a family")
    began = time.monotonic()
    if how == "terminated":
        host.process.terminate()
    assert host.end() == 0
    assert time.monotonic() - began < 100  # its family sleeps for 300 s


def test_many_trials_leave_no_descriptor_and_no_zombie(host):
    pids = set()
    for number in range(10):
        host.trial("ok", str(number))
        pids.add(host.hear()["pid"])
        assert host.hear() == {"id": str(number), "exit": 0}
        if number == 1:
            (worker,) = pids
            before = [len(os.listdir(f"/proc/{pid}/fd")) for pid in (host.process.pid, worker)]
    assert pids == {worker}, "one after the other, trials share a worker"
    assert [len(os.listdir(f"/proc/{pid}/fd")) for pid in (host.process.pid, worker)] == before
    assert children(host.process.pid) == [worker]
    assert children(worker) == []


def test_a_worker_that_was_killed_between_trials_is_replaced(host):
    host.trial("ok", "a")
    first = host.hear()["pid"]
    host.hear()
    os.kill(first, signal.SIGKILL)
    wait_until(lambda: children(host.process.pid) == [], "it is reaped")
    sealed = host.trial("ok", "b")
    assert host.hear()["pid"] != first
    assert host.hear() == {"id": "b", "exit": 0}
    assert (sealed / "manifest.json").exists()


def test_the_usage_of_a_trial_is_not_that_of_the_one_before(host):
    host.trial("eat", "a")
    first = host.hear()["pid"]
    assert host.hear()["exit"] == 0
    sealed = host.trial("ok", "b")
    assert host.hear()["pid"] == first
    host.hear()
    big, small = (json.loads((sealed.with_name(f"{name}-sealed") / "meta.json").read_text())["usage"] for name in "ab")
    assert small["max_rss_bytes"] < big["max_rss_bytes"] - (50 << 20)
    assert small["cpu_s"] < 5


_SLOW_TO_COME_BACK = """
import socket, sys, time
from benchhouse.worker import host, pool

class Preempted(socket.socket):
    def send(self, data, *rest):
        sent = super().send(data, *rest)
        if data == pool._SEALED:
            time.sleep(1.0)  # as where the scheduler takes the core away from a worker that has just woken its host
        return sent

made = socket.socketpair

def socketpair(*kind):
    return tuple(Preempted(fileno=each.detach()) for each in made(*kind))

socket.socketpair = socketpair
host._GRACE_S = 100.0
sys.exit(host.serve())
"""


def test_a_worker_that_is_told_to_end_right_after_sealing_ends_at_once(lab: Lab, template):
    """Until it has come back from sealing, a worker ignores SIGTERM: the host must not count on that alone."""
    lab.template = template | {"cache": str(lab.root / "cache")}
    host = Host(lab, "-c", _SLOW_TO_COME_BACK)
    assert "ready" in host.hear()
    host.trial("ok")
    host.hear()
    assert host.hear() == {"id": "a", "exit": 0}
    began = time.monotonic()
    assert host.end() == 0
    assert time.monotonic() - began < 50, "it waited for its whole grace"
    lab.is_tidy()
