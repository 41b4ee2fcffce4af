"""What is recorded of calls to a store or an index: latencies, bytes, and operations, also by kind of call."""

from array import array
from collections import defaultdict
from operator import sub

from benchhouse.load.answers import measured
from benchhouse.load.load_record import Answers, Call
from benchhouse.load.protocols.calls import CallResult
from benchhouse.load.slo import Slo, missed
from benchhouse.load.streams import ValueStream
from benchhouse.schema.histogram import PreparedValues


class CallTally:
    """The tally of calls. Latencies count from when a call was due, `latency_sent` from when it was made (the same in a
    closed loop). Failed calls are excluded from every latency. The kind of a call is that of its item, if that has one.
    """

    def __init__(self, slo: Slo | None = None) -> None:
        self.slo = slo
        self.latency, self.latency_sent, self.first_byte = ValueStream(), ValueStream(), ValueStream()
        self.by_kind: dict[str, ValueStream] = defaultdict(ValueStream)
        self.calls = 0  # good and measured
        self.bytes = 0  # of these
        self.operations = 0.0  # of these: rows, vectors, objects
        self.bytes_by_kind: dict[str, int] = defaultdict(int)

    def add(self, call: Call, reply: CallResult, start_ns: int, end_ns: int) -> int:
        if not call.measured:
            return 0
        if reply.error is None:
            self.add_many([(call, reply)])
        return missed(self.slo, {"latency": call.ended_ns - call.due_ns} if reply.error is None else None)

    def add_many(self, ended: list[tuple[Call, CallResult]]) -> None:
        """Add calls that are all good and measured."""
        self.calls += len(ended)
        sending = [call.sending_ns + call.waited_ns for call, _ in ended]
        late = [call.late_ns + call.sending_ns + call.waited_ns for call, _ in ended]
        self.latency.extend_unsure([call.ended_ns - call.due_ns for call, _ in ended], late)
        self.latency_sent.extend_unsure([call.ended_ns - call.sent_ns for call, _ in ended], sending)
        self.bytes += sum([reply.size for _, reply in ended])
        self.operations += sum([reply.count for _, reply in ended])
        for (call, reply), earlier in zip(ended, late, strict=True):
            if reply.token_ns:
                unsure = earlier + (reply.unsure_ns[0] if reply.unsure_ns else 0)
                self.first_byte.add_unsure(reply.token_ns[0] - call.due_ns, unsure)
            if kind := getattr(call.item, "kind", None):
                self.by_kind[kind].add_unsure(call.ended_ns - call.due_ns, earlier)
                self.bytes_by_kind[kind] += reply.size

    def count_answers(self, answers: Answers) -> "tuple[array[int], PreparedValues]":
        """Do the same as `add_many`, without kinds, bytes, and first bytes. Return the latencies."""
        latencies = array("q", map(sub, answers.ended_ns, answers.sent_ns))
        known = measured(latencies)
        self.calls += len(latencies)
        self.operations += answers.operations
        self.latency.count(known)
        self.latency_sent.count(known)
        return latencies, known

    def streams(self) -> list[ValueStream]:
        return [self.latency, self.latency_sent, self.first_byte, *self.by_kind.values()]

    def merge(self, other: "CallTally") -> None:
        for name in ("latency", "latency_sent", "first_byte"):
            getattr(self, name).merge(getattr(other, name))
        for kind, stream in other.by_kind.items():
            self.by_kind[kind].merge(stream)
            self.bytes_by_kind[kind] += other.bytes_by_kind[kind]
        self.calls += other.calls
        self.bytes += other.bytes
        self.operations += other.operations
