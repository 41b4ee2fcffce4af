"""A sweep on Kubernetes beside a hand-written Job whose pods loop over a list, on a real cluster of two nodes.

200 trials that sleep for a second, four at a time. By hand: one Job of four pods, each of which takes the next of the
list, runs `sleep 1` and writes a file; from `kubectl create` to the last file. Ours: `bench run`, from start to exit,
with evidence sealed and collected. Rounds alternate, after one short sweep that brings the code to the volume.

The orchestrator's own CPU seconds are compared with those of the same sweep by --executor local; each round has one.
Requests are counted by the API server (its audit log), for a tenth of --many short trials and for all of them.

    python benchmarks/kubernetes_sweep.py [--rounds 3] [--trials 200] [--many 1000] [--json]

Exit code 1 when ours takes more than 1.15 times as long (median of the rounds' ratios), more than 0.5 CPU seconds
beyond local (median), more than 3 requests a second, or when ten times the trials take over ten requests more.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kube import IMAGE, NAMESPACE, Kube, kubernetes

SLOTS = 4
MOST_RATIO, MOST_CPU_S, MOST_REQUESTS_S, MOST_MORE = 1.15, 0.5, 3.0, 10
LOOP = """
import pathlib, subprocess, sys
folder = pathlib.Path(sys.argv[1])
for number in range(int(sys.argv[2])):
    try:
        (folder / f"{number}.claim").open("x").close()
    except FileExistsError:
        continue
    subprocess.run(["sleep", "1"], check=True)
    (folder / f"{number}.done").touch()
"""


@dataclass(frozen=True)
class Cost:
    """Of one `bench run`."""

    wall_s: float
    cpu_s: float  # of the orchestrator's process alone
    requests: int


def by_hand(kube: Kube, number: int, trials: int) -> float:
    folder = kube.workspace / f"hand-{number}"
    folder.mkdir()
    container = {
        "name": "loop",
        "image": IMAGE,
        "command": ["python3", "-c", LOOP, str(folder), str(trials)],
        "volumeMounts": [{"name": "shared", "mountPath": str(kube.workspace)}],
    }
    pod = {
        "restartPolicy": "Never",
        "containers": [container],
        "volumes": [{"name": "shared", "persistentVolumeClaim": {"claimName": "shared"}}],
    }
    spec = {"completions": SLOTS, "parallelism": SLOTS, "backoffLimit": 0, "template": {"spec": pod}}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": f"hand-{number}"}, "spec": spec}
    began = time.monotonic()
    kube.kubectl("create", "-n", NAMESPACE, "-f", "-", document=job)
    while len(list(folder.glob("*.done"))) < trials:
        time.sleep(0.05)
    return time.monotonic() - began


def ours(kube: Kube, trials: int, *more: str, seconds: float = 1.0) -> Cost:
    work = {
        "experiment": "command",
        "target": {"argv": ["sleep", str(seconds)]},
        "workload": {"executions": 1, "warmup": 0},
    }
    path = kube.scenario("sweep", work | {"repetitions": trials, "parallel": SLOTS})
    asked, began = kube.count_requests(), time.monotonic()
    with (kube.workspace / "out.json").open("wb") as out, (kube.workspace / "err.txt").open("wb") as err:
        process = subprocess.Popen(
            kube.command("run", path, "--json", *more), cwd=kube.workspace, env=kube.environment, stdout=out, stderr=err
        )
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # its times can be read until it is waited for
    wall_s = time.monotonic() - began
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    text = (kube.workspace / "out.json").read_text()
    if process.wait() or json.loads(text)["outcomes"] != {"succeeded": trials}:
        words = (kube.workspace / "err.txt").read_text()[-2000:]
        raise SystemExit(f"ours ended with {process.returncode}: {text[-500:]} {words}")
    ticks = int(fields[11]) + int(fields[12])
    return Cost(wall_s, ticks / os.sysconf("SC_CLK_TCK"), kube.count_requests() - asked)


def measure(kube: Kube, rounds: int, trials: int, many: int) -> dict[str, Any]:
    ours(kube, SLOTS)
    hand_s, far, local = [], [], []
    for number in range(rounds):
        print(f"round {number + 1} of {rounds}", file=sys.stderr, flush=True)
        hand_s.append(by_hand(kube, number, trials))
        far.append(ours(kube, trials))
        local.append(ours(kube, trials, "--executor", "local"))
    few, all_of_them = (ours(kube, count, seconds=0.01) for count in (max(1, many // 10), many))
    ratios = [cost.wall_s / theirs for cost, theirs in zip(far, hand_s, strict=True)]
    beyond = [cost.cpu_s - here.cpu_s for cost, here in zip(far, local, strict=True)]
    return {
        "hand_s": statistics.median(hand_s),
        "ours_s": statistics.median(cost.wall_s for cost in far),
        "ratio": statistics.median(ratios),
        "ratios": ratios,
        "cpu_s": statistics.median(cost.cpu_s for cost in far),
        "cpu_beyond_local_s": statistics.median(beyond),
        "requests_few": few.requests,
        "requests_many": all_of_them.requests,
        "requests_a_second": all_of_them.requests / all_of_them.wall_s,
    }


def missed(found: dict[str, Any]) -> list[str]:
    bars = {
        f"at most {MOST_RATIO} times as long as by hand": found["ratio"] <= MOST_RATIO,
        f"at most {MOST_CPU_S} CPU seconds beyond local": found["cpu_beyond_local_s"] <= MOST_CPU_S,
        f"at most {MOST_REQUESTS_S} requests a second": found["requests_a_second"] <= MOST_REQUESTS_S,
        "requests that do not grow with trials": found["requests_many"] <= found["requests_few"] + MOST_MORE,
    }
    return [bar for bar, is_met in bars.items() if not is_met]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--many", type=int, default=1000)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with kubernetes() as kube:
        found = measure(kube, options.rounds, options.trials, options.many)
    bars = missed(found)
    if options.json:
        print(json.dumps(found | {"passed": not bars}))
        return 1 if bars else 0
    ratios = found["ratios"]
    spread = f"{min(ratios):.2f} to {max(ratios):.2f}"
    print(f"by hand {found['hand_s']:.1f} s, ours {found['ours_s']:.1f} s: {found['ratio']:.2f} ({spread})")
    print(f"orchestrator {found['cpu_s']:.2f} CPU s, {found['cpu_beyond_local_s']:+.2f} s beyond local")
    print(
        f"{found['requests_few']} requests for {max(1, options.many // 10)} short trials, {found['requests_many']} "
        f"for {options.many}: {found['requests_a_second']:.2f} a second"
    )
    print("passed" if not bars else f"MISSED: {'; '.join(bars)}")
    return 1 if bars else 0


if __name__ == "__main__":
    sys.exit(main())
