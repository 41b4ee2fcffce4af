"""Whether `training.run` names the rank that failed, and how, on a real trainer (torch, gloo) with planted faults.

(a) 40 faults: a rank killed, hung (found by `hang_after`, or by the time-out of the collective operation), slowed, out
    of memory, with a full disk at its checkpoint, and a node lost, under the launchers `processes` and `torchrun`, with
    two and three ranks: kind and rank must be right in at least 36, and a wrong rank is never named.
(b) goodput within 2% of what the raw records say by hand: each step once, as its last attempt did it, from the first
    rank's begin to the last one's end, over the wall time that is taken around the call.
(c) 20 healthy runs: no name.

A lost node is a stand-in: all that runs "there" is killed at once, so that nothing is written any more. Names of nodes
are made up.

    python benchmarks/training_faults.py [--faults 40] [--healthy 20] [--only hung] [--json]      about 15 minutes
"""

import argparse
import json
import os
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchhouse.experiments.training.run import train
from benchhouse.schema.experiment import ExperimentFailed
from tests.experiments.conftest import RecordingContext
from tests.services.trainer import lab

FEWEST_NAMED = 0.9
MOST_OFF = 0.02
HANG_AFTER_S = 15.0  # longer than ranks need to end on a busy machine
CODES = {
    "kill": "rank_killed",
    "hang": "rank_hung",
    "oom": "out_of_memory",
    "disk-full": "disk_full",
    "node": "node_lost",
    "slow": "straggler",
}
KINDS = {"kill": "killed", "hang": "hung", "oom": "memory", "disk-full": "disk", "node": "node"}
NAMING = ("straggler", "rank_left", "interrupted", "hung_at_exit")


class Nodes(RecordingContext):
    """The second node is this machine under another name."""

    def on_node(self, node: str) -> list[str]:
        return ["env", f"SLURMD_NODENAME={node}"]


@dataclass(frozen=True)
class Planted:
    """One fault; `rank` is the number of the node where a node is lost."""

    kind: str
    rank: int
    ranks: int
    step: int
    launcher: str = "processes"
    restarts: int = 0
    by_timeout: bool = False  # of the collective operation, instead of hang_after
    nodes: tuple[str, ...] = ("localhost",)

    @property
    def name(self) -> str:
        how = " (time-out)" if self.by_timeout else ""
        where = f"node {self.rank}" if self.kind == "node" else f"rank {self.rank}"
        return f"{self.kind}{how} {where} of {self.ranks}, step {self.step}, {self.launcher}, {self.restarts} restarts"


@dataclass
class Run:
    """What was told of one training."""

    wall_s: float
    code: str = ""
    ranks: list[int] = field(default_factory=list)
    message: str = ""
    goodput: float | None = None
    by_hand: float | None = None
    named: dict[str, str] = field(default_factory=dict)  # warnings that name somebody


