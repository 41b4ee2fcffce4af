"""A sweep on Kubernetes while everything around it breaks: what is lost, corrupt, doubled or left afterwards.

A real cluster of two nodes runs a sweep of short trials, four at a time, on a volume of 300 MB. Meanwhile, at random
moments: a pod is deleted (with its time to end, or by force), a process of a pod is killed, a kubelet, a node with all
that runs on it, the API server (killed, or restarted), the scheduler and the controllers, the orchestrator (which is
started anew); a node is drained, the volume is full for a while, and once the whole namespace is deleted. A daemon that
was killed comes back after a while. When all faults are done, the run is carried to its end. Then every folder is
verified, every trial must have ended exactly once, and nothing of it may be left: no object, process or folder.

    python benchmarks/kubernetes_faults.py [--faults 40] [--trials 400] [--seed 7] [--json]

Exit code 1 when anything is lost, corrupt, doubled, untrue or left.
"""

import argparse
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from kube import NAMESPACE, NODES, Kube, kubernetes

KINDS = (
    "pod_deleted", "pod_forced", "process", "kubelet", "node", "apiserver_killed", "apiserver_restarted", "controllers",
    "scheduler", "orchestrator", "drain", "volume_full",
)  # fmt: skip
OURS = "app.kubernetes.io/managed-by=benchhouse"
BAD = ("corrupt", "lost_finished", "doubled", "untrue", "left_objects", "left_processes", "left_folders")
VOLUME_BYTES = 300_000_000
END_S = 600


class Storm:
    def __init__(self, kube: Kube, trials: int, seed: int) -> None:
        self.kube, self.random = kube, random.Random(seed)
        work = {
            "experiment": "command",
            "target": {"argv": ["sleep", "0.7"]},
            "workload": {"executions": 1, "warmup": 0},
        }
        more = {"repetitions": trials, "parallel": 4, "retries": {"max_retries": 30, "backoff": "1s"}}
        self.path = kube.scenario("storm", work | more)
        self.done: Counter[str] = Counter()
        self.starts = 0
        self.sealed: dict[str, str] = {}  # every sealed trial that was ever seen, with its manifest
        self.orchestrator = self._start("run", self.path)

    def _start(self, *arguments: object) -> "subprocess.Popen[bytes]":
        self.starts += 1
        with (self.kube.folder / "orchestrators.txt").open("ab") as words:
            return subprocess.Popen(
                self.kube.command(*arguments), cwd=self.kube.workspace, env=self.kube.environment,
                stdout=subprocess.DEVNULL, stderr=words,
            )  # fmt: skip

    def look(self) -> None:
        """What is sealed now must be there, unchanged, at the end."""
        for manifest in (self.kube.workspace / "results" / "storm").glob("*/manifest.json"):
            if ".attempt-" not in manifest.parent.name:
                self.sealed.setdefault(manifest.parent.name, manifest.read_text())

    def follow(self) -> None:
        """The cluster's daemons must be at work, and an orchestrator, or the run over."""
        self.kube.supervise()
        if self.orchestrator.poll() is not None and not self.over():
            made = list((self.kube.workspace / ".bench" / "runs").glob("*/run.json"))
            self.orchestrator = self._start("run", *(["--resume", "@last"] if made else [self.path]))

    def events(self) -> list[dict[str, Any]]:
        found = []
        for path in (self.kube.workspace / ".bench" / "runs").glob("*/events.jsonl"):
            for line in path.read_text().splitlines():
                with contextlib.suppress(ValueError):
                    found.append(json.loads(line))
        return found

    def over(self) -> bool:
        return any(event["event"] == "finished" for event in self.events())

    # -- faults ------------------------------------------------------------------------------------------------------

    def strike(self, kind: str) -> None:
        """The API may be away just now, and there may be nothing to break: then it does not count."""
        with contextlib.suppress(LookupError, ProcessLookupError, OSError):
            getattr(self, f"_{kind}")()
            self.done[kind] += 1

    def _running_pod(self) -> str:
        running = [pod for pod in self.kube.get("pods") if pod["status"].get("phase") == "Running"]
        name: str = self.random.choice(running)["metadata"]["name"]
        return name

    def _pod_deleted(self) -> None:
        self.kube.kubectl("delete", "pod", self._running_pod(), "-n", NAMESPACE, "--wait=false")

    def _pod_forced(self) -> None:
        self.kube.kubectl("delete", "pod", self._running_pod(), "-n", NAMESPACE, "--grace-period=0", "--force")

    def _process(self) -> None:
        os.kill(self.random.choice(self.processes()), signal.SIGKILL)

    def _killed(self, daemon: str, number: int = signal.SIGKILL) -> None:
        os.kill(self.kube.daemon_pid(daemon), number)
        time.sleep(self.random.uniform(0.2, 4))
        self.kube.cluster("daemon", daemon)

    def _kubelet(self) -> None:
        self._killed(f"kubelet-{self.random.choice(NODES)}")

    def _apiserver_killed(self) -> None:
        self._killed("apiserver")

    def _apiserver_restarted(self) -> None:
        self._killed("apiserver", signal.SIGTERM)

    def _controllers(self) -> None:
        self._killed("controllers")

    def _scheduler(self) -> None:
        self._killed("scheduler")

    def _node(self) -> None:
        node = self.random.choice(NODES)
        self.kube.cluster("crash", node)
        time.sleep(self.random.uniform(0.2, 4))
        self.kube.cluster("revive", node)

    def _orchestrator(self) -> None:
        self.orchestrator.send_signal(signal.SIGKILL)
        self.orchestrator.wait()
        time.sleep(self.random.uniform(0, 1))

    def _drain(self) -> None:
        node = self.random.choice(NODES)
        self.kube.kubectl("cordon", node)
        try:
            for pod in self.kube.get("pods"):
                if pod["spec"].get("nodeName") == node:
                    self.kube.kubectl("delete", "pod", pod["metadata"]["name"], "-n", NAMESPACE, "--wait=false")
            time.sleep(self.random.uniform(0.5, 3))
        finally:
            self.kube.kubectl("uncordon", node)

    def _volume_full(self) -> None:
        ballast = self.kube.workspace / "ballast"
        try:
            with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as file:
                while True:
                    file.write(bytes(1 << 20))
            time.sleep(self.random.uniform(0.5, 3))
        finally:
            ballast.unlink()

    def _namespace(self) -> None:
        """With all that is in it; then an administrator makes it anew."""
        self.kube.kubectl("delete", "namespace", NAMESPACE, "--wait=false")
        deadline = time.monotonic() + 180
        while self.kube.kubectl("get", "namespace", NAMESPACE, "--ignore-not-found", "-o", "name"):
            if time.monotonic() > deadline:
                raise SystemExit("the namespace does not go")
            time.sleep(1)
        self.kube.kubectl("delete", "persistentvolume", "shared", "--ignore-not-found")
        self.kube.make_namespace()

    def processes(self) -> list[int]:
        """Those of the run's pods: a slot, its worker host, and what that runs."""
        return [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit() and self._is_of_pod(path)]

    def _is_of_pod(self, path: Path) -> bool:
        try:
            in_pod = "/kubepods/" in (path / "cgroup").read_text()
            return in_pod and str(self.kube.workspace).encode() in (path / "cmdline").read_bytes()
        except OSError:
            return False


