"""A step of a rank as its trainer recorded it: its time, its duration, its amount of data, and its waits."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from benchhouse.experiments.emitted_records import Emitted


@dataclass(frozen=True, slots=True)
class TrainingStep:
    """One step of one rank. Times are seconds of the node's monotonic clock."""

    rank: int
    number: int
    attempt: int
    begin_s: float
    end_s: float
    amounts: Mapping[str, float]
    """Numbers by name in the record: tokens, samples, loss, data_s, comm_s, checkpoint_s, cpu_s, memory_bytes, ..."""

    @property
    def took_s(self) -> float:
        return self.end_s - self.begin_s


def steps_of(processes: Iterable[Emitted]) -> list[TrainingStep]:
    """Return the steps of all records that have a `step`, by attempt, rank, and end."""
    steps: list[TrainingStep] = []
    for process in processes:
        before: float | None = None
        for record in process.records:
            step = _step(record, process.writer, before)
            before = _number(record.get("t"))
            if step is not None:
                steps.append(step)
    return sorted(steps, key=lambda step: (step.attempt, step.rank, step.end_s))


def not_finite(processes: Iterable[Emitted]) -> Counter[str]:
    """Count, by name, the numbers of records that are NaN or infinite; they are excluded from every figure."""
    records = (record for process in processes for record in process.records)
    return Counter(
        name for record in records for name, value in record.items()
        if isinstance(value, float) and not math.isfinite(value)
    )  # fmt: skip


def repeated_records(processes: Iterable[Emitted]) -> int:
    """Count the records of a step that its rank has already recorded in the same attempt."""
    steps = steps_of(processes)
    return len(steps) - len({(step.attempt, step.rank, step.number) for step in steps})


def _step(record: Mapping[str, Any], writer: Mapping[str, Any], before: float | None) -> TrainingStep | None:
    """Return the step of a record; None if it has no number or no times. It ends at `t_end`, otherwise when it was
    emitted minus the checkpoint in between. It begins at `t_start`, otherwise `step_s` before its end, otherwise at the
    previous record: the first record of a process then has no time."""
    number, emitted_s = record.get("step"), _number(record.get("t"))
    if not isinstance(number, int) or isinstance(number, bool):
        return None
    amounts = {name: value for name, item in record.items() if (value := _number(item)) is not None}
    end_s = amounts.get("t_end", None if emitted_s is None else emitted_s - amounts.get("checkpoint_s", 0.0))
    if end_s is None:
        return None
    begin_s = amounts.get("t_start")
    if begin_s is None and "step_s" in amounts:
        begin_s = end_s - amounts["step_s"]
    if begin_s is None:
        begin_s = before
    if begin_s is None or end_s < begin_s:
        return None
    rank, attempt = _whole(record, "rank"), _whole(writer, "attempt")
    return TrainingStep(
        _whole(writer, "rank") or 0 if rank is None else rank, number, attempt or 0, begin_s, end_s, amounts
    )


def _whole(members: Mapping[str, Any], name: str) -> int | None:
    value = members.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:  # an integer of hundreds of digits
        return None
    return number if math.isfinite(number) else None
