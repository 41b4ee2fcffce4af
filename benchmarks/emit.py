"""What a call of `benchhouse_client.emit` costs, and whether lines get lost or torn; beside it `logging` to a file.

python benchmarks/emit.py [--calls 100000] [--processes 4] [--rounds 3] [--kills 20] [--json]

In turns: processes that emit a training step's record with five members, and processes that log the same record as JSON
by the standard library (one handler, one file a process). Reported is CPU time a call: processes share cores here.
Every record must be there, whole, once. Then a process that emits and says through a pipe which calls returned is
killed at times drawn at random: none of those may be missing. Exits 1 when a call costs more than 10 us, or a record is
lost.
"""

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchhouse.experiments.emitted_records import VARIABLE, collect_emitted

BAR_US = 10.0
MOST_BYTES = 2**30
_LOOP = """
import sys, time
begin, calls = time.process_time(), int(sys.argv[1])
for i in range(calls):
    emit({"loss": 0.25, "step": i, "tokens": 4096, "data_s": 0.001, "exposed_s": 0.0123})
print((time.process_time() - begin) / calls * 1e6)
"""
EMIT = "from benchhouse_client import emit" + _LOOP
LOGGING = (
    """
import json, logging, os
logger = logging.Logger("steps")
logger.addHandler(logging.FileHandler(os.environ["LOG_FILE"]))
emit = lambda record: logger.info(json.dumps(record))
"""
    + _LOOP
)
KILLED = """
import os
from benchhouse_client import emit
i = 0
while True:
    emit({"i": i})
    os.write(1, b"%d\\n" % i)
    i += 1
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--calls", type=int, default=100_000)
    parser.add_argument("--processes", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    costs: dict[str, list[float]] = {"emit": [], "logging": []}
    wrong = 0
    for number in range(asked.rounds):
        turns = [("emit", EMIT), ("logging", LOGGING)]
        for name, code in reversed(turns) if number % 2 else turns:
            with tempfile.TemporaryDirectory() as folder:
                costs[name] += together(code, asked.processes, asked.calls, folder)
                if name == "emit":
                    wrong += not_as_called(Path(folder), asked.processes, asked.calls)
    missing = sum(killed() for _ in range(asked.kills))
    us = {name: statistics.median(values) for name, values in costs.items()}
    ok = us["emit"] <= BAR_US and wrong == 0 and missing == 0
    answer: dict[str, Any] = {
        "emit_us": us["emit"], "logging_us": us["logging"], "ratio": us["emit"] / us["logging"], "bar_us": BAR_US,
        "calls": asked.rounds * asked.processes * asked.calls, "lost_or_torn": wrong,
        "kills": asked.kills, "lost_at_kills": missing, "ok": ok,
    }  # fmt: skip
    if asked.json:
        print(json.dumps(answer, indent=2))
    else:
        beside = f"logging {us['logging']:.1f}: {answer['ratio']:.2f}"
        print(f"emit {us['emit']:.1f} us of CPU a call (bar {BAR_US:g}), {beside}")
        print(f"{answer['calls']} calls of {asked.processes} processes at a time: {wrong} lost or torn (bar 0)")
        print(f"{asked.kills} processes killed: {missing} records lost whose call had returned (bar 0)")
        print("all bars met" if ok else "MISSED")
    return 0 if ok else 1


def together(code: str, processes: int, calls: int, folder: str) -> list[float]:
    """Microseconds of CPU a call, of each process."""
    started = []
    for number in range(processes):
        environment = os.environ | {VARIABLE: folder, "RANK": str(number), "LOG_FILE": f"{folder}/{number}.log"}
        line = [sys.executable, "-c", code, str(calls)]
        started.append(subprocess.Popen(line, env=environment, stdout=subprocess.PIPE, text=True))
    return [float(process.communicate()[0]) for process in started]


def not_as_called(folder: Path, processes: int, calls: int) -> int:
    """How many records are not there, not in order, or not whole."""
    emitted = collect_emitted(folder, MOST_BYTES)
    wrong = abs(len(emitted) - processes) * calls
    for process in emitted:
        steps = [record.get("step") for record in process.records]
        right = sum(step == wanted for step, wanted in zip(steps, range(calls), strict=False))
        wrong += process.lost + abs(len(steps) - calls) + len(steps) - right
    return wrong


def killed() -> int:
    """How many records are missing of a process that was killed, among those whose call had returned."""
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | {VARIABLE: folder}
        process = subprocess.Popen([sys.executable, "-c", KILLED], env=environment, stdout=subprocess.PIPE)
        assert process.stdout is not None
        for _ in range(random.randrange(1, 5000)):
            process.stdout.readline()
        process.kill()
        # The last line may be cut.
        numbers = [int(line) for line in process.stdout.read().split(b"\n")[:-1] if line]
        process.wait()
        (emitted,) = collect_emitted(Path(folder), MOST_BYTES)
    return len(set(numbers) - {record["i"] for record in emitted.records})


if __name__ == "__main__":
    sys.exit(main())
