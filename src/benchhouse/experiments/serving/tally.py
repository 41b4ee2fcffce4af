"""The tally of the replies of an inference server: token latencies, token counts, and traces of contamination."""

from array import array
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from benchhouse.experiments.serving.steadiness import LatencyHistory, Silence
from benchhouse.load.answers import gaps
from benchhouse.load.load_record import Call
from benchhouse.load.protocols.calls import CallResult
from benchhouse.load.slo import Slo, missed
from benchhouse.load.streams import ValueStream


class ServingTally:
    """Latencies and counts of the replies. Latencies count from when a request was due, `*_sent` from when it was sent
    (the

    same in a closed loop). A failed request is excluded from every latency. Gaps are between events that brought
    output: a server may put several tokens into one, so token rates use the server's count, or that of `count_tokens`
    without it.
    """

    STREAMS = ("ttft", "ttft_sent", "itl", "tpot", "e2e", "e2e_sent", "jitter")

    def __init__(self, slo: Slo | None, count_tokens: Callable[[str], int] | None = None) -> None:
        self.slo = slo
        self._count_tokens = count_tokens
        self.ttft, self.ttft_sent, self.itl, self.tpot, self.e2e, self.e2e_sent, self.jitter = (
            ValueStream() for _ in self.STREAMS
        )
        self.requests = 0  # successful and measured
        self.events = 0
        self.input_tokens = 0
        self.output_tokens = 0
        self.cached_tokens = 0
        self.without_usage = 0  # answers whose output was not counted
        self.without_input = 0  # answers whose input was not counted
        self.counted_here = 0  # successful and measured, with output counted by `count_tokens`
        self.short = 0  # answers with fewer tokens than requested
        self.merged = 0  # answers with fewer events than tokens, beyond the one token that only ends an output
        self.tokens_in_window = 0.0  # of all requests, by the times of their events
        self.finishes: Counter[str] = Counter()
        self.history = LatencyHistory()  # of the window, by when requests were due
        self.silence = Silence()

    def add(self, call: Call, reply: CallResult, start_ns: int, end_ns: int) -> int:
        stamps = array("q", reply.token_ns or (call.ended_ns,))
        if reply.error is None:
            if reply.output_tokens is None and self._count_tokens:
                reply.output_tokens = self._count_tokens(reply.text)
                self.counted_here += call.measured
            if reply.input_tokens is None:
                reply.input_tokens = getattr(call.item, "input_tokens", None)
            self._place(call, stamps, reply, start_ns, end_ns)
        if not call.measured:
            return 0
        return self._measure(call, reply, stamps, start_ns) if reply.error is None else missed(self.slo, None)

    def _place(self, call: Call, stamps: "array[int]", reply: CallResult, start_ns: int, end_ns: int) -> None:
        """Count the output within the window, whether or not the request is measured."""
        if stamps[0] >= start_ns and stamps[-1] < end_ns:
            inside = len(stamps)
        else:
            inside = sum(start_ns <= stamp < end_ns for stamp in stamps)
        self.tokens_in_window += (reply.output_tokens or len(stamps)) * inside / len(stamps)
        self.silence.hear(start_ns, call.sent_ns, call.ended_ns, stamps)

    def _measure(self, call: Call, reply: CallResult, stamps: "array[int]", start_ns: int) -> int:
        e2e = call.ended_ns - call.due_ns
        ttft = tpot = worst = None
        self.requests += 1
        sending, late, queued = call.sending_ns, call.late_ns, call.sent_ns - call.due_ns
        self.e2e.add_unsure(e2e, late + sending + call.waited_ns)
        self.e2e_sent.add_unsure(e2e - queued, sending + call.waited_ns)
        if reply.token_ns:
            unsure = reply.unsure_ns or array("q", (call.waited_ns,)) * len(stamps)
            first, last, count = unsure[0], unsure[-1], max((reply.output_tokens or 0) - 1, 1)
            ttft = stamps[0] - call.due_ns
            self.ttft.add_unsure(ttft, late + sending + first)
            self.ttft_sent.add_unsure(ttft - queued, sending + first)
            self.events += len(stamps)
            if len(stamps) > 1:
                between, worst, changes = gaps(stamps)
                self._gaps(between, changes, unsure)
                if reply.output_tokens:
                    tpot = (stamps[-1] - stamps[0]) // count
                    self.tpot.add_unsure(tpot, last // count, first // count)
        self._count(call, reply, len(stamps))
        self.history.add(call.due_ns - start_ns, e2e if ttft is None else ttft, e2e)
        times = {"ttft": ttft, "itl": worst, "tpot": tpot, "e2e": e2e, "latency": e2e}
        return missed(self.slo, times)

    def _gaps(self, between: "array[int]", changes: int, unsure: Sequence[int]) -> None:
        """Add gaps between events that may have come `unsure` earlier: such an event makes the gap after it longer, and
        the gap before it shorter."""
        self.itl.extend_unsure(between, unsure[1:], unsure[:-1])
        if count := len(between) - 1:
            most = 4 * sum(unsure) // count  # each event is in two gaps, each gap in two changes
            self.jitter.add_unsure(changes // count, most, most)

    def _count(self, call: Call, reply: CallResult, events: int) -> None:
        if reply.output_tokens is None:
            self.without_usage += 1
        else:
            self.output_tokens += reply.output_tokens
            self.merged += bool(reply.token_ns) and events < reply.output_tokens - 1
            self.short += bool(call.item.output_tokens) and reply.output_tokens < call.item.output_tokens
        self.without_input += reply.input_tokens is None
        self.input_tokens += reply.input_tokens or 0
        self.cached_tokens += reply.cached_tokens or 0
        self.finishes[reply.finish] += 1

    def __getstate__(self) -> dict[str, Any]:
        """Return the state that a load process sends back: everything but the tokenizer."""
        return self.__dict__ | {"_count_tokens": None}

    def streams(self) -> list[ValueStream]:
        return [getattr(self, name) for name in self.STREAMS]

    def merge(self, other: "ServingTally") -> None:
        for name in self.STREAMS:
            getattr(self, name).merge(getattr(other, name))
        for name in ("requests", "events", "input_tokens", "output_tokens", "cached_tokens", "without_usage",
                     "without_input", "counted_here", "short", "merged", "tokens_in_window"):  # fmt: skip
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.finishes.update(other.finishes)
        self.history.merge(other.history)
        self.silence.merge(other.silence)
