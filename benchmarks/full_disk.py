"""Fill the disk at every write of a run, and let every sync fail: what is lost, and what can't be read then.

    python benchmarks/full_disk.py [--trials 2] [--every 1] [--json]

A run is recorded as in `power_cut.py`, which counts the calls that need space on the disk (writes, new files and
folders, renames, links) and the syncs, over all its processes. For each such call the run is started again in a new
workspace: this call and all later ones that need space fail with ENOSPC; or this sync, and no other, fails with EIO.
Then there is room again, and the commands of `power_cut.py` are given. There is counted, in addition to its bars:

- unexplained: the run failed without an error that names the cause and what to do, or it showed a traceback
- false_all_clear: the run exits with code 0, and a trial is not sealed or not in the tables

Exits 1 unless all are 0. `--every 5` takes each fifth call.
"""

import argparse
import errno
import json
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from disk_recorder import SPACE, SYNC, why_not
from power_cut import BARS, Lab, Problem, reported_trials

from benchhouse.evidence.folder import list_sealed

ALL_BARS = (*(bar for bar in BARS if bar != "unseen"), "unexplained", "false_all_clear")
FAULTS = (("ENOSPC", SPACE, errno.ENOSPC, 1 << 40), ("EIO", SYNC, errno.EIO, 1))
# SQLite has words of its own, and can't tell why it may not open a file.
_CAUSES = ("No space left on device", "Input/output error", "disk is full", "disk I/O error", "unable to open database")


def examine(lab: Lab, fault: tuple[str, int, int, int], number: int) -> Iterator[Problem]:
    """The problems after a run whose `number`-th call failed."""
    _, kind, error, count = fault
    done = lab.run_recorded(fail_at=number, kind=kind, error=error, fail_count=count)
    text = done.stdout + done.stderr
    if "Traceback (most recent" in text:
        yield "unexplained", text[-800:]
    elif done.returncode and not ("error: " in text and any(cause in text for cause in _CAUSES)):
        yield "unexplained", f"exit code {done.returncode}: {text[-500:]}"
    if not done.returncode and len(list_sealed(lab.workspace.results)) != lab.trials:
        yield "false_all_clear", text[-500:]
    yield from lab.problems(reported_trials(lab.recorder.calls()))


def main() -> int:
    options = _parse()
    if why := why_not():
        print(why, file=sys.stderr)
        return 2
    began = time.monotonic()
    problems: dict[str, list[str]] = {bar: [] for bar in ALL_BARS}
    cases = {}
    with tempfile.TemporaryDirectory(prefix="bench-full-") as folder:
        lab = Lab(Path(folder).resolve(), random.Random(0), 0, trials=options.trials)
        disk, _ = lab.record()
        counts = lab.recorder.counts()
        for fault in FAULTS:
            numbers = range(1, counts[fault[1]] + 1, options.every)
            cases[fault[0]] = len(numbers)
            for number in numbers:
                disk.restore([])
                for kind, text in examine(lab, fault, number):
                    problems[kind].append(f"{fault[0]} at {number}: {text}")
                    print(f"{kind}: {fault[0]} at {number}: {text}", file=sys.stderr)
    figures = {
        "trials": options.trials,
        "cases": cases,
        **{bar: len(texts) for bar, texts in problems.items()},
        "problems": problems,
        "seconds": round(time.monotonic() - began),
        "passed": not any(problems.values()),
    }
    if options.json:
        print(json.dumps(figures, indent=2))
    else:
        print(", ".join(f"{count} cases of {fault}" for fault, count in cases.items()))
        for bar in ALL_BARS:
            print(f"{bar:16}{figures[bar]}")
        print("met" if figures["passed"] else "MISSED: all must be 0")
    return 0 if figures["passed"] else 1


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=2)
    parser.add_argument("--every", type=int, default=1, help="Take each N-th call only.")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
