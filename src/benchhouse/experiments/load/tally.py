"""What is kept of calls whose answer is one piece: latency, operations, bytes. For every driver without token streams."""

from benchhouse.experiments.load.book import Call, Stream
from benchhouse.schema.load import Reply
from benchhouse.schema.slo import Slo

_SECOND_NS = 1_000_000_000


class CallTally:
    """Latency counts from when a call was due, `latency_sent` from when it was made; failed calls are in neither."""

    def __init__(self, slo: Slo | None) -> None:
        self.slo = slo
        self.latency, self.latency_sent = Stream(), Stream()
        self.calls = 0  # good and measured
        self.operations_in_window = 0.0  # of all good calls that ended in it
        self.bytes_in_window = 0
        self.by_second: dict[int, list[int]] = {}  # of the window: calls, sum of latency

    def add(self, call: Call, reply: Reply, start_ns: int, end_ns: int) -> int:
        good = reply.error is None
        if good and start_ns <= call.ended_ns < end_ns:
            self.operations_in_window += reply.count
            self.bytes_in_window += reply.size
        if not call.measured:
            return 0
        latency = call.ended_ns - call.due_ns
        if good:
            self.calls += 1
            self.latency.add(latency)
            self.latency_sent.add(call.ended_ns - call.sent_ns)
            row = self.by_second.setdefault((call.due_ns - start_ns) // _SECOND_NS, [0, 0])
            row[0] += 1
            row[1] += latency
        if self.slo is None:
            return 0
        over = self.slo.over({"latency": latency, "e2e": latency} if good else {}, error=not good)
        return sum(flag << number for number, flag in enumerate(over))

    def flush(self) -> None:
        _ = self.latency.histogram, self.latency_sent.histogram

    def merge(self, other: "CallTally") -> None:
        self.latency.merge(other.latency)
        self.latency_sent.merge(other.latency_sent)
        self.calls += other.calls
        self.operations_in_window += other.operations_in_window
        self.bytes_in_window += other.bytes_in_window
        for second, (calls, total) in other.by_second.items():
            row = self.by_second.setdefault(second, [0, 0])
            row[0] += calls
            row[1] += total
