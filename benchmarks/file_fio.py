"""Our file I/O beside fio's psync engine: same file, same pattern, page cache dropped or passed by alike, in turns.

Rounds alternate, their median counts: sequential 1 MiB and random 4 KiB reads with O_DIRECT at 1 and 16 in flight, and
random 4 KiB reads of a memory filesystem for the CPU time of an operation. fio runs a thread an operation in flight.

    python benchmarks/file_fio.py [--rounds 5] [--seconds 2] [--folder DIR] [--json]

Exit code 1 when missed, 2 without fio or where DIR takes no O_DIRECT.
"""

import argparse
import errno
import json
import os
import shutil
import statistics
import sys
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchhouse.drivers.fileio import FileIO
from benchhouse.drivers.fio import Fio
from benchhouse.load.protocols.files import FileJob, MovedBytes

MIB = 1 << 20
MEMORY = "/dev/shm"
P50_WITHIN = 0.15
MOST_CPU_US = 3.5
BUSY = 0.2  # share of our threads' time without a core, above which rates say more of the neighbours


@dataclass(frozen=True)
class Case:
    name: str
    block: int
    pattern: Any
    depth: int
    direct: bool
    least_rate: float | None  # of ours to fio's; None: not compared


CASES = (
    Case("sequential 1 MiB, direct", MIB, "read", 1, True, 0.95),
    Case("sequential 1 MiB, page cache dropped", MIB, "read", 1, False, 0.95),
    Case("random 4 KiB, direct, depth 1", 4096, "randread", 1, True, 0.95),
    Case("random 4 KiB, direct, depth 16", 4096, "randread", 16, True, 0.85),
    Case("random 4 KiB, memory", 4096, "randread", 1, False, None),
)


def measure(case: Case, folder: Path, size: int, rounds: int, seconds: float) -> dict[str, Any]:
    cores = len(os.sched_getaffinity(0))
    once = not case.direct and case.least_rate is not None  # a second round would read what the first has cached
    job = FileJob(
        folder / "benchhouse-figure.dat",
        size,
        case.block,
        case.pattern,
        depth=case.depth,
        processes=min(case.depth, cores),
        direct=case.direct,
        duration_s=None if once else seconds,
        warmup_s=0.0 if once else min(0.3, seconds / 4),
    )
    life = FileIO()
    taken: dict[str, list[MovedBytes]] = {"benchhouse": [], "fio": []}
    try:
        life.fill(job)
        for number in range(rounds):
            for name, engine in (("benchhouse", FileIO()), ("fio", Fio())):
                life.drop_cache(job)
                moved = engine.transfer(replace(job, seed=number))
                if moved.errors:
                    raise SystemExit(f"{name}: {moved.first_errors}")
                taken[name].append(moved)
    finally:
        job.path.unlink(missing_ok=True)
    return _judged(case, taken)


def _judged(case: Case, taken: dict[str, list[MovedBytes]]) -> dict[str, Any]:
    pairs = list(zip(taken["benchhouse"], taken["fio"], strict=True))
    rates = [(ours.operations / ours.seconds) / (fio.operations / fio.seconds) for ours, fio in pairs]
    medians = [ours.reads.quantile(0.5) / fio.reads.quantile(0.5) for ours, fio in pairs]
    cpu_us = statistics.median(ours.cpu_s / ours.operations * 1e6 for ours, _ in pairs)
    rate, p50 = statistics.median(rates), statistics.median(medians)
    passed = cpu_us <= MOST_CPU_US
    if case.least_rate is not None:
        passed = rate >= case.least_rate and abs(p50 - 1) <= P50_WITHIN
    return {
        "case": case.name,
        "iops": {
            name: statistics.median(each.operations / each.seconds for each in found) for name, found in taken.items()
        },
        "p50_us": {
            name: statistics.median(each.reads.quantile(0.5) / 1e3 for each in found) for name, found in taken.items()
        },
        "rate_ratio": {"median": rate, "min": min(rates), "max": max(rates), "at_least": case.least_rate},
        "p50_ratio": {"median": p50, "within": P50_WITHIN if case.least_rate is not None else None},
        "cpu_us": {"median": cpu_us, "at_most": MOST_CPU_US if case.least_rate is None else None},
        "no_core_share": statistics.median(ours.no_core_s / ours.worked_s for ours, _ in pairs),
        "passed": passed,
    }


def table(found: list[dict[str, Any]]) -> str:
    lines = []
    for each in found:
        rate, p50, cpu = each["rate_ratio"], each["p50_ratio"], each["cpu_us"]
        bars = [f"at least {rate['at_least']:g}"] if rate["at_least"] else []
        bars += [f"p50 within {p50['within']:.0%}"] if p50["within"] else []
        bars += [f"CPU at most {cpu['at_most']:g} us"] if cpu["at_most"] else []
        lines.append(
            f"{each['case']:<37} {each['iops']['benchhouse']:>8,.0f} against {each['iops']['fio']:>8,.0f} /s: "
            f"{rate['median']:.3f} ({rate['min']:.3f} to {rate['max']:.3f}), p50 {p50['median']:.3f}, "
            f"CPU {cpu['median']:.2f} us  [{', '.join(bars)}] {'passed' if each['passed'] else 'MISSED'}"
        )
    waited = max(each["no_core_share"] for each in found)
    if waited > BUSY:
        lines.append(f"The machine was busy: our threads waited for a core up to {waited:.0%} of the time.")
    return "\n".join(lines)


def takes_direct(folder: Path) -> bool:
    try:
        descriptor = os.open(folder / "probe", os.O_CREAT | os.O_WRONLY | os.O_DIRECT, 0o600)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        return False
    os.close(descriptor)
    return True


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="Alternating rounds, at least 3.")
    parser.add_argument("--seconds", type=float, default=2.0, help="Measured time of a transfer.")
    parser.add_argument("--folder", default=tempfile.gettempdir(), help="On the storage to be used.")
    parser.add_argument("--size", type=int, default=512, help="Size of the file in MiB.")
    parser.add_argument("--json", action="store_true", help="Print JSON.")
    options = parser.parse_args()
    if shutil.which("fio") is None:
        print("fio is not installed: apt install fio", file=sys.stderr)
        return 2
    found = []
    with tempfile.TemporaryDirectory(dir=options.folder) as folder, tempfile.TemporaryDirectory(dir=MEMORY) as memory:
        if not takes_direct(Path(folder)):
            print(f"{options.folder} takes no O_DIRECT: choose another --folder", file=sys.stderr)
            return 2
        for case in CASES:
            where = Path(folder if case.least_rate is not None else memory)
            found.append(measure(case, where, options.size * MIB, max(3, options.rounds), options.seconds))
    print(json.dumps({"cases": found, "load_average": os.getloadavg()[0]}, indent=2) if options.json else table(found))
    return 0 if all(each["passed"] for each in found) else 1


if __name__ == "__main__":
    sys.exit(main())
