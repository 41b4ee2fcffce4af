"""Times of the steps in a torch.profiler trace: forward, backward, optimizer, and exposed communication.

The trace is one that `benchhouse_training` wrote, which marks each step. On a GPU, a kernel belongs to the part of the
step that launched it; on a CPU, the operations themselves are the parts.
"""

import gzip
import json
import zlib
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchhouse.experiments.emitted_records import Emitted

TRACES = "*.trace.json.gz"
_MOST_BYTES = 2**30  # of an unpacked trace
_MARK, _BACKWARD, _OPTIMIZER = "benchhouse.step ", "autograd::engine::evaluate_function", "Optimizer."
_ON_DEVICE = "gpu_user_annotation"  # a second mark that lasts as long as the kernels of the step
_COLLECTIVES = ("gloo:", "nccl", "ncclDevKernel")
Spans = list[tuple[float, float]]
"""Begin and end in seconds, in order and without overlap."""


def read_trace(path: Path) -> Emitted | None:
    """Return the steps as if emitted; None if the trace has none, is truncated, or is too large."""
    try:
        with gzip.open(path) as file:
            text = file.read(_MOST_BYTES + 1)
        trace = json.loads(text) if len(text) <= _MOST_BYTES else {}
        records = steps_in(trace)
        rank, attempt = (int(part.rpartition("-")[2]) for part in path.name.split(".")[:2])
    except (OSError, EOFError, zlib.error, ValueError, LookupError, TypeError, AttributeError):
        return None
    return Emitted({"rank": rank, "attempt": attempt}, records) if records else None


def steps_in(trace: Mapping[str, Any]) -> list[dict[str, Any]]:
    whole = (event for event in trace["traceEvents"] if event.get("ph") == "X" and "dur" in event)
    events = [event for event in whole if event.get("cat") != _ON_DEVICE]
    clocks = trace["benchhouse"]
    zero_s = trace["baseTimeNanoseconds"] / 1e9 - clocks["utc"] + clocks["mono"]
    marks = sorted((event for event in events if event["name"].startswith(_MARK)), key=_begin)
    if not marks:
        return []
    thread = marks[0]["tid"]
    operations = _spans(event for event in events if event.get("cat") == "cpu_op" and event["tid"] == thread)
    backward = _spans(event for event in events if event["name"].startswith(_BACKWARD))
    optimizer = _spans(event for event in events if event["name"].startswith(_OPTIMIZER))
    collectives = _spans(event for event in events if event["name"].startswith(_COLLECTIVES) and _runs(event))
    forward = without(operations, [*backward, *optimizer])
    kernels = [event for event in events if event.get("cat") == "kernel" and not event["name"].startswith("nccl")]
    if kernels:
        launches = _launches(events)
        launched = [(kernel, launches.get(kernel["args"].get("correlation"))) for kernel in kernels]
        computes = _spans(kernels)
        others = union([*backward, *optimizer])
        forward = _spans(kernel for kernel, at in launched if not _within(at, others))
        backward = _spans(kernel for kernel, at in launched if _within(at, backward))
        optimizer = _spans(kernel for kernel, at in launched if _within(at, optimizer))
    else:
        computes = without(operations, [])
    exposed = without(collectives, computes)
    return [
        {
            "step": int(mark["name"][len(_MARK) :]), "t_start": zero_s + _begin(mark), "t_end": zero_s + _end(mark),
            **{name: _length(part, _begin(mark), _end(mark)) for name, part in {
                "forward_s": forward, "backward_s": backward, "optimizer_s": optimizer, "comm_s": exposed,
            }.items()},
        }
        for mark in marks
    ]  # fmt: skip


def _begin(event: Mapping[str, Any]) -> float:
    return float(event["ts"]) / 1e6


def _end(event: Mapping[str, Any]) -> float:
    return (float(event["ts"]) + float(event["dur"])) / 1e6


def _runs(event: Mapping[str, Any]) -> bool:
    """Return whether the event is an operation of Gloo or a kernel of NCCL, and not the call that starts it."""
    return event.get("cat") == "kernel" or event["name"].startswith("gloo:")


def _launches(events: Iterable[Mapping[str, Any]]) -> dict[Any, float]:
    """Return the launch time of each kernel by its correlation id."""
    calls = (event for event in events if event.get("cat") in ("cuda_runtime", "cuda_driver"))
    return {call.get("args", {}).get("correlation"): _begin(call) for call in calls}


def _spans(events: Iterable[Mapping[str, Any]]) -> Spans:
    return union((_begin(event), _end(event)) for event in events)


def union(spans: Iterable[tuple[float, float]]) -> Spans:
    apart: Spans = []
    for begin, end in sorted(spans):
        if apart and begin <= apart[-1][1]:
            apart[-1] = (apart[-1][0], max(apart[-1][1], end))
        else:
            apart.append((begin, end))
    return apart


def without(spans: Spans, others: Iterable[tuple[float, float]]) -> Spans:
    """Return the parts of the spans that are in none of the others."""
    rest, cuts = [], union(others)
    for begin, end in spans:
        for cut_begin, cut_end in cuts[max(0, bisect_right(cuts, (begin, begin)) - 1) :]:
            if cut_begin >= end:
                break
            if cut_begin > begin:
                rest.append((begin, cut_begin))
            begin = max(begin, cut_end)
        if begin < end:
            rest.append((begin, end))
    return rest


def _within(moment: float | None, spans: Sequence[tuple[float, float]]) -> bool:
    if moment is None:
        return False
    at = bisect_right(spans, (moment, float("inf"))) - 1
    return at >= 0 and moment <= spans[at][1]


def _length(spans: Spans, begin: float, end: float) -> float:
    """Return the length of the spans between two moments."""
    return sum(max(0.0, min(end, last) - max(begin, first)) for first, last in spans)
