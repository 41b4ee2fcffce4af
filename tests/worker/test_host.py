"""The warm host: lines of JSON in and out, and nothing is left when its orchestrator or a worker ends."""

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
        self.lab, self.count = lab, 0
        self.process = subprocess.Popen(
            [sys.executable, *(program or ("-m", "benchhouse.worker", "--host"))],
            env=lab.environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def send(self, **message):
        self.process.stdin.write(json.dumps(message) + "\n")
        self.process.stdin.flush()

    def read(self):
        return json.loads(self.process.stdout.readline())

    def run(self, act, worker=None):
        """Run a trial to its end, in this worker if one is given; return its sealed folder."""
        self.count += 1
        sealed = self.trial(act, f"run-{self.count}")
        begun = self.read()
        assert worker in (None, begun["pid"])
        assert self.read() == {"id": f"run-{self.count}", "exit": 0}
        return sealed

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
    assert made.read() == {"ready": made.process.pid}
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


def test_trials_follow_each_other_in_one_worker_of_the_host(host):
    host.send(placed={"executor": host.lab.template["executor"], "node": "n7", "image_id": "sha256:1"})
    sealed = host.trial("ok")
    begun = host.read()
    assert begun["id"] == "a"
    worker = begun["pid"]
    assert children(host.process.pid) == [worker]
    assert host.read() == {"id": "a", "exit": 0}
    assert (sealed / "manifest.json").exists()
    assert not sealed.with_name("a.log").exists(), "a worker that wrote nothing leaves no log"
    placed = json.loads((sealed / "meta.json").read_text())["placed"]
    assert (placed["node"], placed["image_id"]) == ("n7", "sha256:1")

    large, small = (json.loads((host.run(act) / "meta.json").read_text())["usage"] for act in ("eat", "ok"))
    assert small["max_rss_bytes"] < large["max_rss_bytes"] - (50 << 20), "each trial has a usage of its own"
    assert small["cpu_s"] < 5

    before = [len(os.listdir(f"/proc/{pid}/fd")) for pid in (host.process.pid, worker)]
    for _ in range(8):
        host.run("ok", worker)
    assert [len(os.listdir(f"/proc/{pid}/fd")) for pid in (host.process.pid, worker)] == before
    assert children(host.process.pid) == [worker] and children(worker) == []

    host.send(id="x", folder=str(host.lab.root / "nowhere"), log=str(host.lab.root / "x.log"))
    host.read()
    assert host.read() == {"id": "x", "exit": 1}
    assert "FileNotFoundError" in (host.lab.root / "x.log").read_text()

    host.run("ok")
    (worker,) = children(host.process.pid)
    os.kill(worker, signal.SIGKILL)
    wait_until(lambda: children(host.process.pid) == [], "the host to reap it")
    host.run("ok")
    assert children(host.process.pid) != [worker], "another worker is in its place"


def test_a_stopped_trial_and_a_killed_worker_take_their_family_along_and_no_other(host):
    sealed, pids = {}, {}
    for name in "abc":
        sealed[name] = host.trial("stubborn", name)
        pids[name] = host.read()["pid"]
    wait_until(lambda: len(host.lab.left_running()) >= 13, "three families")
    host.send(stop="a")
    assert host.read() == {"id": "a", "exit": 143}
    os.kill(pids["b"], signal.SIGKILL)
    assert host.read() == {"id": "b", "exit": -9}
    left = {int(line.split()[0]) for line in host.lab.left_running()}
    assert pids["c"] in left
    assert len(left) == 5, "the host, the third worker, its experiment and two children"
    assert len(list((host.lab.root / "tmp").iterdir())) == 1
    assert not any(folder.exists() for folder in sealed.values())


@pytest.mark.parametrize("how", ["input ends", "terminated"])
def test_the_host_ends_everything_when_its_orchestrator_ends(host, how):
    host.trial("stubborn")
    host.read()
    wait_until(lambda: len(host.lab.left_running()) >= 5, "a family")
    if how == "terminated":
        host.process.terminate()
    assert host.end() == 0, "within 120 s, and its family sleeps for 300 s"


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


def test_a_worker_that_is_terminated_right_after_sealing_ends_at_once(lab: Lab, template):
    """Until it has come back from sealing, a worker ignores SIGTERM: the host must not count on that alone."""
    lab.template = template | {"cache": str(lab.root / "cache")}
    host = Host(lab, "-c", _SLOW_TO_COME_BACK)
    assert "ready" in host.read()
    host.trial("ok")
    host.read()
    assert host.read() == {"id": "a", "exit": 0}
    began = time.monotonic()
    assert host.end() == 0
    assert time.monotonic() - began < 50, "it waited for its whole grace"
    lab.is_tidy()
