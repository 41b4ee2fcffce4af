"""What is kept of the transactions: as of any call, and what they wrote, measured or not."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import compress
from operator import sub

from benchhouse.load.book import Answers, Call
from benchhouse.load.calls import CallTally
from benchhouse.load.protocols.calls import Reply
from benchhouse.load.protocols.postgres import UNSURE, Effect
from benchhouse.load.slo import Slo
from benchhouse.schema.histogram import Measured

_NOTHING = Effect()


@dataclass
class Written:
    """What the server said it has written, and what may have been written by transactions without an answer."""

    acknowledged: Effect = _NOTHING
    unsure: Effect = _NOTHING


class PostgresTally(CallTally):
    """`writes` says whether there is anything to add up."""

    def __init__(self, slo: Slo | None = None, *, writes: bool = True) -> None:
        super().__init__(slo)
        self._writes = writes
        self.written = Written()

    def add(self, call: Call, reply: Reply, start_ns: int, end_ns: int) -> int:
        missed = super().add(call, reply, start_ns, end_ns)
        if self._writes and (reply.error is not None or not call.measured):  # else it went through `add_many`
            self._wrote(call, reply)
        return missed

    def add_many(self, ended: list[tuple[Call, Reply]]) -> None:
        super().add_many(ended)
        if self._writes:
            effects = [call.item.effect for call, _ in ended if call.item.effect]
            self.written.acknowledged = _sum([self.written.acknowledged, *effects])

    def add_answers(self, answers: Answers) -> None:
        """As `add_many` of such calls; they have no bytes and no first byte."""
        latencies = list(map(sub, answers.ended_ns, answers.sent_ns))
        self.calls += len(latencies)
        self.operations += answers.operations
        measured = Measured(latencies)
        self.latency.count(measured)
        self.latency_sent.count(measured)
        kinds = [item.kind for item in answers.items]
        for kind in (found := set(kinds)):
            stream = self.by_kind[kind]
            stream.count(measured if len(found) == 1 else Measured(compress(latencies, map(kind.__eq__, kinds))))
        if self._writes:
            effects = [item.effect for item in answers.items if item.effect]
            self.written.acknowledged = _sum([self.written.acknowledged, *effects])

    def _wrote(self, call: Call, reply: Reply) -> None:
        if not call.item.effect:
            return
        if reply.error is None:
            self.written.acknowledged = _sum((self.written.acknowledged, call.item.effect))
        elif reply.error in UNSURE:
            self.written.unsure = _sum((self.written.unsure, call.item.effect))

    def merge(self, other: CallTally) -> None:
        super().merge(other)
        if isinstance(other, PostgresTally):
            self.written.acknowledged = _sum((self.written.acknowledged, other.written.acknowledged))
            self.written.unsure = _sum((self.written.unsure, other.written.unsure))


def _sum(effects: Iterable[Effect]) -> Effect:
    return Effect(*map(sum, zip(*effects, strict=True)))
