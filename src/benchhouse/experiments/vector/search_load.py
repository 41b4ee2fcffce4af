"""The searches of a load: a caller in each thread, the answers that are recorded, and vectors ingested meanwhile."""

import threading
from collections.abc import Callable, Sequence
from random import Random
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from benchhouse.load.calls import CallTally
from benchhouse.load.load_record import Answers, Call
from benchhouse.load.protocols.calls import CallResult
from benchhouse.load.protocols.vector import VectorDriver
from benchhouse.load.slo import Slo

if TYPE_CHECKING:
    from numpy import float32
    from numpy.typing import NDArray

    Calls = Sequence[NDArray[float32]]

_SAMPLE = 10_000  # answers


class Searcher:
    """The driver of one thread. The item of a call is its number; its answer is the result of `search`."""

    transport: ClassVar[Literal["call"]] = "call"

    def __init__(
        self, driver: VectorDriver, calls: "Calls", k: int, below: int | None, tide: "BackgroundIngest | None" = None
    ) -> None:
        self._driver, self._calls, self._k, self._below, self._tide = driver, calls, k, below, tide
        self.ask: Callable[[int], Any] = self._with_tide(self._search_by_number())  # `open` may set a faster one

    def open(self) -> None:
        if not self._driver.shared:
            self._driver.open()
        prepare = getattr(self._driver, "prepare", None)
        search = prepare(self._calls, self._k) if prepare and self._below is None else None
        self.ask = self._with_tide(search or self._search_by_number())

    def _search_by_number(self) -> Callable[[int], Any]:
        search, calls, k, below = self._driver.search, self._calls, self._k, self._below
        return lambda item: search(calls[item], k, below)

    def _with_tide(self, search: Callable[[int], Any]) -> Callable[[int], Any]:
        """Return each answer together with the number of vectors that were acknowledged before its search."""
        if self._tide is None:
            return search
        acknowledged = self._tide.acknowledged

        def ask(item: int) -> tuple[Any, int]:
            known = acknowledged()
            return search(item), known

        return ask

    def reply(self, item: int, answer: Any) -> CallResult:
        return CallResult(count=len(self._calls[item]), value=answer)

    def operations(self, items: Sequence[int], _: Sequence[Any]) -> int:
        return sum([len(self._calls[item]) for item in items])

    def call(self, item: int) -> CallResult:
        return self.reply(item, self.ask(item))

    def close(self) -> None:
        if not self._driver.shared:
            self._driver.close()


class AnswerTally(CallTally):
    """A tally that also records answers for recall: the first measured one of each call of the pool."""

    def __init__(self, slo: Slo | None = None) -> None:
        super().__init__(slo)
        self.answers: dict[int, Any] = {}

    def add_many(self, ended: list[tuple[Call, CallResult]]) -> None:
        super().add_many(ended)
        for call, reply in ended:
            self.answers.setdefault(call.item, reply.value)

    def add_answers(self, answers: Answers) -> None:
        self.count_answers(answers)
        if self.answers.keys() >= set(answers.items):  # usually true, after each query was sent once
            return
        for item, value in zip(answers.items, answers.values, strict=True):
            self.answers.setdefault(item, value)

    def kept(self) -> list[tuple[int, Any]]:
        """Return the numbers of calls, and their answers."""
        return sorted(self.answers.items())

    def merge(self, other: "CallTally") -> None:
        super().merge(other)
        assert isinstance(other, AnswerTally)
        self.answers = other.answers | self.answers


class SampleTally(CallTally):
    """A tally with a fair sample of all measured answers: during ingest, a query may get another answer later."""

    def __init__(self, slo: Slo | None = None) -> None:
        super().__init__(slo)
        self._sample: list[tuple[int, Any]] = []
        self._seen = 0
        self._random = Random(0)

    def add_many(self, ended: list[tuple[Call, CallResult]]) -> None:
        super().add_many(ended)
        for call, reply in ended:
            self._seen += 1
            if len(self._sample) < _SAMPLE:
                self._sample.append((call.item, reply.value))
            elif (place := self._random.randrange(self._seen)) < _SAMPLE:
                self._sample[place] = (call.item, reply.value)

    def kept(self) -> list[tuple[int, Any]]:
        return self._sample


class BackgroundIngest:
    """Vectors ingested during the searches: batches at even steps from the end of the warm-up, in one thread, started
    by the first search. A batch that takes longer than its step delays the next ones."""

    def __init__(
        self, ingest: Callable[[int, int], None], edges: Sequence[int], warmup_s: float, window_s: float
    ) -> None:
        """`ingest(a, b)` ingests vectors a to b, for all neighboring edges; those before the first already are."""
        self._ingest, self._warmup_s, self._window_s = ingest, warmup_s, window_s
        self._first, *self._edges = edges
        self._known = self._first
        self._begun, self._over = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.problem: Exception | None = None
        self.seconds = 0.0  # from the end of the warm-up until the last batch was acknowledged

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._over.set()
        self._begun.set()
        if self._thread.ident:
            self._thread.join()

    def acknowledged(self) -> int:
        """Return the number of vectors, from the first, that the database has acknowledged."""
        self._begun.set()
        return self._known

    @property
    def ingested(self) -> int:
        return self._known - self._first

    def _run(self) -> None:
        self._begun.wait()
        opened = monotonic() + self._warmup_s
        for number, edge in enumerate(self._edges):
            due = opened + number * self._window_s / len(self._edges)
            while not self._over.is_set() and (left := due - monotonic()) > 0:
                sleep(min(left, 0.05))
            if self._over.is_set():
                return
            try:
                self._ingest(self._known, edge)
            except Exception as problem:  # noqa: BLE001 - raised by whoever started it
                self.problem = problem
                return
            self._known = edge
            self.seconds = monotonic() - opened