def judge(storm: Storm, trials: int) -> dict[str, Any]:
    kube = storm.kube
    verified = _bench(kube, "verify", "@last")
    status = json.loads(_bench(kube, "status", "@last", "--json").stdout)
    results = kube.workspace / "results" / "storm"
    lost = [name for name, text in storm.sealed.items() if not _same(results / name / "manifest.json", text)]
    ended = {path.parent.name for path in results.glob("*/manifest.json") if ".attempt-" not in path.parent.name}
    won = Counter(event["trial_id"] for event in storm.events() if event.get("outcome") == "succeeded")
    missing = sum(count for outcome, count in status["outcomes"].items() if outcome in ("cancelled", "lost"))
    partial = results / ".partial"
    return {
        "corrupt": 0 if verified.returncode == 0 else 1,
        "verify_said": (verified.stdout + verified.stderr)[-800:] if verified.returncode else "",
        "lost_finished": len(lost),
        "doubled": sum(count > 1 for count in won.values()),
        "outcomes": status["outcomes"],
        "untrue": abs(sum(status["outcomes"].values()) - trials) + abs(len(ended) + missing - trials),
        "left_objects": len(kube.kubectl("get", "pods,jobs,configmaps", "-A", "-l", OURS, "-o", "name").split()),
        "left_processes": len(storm.processes()),
        "left_folders": len(list(partial.iterdir())) if partial.is_dir() else 0,
        "retries": status["retries"],
        "orchestrators": storm.starts,
    }


def _bench(kube: Kube, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        kube.command(*arguments), cwd=kube.workspace, env=kube.environment, capture_output=True, text=True, check=False
    )


def _same(path: Path, text: str) -> bool:
    return path.is_file() and path.read_text() == text


def rage(kube: Kube, faults: int, trials: int, seed: int) -> dict[str, Any]:
    storm = Storm(kube, trials, seed)
    try:
        return carry_through(storm, faults, trials)
    finally:
        storm.orchestrator.kill()  # has ended by itself, unless something went wrong


def carry_through(storm: Storm, faults: int, trials: int) -> dict[str, Any]:
    while not storm.sealed and storm.orchestrator.poll() is None:
        storm.look()
        time.sleep(0.5)
    coming = [KINDS[number % len(KINDS)] for number in range(faults - 1)]
    storm.random.shuffle(coming)
    coming.insert(len(coming) // 2, "namespace")
    while sum(storm.done.values()) < faults and not storm.over():
        time.sleep(storm.random.uniform(0.5, 6))
        storm.look()
        before = sum(storm.done.values())
        kind = coming[before]
        storm.strike(kind)
        storm.follow()
        print(f"{before:3} {kind}, {len(storm.sealed)} sealed", file=sys.stderr, flush=True)
    deadline = time.monotonic() + END_S
    while not storm.over() and time.monotonic() < deadline:
        storm.look()
        storm.follow()
        time.sleep(1)
    with contextlib.suppress(subprocess.TimeoutExpired):
        storm.orchestrator.wait(timeout=120)
    found = judge(storm, trials)
    deadline = time.monotonic() + 60  # what has been deleted takes a moment to go
    while any(found[name] for name in ("left_objects", "left_processes")) and time.monotonic() < deadline:
        time.sleep(2)
        found = judge(storm, trials)
    return found | {"faults": dict(storm.done)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--faults", type=int, default=40)
    parser.add_argument("--trials", type=int, default=400)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with kubernetes(volume_bytes=VOLUME_BYTES) as kube:
        found = rage(kube, options.faults, options.trials, options.seed)
    passed = not any(found[name] for name in BAD) and sum(found["faults"].values()) >= options.faults
    if options.json:
        print(json.dumps(found | {"passed": passed}))
    else:
        for name, value in found.items():
            print(f"{name:<16} {value}")
        print("passed" if passed else f"MISSED: {', '.join(BAD)} must be 0, after all faults")
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
