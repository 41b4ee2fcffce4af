"""The programs of nccl-tests: their options, and how their table is read (rccl-tests prints the same one)."""

import math
import re
from collections.abc import Iterable, Sequence

from benchhouse.experiments.training.operation_rounds import Operation, OperationRounds, bus_factor

PROGRAMS: dict[Operation, str] = {
    "all_reduce": "all_reduce_perf",
    "all_gather": "all_gather_perf",
    "reduce_scatter": "reduce_scatter_perf",
    "all_to_all": "alltoall_perf",
    "broadcast": "broadcast_perf",
    "send_recv": "sendrecv_perf",
}
_TYPES = {"float32": "float", "float16": "half", "bfloat16": "bfloat16"}
_RANK = re.compile(r"#\s+Rank\s+(\d+)\s.*?\bPid\s+(\d+) on\s+(\S+) device\s+\d+ \[[^\]]*\] (.+)")
_VERSION = re.compile(r"# nccl-tests version (\S+)")
_NCCL = re.compile(r"(?:NCCL|RCCL) version\s*:?\s*(\S+)")
_OUT = re.compile(r"# Out of bounds values\s*: (\d+)")
_ROW = re.compile(r"(?<![\w.])(\d+\s+\d+\s+[a-z]\w*(?:\s+\S+){8,10})\s*$")  # a launcher may put a prefix before it
_SLACK = 0.006  # of a number that is printed with two decimals


def options(*, size: int, dtype: str, gpus: int, warmup: int, iterations: int) -> list[str]:
    """Return the options: one size, results checked once, and the time of the slowest process."""
    pairs = {
        "-b": size, "-e": size, "-d": _TYPES[dtype], "-g": gpus, "-w": warmup, "-n": iterations, "-c": 1, "-a": 3,
    }  # fmt: skip
    return [word for name, value in pairs.items() for word in (name, str(value))]


def read(lines: Iterable[str], operation: Operation, ranks: int) -> OperationRounds:
    """Read the out-of-place row of the table (alltoall and sendrecv have no other). Raise ValueError if the lines hold
    no such table, or one with another number of ranks."""
    facts: dict[str, object] = {}
    rows: list[list[str]] = []
    wrong_column, out_of_bounds = False, None
    devices: dict[tuple[str, str, str], str] = {}
    for line in lines:
        if match := _RANK.search(line):
            devices[match[1], match[2], match[3]] = match[4].strip()
        elif "algbw" in line and "busbw" in line:
            wrong_column = "#wrong" in line
        elif match := _OUT.search(line):
            out_of_bounds = int(match[1])
        elif match := _VERSION.search(line) or _NCCL.search(line):
            facts["nccl_tests" if match.re is _VERSION else "nccl"] = match[1]
        elif "#" not in line and (match := _ROW.search(line)):
            rows.append(match[1].split())
    world = len({rank for rank, _, _ in devices})
    if len(devices) > world:
        raise ValueError("several processes call themselves rank 0: it was built without MPI=1")
    if devices and world != ranks:
        raise ValueError(f"{world} ranks took part, workload.ranks is {ranks}")
    if len(rows) != 1:
        raise ValueError(f"{len(rows)} rows in its table, not one" if rows else "it printed no table")
    size, seconds, busbw, wrong = _row(rows[0])
    expected = size / 1e9 / seconds * bus_factor(operation, ranks)
    if not abs(busbw - expected) <= _SLACK + 0.01 * expected:
        raise ValueError(f"{busbw} GB/s of bus bandwidth do not follow from its time ({expected:.2f}): {rows[0]}")
    if not wrong_column:  # before 2.13, the column has the largest difference, which rounding causes too
        wrong = out_of_bounds
    elif wrong is not None:
        wrong = max(wrong, out_of_bounds or 0)
    hosts = {host for _, _, host in devices}
    facts |= {"device": ", ".join(sorted(set(devices.values()))), "nodes": sorted(hosts)}
    return OperationRounds(
        bytes=size, seconds=[seconds], wrong=wrong, facts={key: item for key, item in facts.items() if item}
    )


def _row(words: Sequence[str]) -> tuple[int, float, float, int | None]:
    """Return bytes, seconds, bus bandwidth, and wrong elements. The last eight columns: 4 out of place, 4 in place."""
    time_us, _, busbw, wrong = words[-8:-4]
    try:
        seconds = float(time_us) / 1e6
        if not 0 < seconds < math.inf:
            raise ValueError("no time")
        return int(words[0]), seconds, float(busbw), None if wrong == "N/A" else round(float(wrong))
    except ValueError as error:
        raise ValueError(f"a row that can't be read ({error}): {' '.join(words)}") from error