def faults(count: int) -> Iterator[Planted]:
    """Of each forty: killed 8, hung 12, slowed 8, out of memory, disk full and node lost 4 each; in turn."""
    kinds = ["kill", "hang", "slow", "oom", "disk-full", "node", "kill", "hang", "slow", "hang"]
    for number in range(count):
        turn, at = divmod(number, len(kinds))
        kind, ranks = kinds[at], 2 + (number // 2) % 2
        rank = 0 if kind == "disk-full" else (number + turn) % ranks
        launcher = "torchrun" if at in (6, 7) else "processes"
        step = 12 + 3 * turn
        if kind == "node":
            yield Planted(kind, 1, 2, step, nodes=("localhost", "other"))
        else:
            yield Planted(kind, rank, ranks, step, launcher, int(kind != "slow"), by_timeout=at == 9)


def play(planted: Planted | None, ranks: int, launcher: str, nodes: tuple[str, ...]) -> Run:
    """One training by the experiment itself."""
    with tempfile.TemporaryDirectory() as name:
        (folder := Path(name) / "checkpoints").mkdir()
        options: list[object] = ["--steps", 40, "--step-s", 0.03, "--folder", folder, "--save-every", 5]
        workload: dict[str, Any] = {"ranks": ranks, "launcher": launcher, "hang_after": HANG_AFTER_S}
        if planted:
            seconds = 0.05 if planted.kind == "slow" else 0
            options += ["--fault", f"{planted.kind}:{planted.rank}:{planted.step}:{seconds}"]
            workload["max_restarts"] = planted.restarts
        if planted and planted.by_timeout:
            options += ["--timeout-s", 5]
            workload["hang_after"] = 600.0
        ctx: Any = Nodes(Path(name), train)
        ctx.nodes = list(nodes)
        os.chdir(ctx.workdir)
        target, began_s = lab(*options), time.monotonic()
        try:
            train.call(target, workload, ctx)
        except ExperimentFailed as failure:
            ranks_named = re.match(r"rank (\d+)\b", failure.message)
            of_node = re.match(r"node (\S+) was lost.* with (?:rank|ranks) ([\d, and]+)", failure.message)
            numbers = [ranks_named[1]] if ranks_named else re.findall(r"\d+", of_node[2]) if of_node else []
            return Run(time.monotonic() - began_s, failure.code, [int(number) for number in numbers], failure.message)
        run = Run(time.monotonic() - began_s, goodput=next(iter(ctx.values["goodput"]), None))
        run.by_hand = useful_s(ctx.artifacts) / run.wall_s
        run.named = {code: says for code, says in ctx.warnings.items() if code in NAMING}
        for item in ctx.facts.get("interrupts", [])[:1]:
            run.code = next((CODES[kind] for kind, own in KINDS.items() if own == item["kind"]), item["kind"])
            run.ranks, run.message = (list(item["ranks"]) if item["certain"] else []), item["message"]
        if not run.code and "straggler" in run.named:
            run.code, run.message = "straggler", run.named["straggler"]
            run.ranks = [int(number) for number in re.findall(r"^rank (\d+)", run.message)]
        return run


def useful_s(artifacts: Path) -> float:
    """By hand: of each step the last attempt that all ranks did, from the first begin to the last end, counted once."""
    steps: dict[int, dict[int, list[tuple[float, float]]]] = {}
    ranks = set()
    for path in artifacts.glob("steps.*.jsonl"):
        head, *records = [json.loads(line) for line in path.read_text().splitlines()]
        ranks.add(head["rank"])
        for record in records:
            times = steps.setdefault(record["step"], {}).setdefault(head["attempt"], [])
            times.append((record["t_start"], record["t_end"]))
    whole = []
    for attempts in steps.values():
        done = [times for _, times in sorted(attempts.items()) if len(times) == len(ranks)]
        if done:
            whole.append((min(begin for begin, _ in done[-1]), max(end for _, end in done[-1])))
    total, until = 0.0, 0.0
    for begin, end in sorted(whole):
        total += max(0.0, end - max(begin, until))
        until = max(until, end)
    return total


def judge(planted: Planted, run: Run) -> str:
    """`right`, `unnamed`, or `WRONG` where another rank or kind is blamed."""
    if run.code == CODES[planted.kind] and run.ranks == [planted.rank]:
        return "right"
    return "WRONG" if run.ranks and run.ranks != [planted.rank] else "unnamed"


def measure(count: int, healthy: int, only: str) -> dict[str, Any]:
    rows, blamed, off = [], [], []
    for planted in faults(count):
        if only not in planted.name:
            continue
        run = play(planted, planted.ranks, planted.launcher, planted.nodes)
        error = abs(run.goodput / run.by_hand - 1) if run.goodput is not None and run.by_hand else None
        if error is not None:
            off.append(error)
        rows.append({
            "planted": planted.name, "verdict": judge(planted, run), "code": run.code, "ranks": run.ranks,
            "message": run.message[:300], "wall_s": run.wall_s, "goodput": run.goodput, "by_hand": run.by_hand,
        })  # fmt: skip
        share = "" if run.goodput is None or run.by_hand is None else f" goodput {run.goodput:.3f} ({run.by_hand:.3f})"
        _say(f"{rows[-1]['verdict']:7} {planted.name}: {run.code} {run.ranks}{share} {run.wall_s:.0f} s")
        if rows[-1]["verdict"] != "right":
            _say(f"        {run.message}")
    for number in range(healthy):
        run = play(None, 2 + number % 2, "torchrun" if number % 4 == 3 else "processes", ("localhost",))
        if run.goodput is not None and run.by_hand:
            off.append(abs(run.goodput / run.by_hand - 1))
        if run.code or run.named:
            blamed.append({"run": number, "code": run.code, "says": run.message, "named": run.named})
        _say(f"healthy {number}: {run.code or 'nothing'} {run.message} {run.named or ''} {run.wall_s:.0f} s")
    verdicts = Counter(row["verdict"] for row in rows)
    met = verdicts["right"] >= FEWEST_NAMED * len(rows) and not verdicts["WRONG"] and not blamed
    return {
        "faults": rows,
        "named": verdicts["right"],
        "wrong": verdicts["WRONG"],
        "healthy": healthy,
        "blamed": blamed,
        "goodput_off": max(off, default=0.0),
        "goodputs": len(off),
        "load_average": os.getloadavg()[0],
        "met": met and max(off, default=0.0) <= MOST_OFF,
    }


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--faults", type=int, default=40, help="planted faults")
    parser.add_argument("--healthy", type=int, default=20, help="healthy runs")
    parser.add_argument("--only", default="", help="only faults whose name has this in it")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    figures = measure(options.faults, options.healthy, options.only)
    if options.json:
        print(json.dumps(figures, indent=2))
    else:
        print(f"{figures['named']} of {len(figures['faults'])} faults named by kind and rank, {figures['wrong']} wrong")
        print(f"{figures['healthy']} healthy runs: {len(figures['blamed'])} with a name")
        off, count = figures["goodput_off"], figures["goodputs"]
        print(f"goodput off by at most {off:.2%} in {count} runs (bar: {MOST_OFF:.0%})")
        print("met" if figures["met"] else "MISSED")
    return 0 if figures["met"] else 1


if __name__ == "__main__":
    raise SystemExit(main())
