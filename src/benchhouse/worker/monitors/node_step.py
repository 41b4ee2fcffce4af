"""The sampler on another node of a trial: `python -m benchhouse.worker --sample`, started there by the trial's worker.

It reads what to sample from its standard input and answers on its standard output; it ends with its input.
"""

import os
import select
import time

from benchhouse.worker.monitors.machine import node
from benchhouse.worker.monitors.node_messages import NodeOrder, SampleRequest, SamplerReply, pack
from benchhouse.worker.monitors.procfs import driver_is_here
from benchhouse.worker.monitors.sampler import Sampler
from benchhouse.worker.monitors.tagged_processes import TrialProcesses
from benchhouse.worker.monitors.tree import TRIAL, ProcessTree

_PART_S = 10.0  # the most that is lost with a node that dies


def run() -> int:
    """Run the sampler. Return 0 if it was requested to end, 1 if its input ended before, so that there is no reader."""
    lines = _Lines()
    first = lines.next()
    if not first:
        return 1
    order = NodeOrder.model_validate_json(first)
    sampler = Sampler([node()] if "node" in order.sources else [], order.interval_s)
    sampler.start()
    if "trial" in order.sources:
        sampler.add(ProcessTree(TRIAL, finder=TrialProcesses(order.trial_id, sampler.add)))
    if "gpu" in order.sources and driver_is_here():
        from benchhouse.worker.monitors.nvml import open_gpus

        sampler.find(open_gpus)
    return _serve(sampler, lines)


def _serve(sampler: Sampler, lines: "_Lines") -> int:
    known: set[str] = set()
    used_s, due_s = time.process_time(), time.monotonic() + _PART_S
    while True:
        line = lines.next(max(0.0, due_s - time.monotonic()))
        if line == b"":
            return 1
        ask = SampleRequest.model_validate_json(line) if line else SampleRequest()
        if ask.clock:
            _send(SamplerReply(monotonic_s=time.monotonic(), wall_s=time.time()))
        if ask.scope:
            sampler.add(ProcessTree(ask.scope, ask.pid))
        if ask.end or line is None:
            recording = sampler.stop() if ask.end else sampler.cut()
            part = pack(recording, known, sampler.zero_s, time.process_time() - used_s)
            _send(SamplerReply(part=part, last=ask.end))
            due_s = time.monotonic() + _PART_S
        if ask.end:
            return 0


class _Lines:
    """Standard input, line by line, without a buffer that would hide data from `select`."""

    def __init__(self) -> None:
        self._rest = b""

    def next(self, most_s: float | None = None) -> bytes | None:
        """Return the next line; None if none arrived in time, empty at the end."""
        while b"\n" not in self._rest:
            if not select.select([0], [], [], most_s)[0]:
                return None
            block = os.read(0, 65536)
            if not block:
                return b""
            self._rest += block
        line, _, self._rest = self._rest.partition(b"\n")
        return line + b"\n"


def _send(reply: SamplerReply) -> None:
    line = reply.model_dump_json(exclude_defaults=True).encode() + b"\n"
    while line:
        line = line[os.write(1, line) :]
