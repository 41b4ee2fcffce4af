"""A sweep on Slurm while everything around it breaks: what is lost, corrupt or untrue afterwards.

A cluster of four virtual nodes runs a sweep of short trials in many small tasks. Meanwhile, at random moments: scancel
of a task, kill -9 of a task's worker, of a slurmd with its jobs (the node comes back after a while), of the
orchestrator (which is started anew), of slurmctld (which then remembers an older state), a node set down and up again.
When all faults are done, the run is carried to its end. Then every folder is verified, every trial must have ended
exactly once, in a state that its evidence or Slurm bears out, and nothing of it may run any more.

    python benchmarks/slurm_faults.py [--faults 50] [--trials 240] [--seed 7] [--json]

Exit code 1 when anything is corrupt, lost, untrue or left.
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

from cluster import Cluster, cluster

NODES = ("node01", "node02", "gpu01", "gpu02")


class Storm:
    def __init__(self, slurm: Cluster, trials: int, seed: int) -> None:
        self.slurm, self.random = slurm, random.Random(seed)
        work = {
            "experiment": "command",
            "target": {"argv": ["sleep", "0.7"]},
            "workload": {"executions": 1, "warmup": 0},
        }
        more = {"repetitions": trials, "slurm": {"pack": 2}, "retries": {"max_retries": 30, "backoff": "1s"}}
        self.path = slurm.scenario("storm", work | more)
        self.done: Counter[str] = Counter()
        self.sealed: dict[str, str] = {}  # every sealed trial that was ever seen, with its manifest
        self.orchestrator = self._start("run", self.path)

    def _start(self, *arguments: object) -> "subprocess.Popen[bytes]":
        command = [sys.executable, "-m", "benchhouse", *map(str, arguments)]
        return subprocess.Popen(
            command, cwd=self.slurm.workspace, env=self.slurm.environment, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )  # fmt: skip

    def look(self) -> None:
        """What is sealed now must be there, unchanged, at the end."""
        for manifest in (self.slurm.workspace / "results" / "storm").glob("*/manifest.json"):
            if ".attempt-" not in manifest.parent.name:
                self.sealed.setdefault(manifest.parent.name, manifest.read_text())

    def follow(self) -> None:
        """An orchestrator must be at work, or the run over."""
        if self.orchestrator.poll() is not None and not self.over():
            self.orchestrator = self._start("run", "--resume", "@last")

    def over(self) -> bool:
        events = list((self.slurm.workspace / ".bench" / "runs").glob("*/events.jsonl"))
        return bool(events) and '"event":"finished"' in events[0].read_text()

    def strike(self) -> None:
        kind = self.random.choice(("scancel", "worker", "slurmd", "orchestrator", "slurmctld", "node_down"))
        with contextlib.suppress(LookupError, ProcessLookupError, OSError):
            getattr(self, f"_{kind}")()
            self.done[kind] += 1

    def _scancel(self) -> None:
        tasks = [line for line in self._call("squeue", "-h", "-r", "-t", "R", "-o", "%i").splitlines() if line]
        self._call("scancel", self.random.choice(tasks))

    def _worker(self) -> None:
        os.kill(self.random.choice(self.workers()), signal.SIGKILL)

    def _slurmd(self) -> None:
        """The daemon and all that runs below it, as when the power goes."""
        node = self.random.choice(NODES)
        pid = int((self.slurm.folder / "run" / f"slurmd.{node}.pid").read_text())
        for other in self.workers():
            if f"SLURMD_NODENAME={node}".encode() in Path(f"/proc/{other}/environ").read_bytes():
                os.kill(other, signal.SIGKILL)
        os.kill(pid, signal.SIGKILL)
        time.sleep(self.random.uniform(0.2, 2))
        self.slurm.bring_back(node)

    def _orchestrator(self) -> None:
        self.orchestrator.send_signal(signal.SIGKILL)
        self.orchestrator.wait()
        time.sleep(self.random.uniform(0, 1))

    def _slurmctld(self) -> None:
        os.kill(int((self.slurm.folder / "run" / "slurmctld.pid").read_text()), signal.SIGKILL)
        time.sleep(self.random.uniform(0.2, 3))
        subprocess.run(["setsid", "slurmctld"], env=self.slurm.environment, check=True, capture_output=True)

    def _node_down(self) -> None:
        node = self.random.choice(NODES)
        self._call("scontrol", "update", f"NodeName={node}", "State=DOWN", "Reason=storm")
        time.sleep(self.random.uniform(0.2, 1))
        self._call("scontrol", "update", f"NodeName={node}", "State=RESUME")

    def workers(self) -> list[int]:
        """Tasks of ours, and the trials forked from them."""
        found, ours = [], str(self.slurm.workspace).encode()
        for path in Path("/proc").iterdir():
            with contextlib.suppress(OSError, ValueError, IndexError):
                pid, words = int(path.name), (path / "cmdline").read_bytes().split(b"\0")
                if b"--task" in words and words[-2].startswith(ours):
                    found.append(pid)
        return found

    def _call(self, *command: str) -> str:
        """Slurm may be away just now."""
        done = subprocess.run(
            command, env=self.slurm.environment, capture_output=True, text=True, timeout=30, check=False
        )
        if done.returncode:
            raise OSError(done.stderr)
        return done.stdout


def judge(storm: Storm, trials: int) -> dict[str, Any]:
    slurm = storm.slurm
    verified = subprocess.run(
        [sys.executable, "-m", "benchhouse", "verify", "@last"], cwd=slurm.workspace, env=slurm.environment,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    status = json.loads(
        subprocess.run(
            [sys.executable, "-m", "benchhouse", "status", "@last", "--json"], cwd=slurm.workspace,
            env=slurm.environment, capture_output=True, text=True, check=False,
        ).stdout
    )  # fmt: skip
    results = slurm.workspace / "results" / "storm"
    lost = [name for name, text in storm.sealed.items() if not _same(results / name / "manifest.json", text)]
    ended = {path.parent.name for path in results.glob("*/manifest.json") if ".attempt-" not in path.parent.name}
    cancelled = status["outcomes"].get("cancelled", 0)
    partial = results / ".partial"
    return {
        "corrupt": 0 if verified.returncode == 0 else 1,
        "verify_said": verified.stderr[-500:] if verified.returncode else "",
        "lost_finished": len(lost),
        "outcomes": status["outcomes"],
        "untrue": abs(sum(status["outcomes"].values()) - trials) + abs(len(ended) + cancelled - trials),
        "left_jobs": len(slurm.call("squeue", "-h", "-o", "%i").split()),
        "left_processes": len(storm.workers()),
        "left_folders": len(list(partial.iterdir())) if partial.is_dir() else 0,
        "retries": status["retries"],
    }


def _same(path: Path, text: str) -> bool:
    return path.is_file() and path.read_text() == text


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--faults", type=int, default=50)
    parser.add_argument("--trials", type=int, default=240)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with cluster() as slurm:
        (slurm.workspace / "site.yaml").write_text(
            "site: lab\nexecutor: slurm\nslurm: {partition: all, poll: 2s, throttle: 6}\n"
        )
        storm = Storm(slurm, options.trials, options.seed)
        while sum(storm.done.values()) < options.faults and not storm.over():
            time.sleep(storm.random.uniform(0.1, 1.5))
            storm.look()
            storm.strike()
            storm.follow()
            if sys.stderr.isatty():
                print(f"\r{dict(storm.done)}, {len(storm.sealed)} sealed ", end="", file=sys.stderr, flush=True)
        deadline = time.monotonic() + 400
        while not storm.over() and time.monotonic() < deadline:
            storm.look()
            storm.follow()
            time.sleep(1)
        storm.orchestrator.wait(timeout=60)
        found = judge(storm, options.trials)
    found["faults"] = dict(storm.done)
    bad = ("corrupt", "lost_finished", "untrue", "left_jobs", "left_processes", "left_folders")
    passed = not any(found[name] for name in bad) and sum(storm.done.values()) >= options.faults
    if options.json:
        print(json.dumps(found | {"passed": passed}))
    else:
        for name, value in found.items():
            print(f"{name:<16} {value}")
        print("passed" if passed else "MISSED: all of these must be 0, after all faults")
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
