"""Sources of requests to a bucket: single ones by their weights, and those that follow from an answer."""

import random
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, Literal, NamedTuple

from benchhouse.experiments.storage.s3_content import Compared, Stretch
from benchhouse.load.calls import CallTally
from benchhouse.load.load_record import Call
from benchhouse.load.protocols.calls import CallResult, discard
from benchhouse.load.protocols.s3 import ListingPage, S3Item
from benchhouse.load.slo import Slo
from benchhouse.load.source import Planned
from benchhouse.load.streams import ValueStream

Operation = Literal["get", "put", "delete", "list", "multipart"]
_CYCLE = 1000  # requests in which the weights of a mix are met exactly
_SMALL_BYTES = 1 << 16  # a content up to this size goes into one buffer with the head
_SIGNED_FOR_S = 300.0  # servers accept a signature for 15 minutes
_SIGNED_BEFORE = 10_000


@dataclass(eq=False)
class Many:
    """An operation of several requests: a multipart upload, or a listing of several pages."""

    kind: Operation
    key: str
    content: Stretch | None = None
    parts: list[Stretch] = field(default_factory=list)
    etags: list[str] = field(default_factory=list)
    missing: int = 0  # parts without a successful answer
    listed: int = 0
    failed: bool = False
    began_ns: int = 0  # when its first request was due
    unsure_ns: int = 0  # possible delay of its requests by a late client
    measured: bool = False


class Places(NamedTuple):
    """Keys of the objects of a trial; all of them begin with `prefix`."""

    prefix: str

    def read(self, number: int) -> str:
        return f"{self.prefix}read/{number:08d}"

    def stock(self, number: int) -> str:
        """Return the key of an object to be deleted."""
        return f"{self.prefix}stock/{number:08d}"

    def written(self, number: int) -> str:
        return f"{self.prefix}written/{number:012d}"


class PreparedBucket(NamedTuple):
    """The bucket's objects before the load. Object n has the content n, modulo the number of contents."""

    places: Places
    contents: Sequence[Stretch]
    readable: int  # objects for get and list
    deletable: int
    named_by_md5: bool  # whether the server's ETag is the MD5 of a content


class RequestMix(NamedTuple):
    """Operations by weight, and their settings."""

    weights: Mapping[str, float]
    part_size: int = 8 << 20
    page_size: int = 1000
    verify: float = 0.1  # share of gets whose content is compared byte by byte


class ObjectRequests:
    """The source of a load. Contents of written objects repeat in order, so the number in a key identifies them."""

    def __init__(
        self, driver: Any, prepared: PreparedBucket, mix: RequestMix, *, processes: int = 1, seed: int = 0
    ) -> None:
        self.seed = seed
        self.needs_replies = bool({"list", "multipart"} & mix.weights.keys())
        self.events = 1.0
        self.alone = "objects to be deleted are written before, for a known number" if "delete" in mix.weights else ""
        self._driver, self._places, self._contents = driver, prepared.places, prepared.contents
        self._objects, self._page_size = prepared.readable, mix.page_size
        self._verify, self._etag_is_md5, self._processes = mix.verify, prepared.named_by_md5, processes
        uploads = prepared.contents if "multipart" in mix.weights else ()
        self._parts = {content: content.parts(mix.part_size) for content in uploads}
        self._cycle = cycle(mix.weights, seed)
        self._dice = random.Random(seed)
        self._ready: deque[S3Item] = deque()  # requests that follow from answers
        self._stock_size, self._stock = prepared.deletable, deque[str]()
        self._stock_is_ours = False
        self._deletes = "delete" in mix.weights
        self._reads: list[Planned | None] = []
        self._signed_until = 0.0

    def make_ready(self, *, writes: bool, sha256: bool = False) -> None:
        """Make the digests and signatures that the load will need, before the measured time."""
        for number in range(min(self._objects, _SIGNED_BEFORE)):
            self._get(number)
        for content in (*self._contents, *(part for parts in self._parts.values() for part in parts)) if writes else ():
            _ = content.md5 if self._etag_is_md5 else "", content.sha256 if sha256 else ""

    def take(self, index: int) -> Planned:
        while self._ready:
            item = self._ready.popleft()
            if item.kind == "abort" or not item.operation.failed:  # type: ignore[attr-defined]
                return planned(self._driver, item)
        return getattr(self, f"_{self._cycle[index % _CYCLE]}")(index)  # type: ignore[no-any-return]

    def _get(self, index: int) -> Planned:
        number = index % self._objects
        if monotonic() > self._signed_until:
            self._reads = [None] * self._objects
            self._signed_until = monotonic() + _SIGNED_FOR_S
        known = self._reads[number]
        if known is None:
            content = self._contents[number % len(self._contents)]
            item = S3Item("get", self._places.read(number), content)
            known = self._reads[number] = Planned(item, self._driver.head(item), (), discard)
        if self._dice.random() < self._verify:
            return known._replace(sink=Compared(known.item.content))
        return known

    def _put(self, index: int) -> Planned:
        content = self._contents[index % len(self._contents)]
        return planned(self._driver, S3Item("put", self._places.written(index), content))

    def _delete(self, index: int) -> Planned:
        if not self._stock_is_ours:  # each load process has its own part of the prepared objects
            numbers = range(index % self._processes, self._stock_size, self._processes)
            self._stock.extendleft(self._places.stock(number) for number in reversed(numbers))
            self._stock_is_ours = True
        if not self._stock:  # no put has been answered yet
            return self._put(index)
        return planned(self._driver, S3Item("delete", self._stock.popleft()))

    def _list(self, index: int) -> Planned:
        many = Many("list", self._places.read(0).rpartition("/")[0] + "/")
        return planned(self._driver, S3Item("list", many.key, page_size=self._page_size, operation=many))

    def _multipart(self, index: int) -> Planned:
        content = self._contents[index % len(self._contents)]
        many = Many("multipart", self._places.written(index), content, self._parts[content])
        many.missing, many.etags = len(many.parts), [""] * len(many.parts)
        return planned(self._driver, S3Item("create", many.key, operation=many))

    # Answers.

    def answered(self, item: S3Item, reply: CallResult) -> None:
        """Check the answer, set what it counts for, and prepare the requests that follow from it."""
        many: Any = item.operation
        if reply.error is None:
            self._check(item, reply)
        if many is None:
            if self._deletes and item.kind == "put" and reply.error is None:
                self._stock.append(item.key)
        elif reply.error is not None:
            if not many.failed and item.upload_id:
                self._ready.append(S3Item("abort", many.key, upload_id=item.upload_id, operation=many))
            many.failed = True
        elif item.kind == "list":
            self._listed(item, many, reply)
        else:
            self._uploaded(item, many, reply)

    def _check(self, item: S3Item, reply: CallResult) -> None:
        content: Any = item.content
        problem = ""
        if item.kind == "get":
            problem = reply.value.problem() if reply.value is not discard else ""
            if reply.size != content.size:
                problem = f"{reply.size} bytes came, {content.size} were written"
        elif item.kind in ("put", "part"):
            reply.size = content.size
            if self._etag_is_md5 and reply.value != content.md5:
                problem = f"the server's ETag is {reply.value!r}, the MD5 of what was sent {content.md5}"
        if problem:
            reply.error, reply.detail = "corrupt", f"{item.key}: {problem}"

    def _listed(self, item: S3Item, many: Many, reply: CallResult) -> None:
        page = reply.value
        if not isinstance(page, ListingPage):
            reply.error, reply.detail = "malformed", "the answer to a listing is none"
            return
        many.listed += len(page.keys)
        if page.after:
            reply.count = 0
            self._ready.append(S3Item("list", many.key, after=page.after, page_size=self._page_size, operation=many))
        elif many.listed != self._objects:
            reply.error = "corrupt"
            reply.detail = f"{many.listed} keys were listed below {many.key}, {self._objects} are there"

    def _uploaded(self, item: S3Item, many: Many, reply: CallResult) -> None:
        if item.kind != "complete":
            reply.count = 0  # the operation counts with its last request
        if item.kind == "create":
            for number, part in enumerate(many.parts, 1):
                self._ready.append(S3Item("part", many.key, part, str(reply.value), number, operation=many))
        elif item.kind == "part":
            many.etags[item.part - 1] = str(reply.value)
            many.missing -= 1
            if not many.missing:
                complete = S3Item("complete", many.key, upload_id=item.upload_id, etags=many.etags, operation=many)
                self._ready.appendleft(complete)


class S3Tally(CallTally):
    """In addition to single requests: whole operations, and the number of objects that must exist afterwards."""

    def __init__(self, slo: Slo | None = None) -> None:
        super().__init__(slo)
        self.whole: dict[str, ValueStream] = {"list": ValueStream(), "multipart": ValueStream()}
        self.stored = self.removed = self.unsure = 0  # of all requests, measured or not
        self.verified = 0
        self.done = self.moved = 0.0  # operations and bytes, each by the share of its time within the window

    def add(self, call: Call, reply: CallResult, start_ns: int, end_ns: int) -> int:
        if reply.error is not None or not call.measured:
            self._note(call, reply)
        if reply.error is None:
            inside = min(call.ended_ns, end_ns) - max(call.sent_ns, start_ns)
            share = max(inside, 0) / max(call.ended_ns - call.sent_ns, 1)
            self._count(reply, share - call.measured)  # measured requests are counted below, as a whole
        return super().add(call, reply, start_ns, end_ns)

    def add_many(self, ended: list[tuple[Call, CallResult]]) -> None:
        super().add_many(ended)
        for call, reply in ended:
            self._note(call, reply)
            self._count(reply, 1.0)

    def _count(self, reply: CallResult, share: float) -> None:
        self.done += share * reply.count
        self.moved += share * reply.size

    def _note(self, call: Call, reply: CallResult) -> None:
        item: S3Item = call.item
        good = reply.error is None
        if item.kind in ("put", "complete"):
            self.stored, self.unsure = self.stored + good, self.unsure + (not good)
        elif item.kind == "delete":
            self.removed, self.unsure = self.removed + good, self.unsure + (not good)
        elif item.kind == "get":
            self.verified += isinstance(reply.value, Compared) and call.measured
        many: Any = item.operation
        if many is not None:
            if not many.began_ns:
                many.began_ns, many.measured = call.due_ns, call.measured
            many.unsure_ns += call.late_ns + call.sending_ns + call.waited_ns
            if good and reply.count and many.measured:  # the last request of the operation
                self.whole[many.kind].add_unsure(call.ended_ns - many.began_ns, many.unsure_ns)

    def streams(self) -> list[ValueStream]:
        return [*super().streams(), *self.whole.values()]

    def merge(self, other: CallTally) -> None:
        super().merge(other)
        assert isinstance(other, S3Tally)
        for kind, stream in other.whole.items():
            self.whole[kind].merge(stream)
        for name in ("stored", "removed", "unsure", "verified", "done", "moved"):
            setattr(self, name, getattr(self, name) + getattr(other, name))


def planned(driver: Any, item: S3Item) -> Planned:
    """Return a request with its content, in one buffer or in pieces."""
    head = driver.head(item)
    if item.kind not in ("put", "part"):
        return Planned(item, head)
    content: Any = item.content
    if content.size <= _SMALL_BYTES:
        return Planned(item, head + content.whole)
    return Planned(item, head, content.pieces())


def cycle(mix: Mapping[str, float], seed: int) -> list[str]:
    """Return the operations of a mix in an order drawn once, each with the frequency of its weight."""
    total, drawn, at = sum(mix.values()), [], 0.0
    for kind, weight in mix.items():
        before, at = at, at + weight
        drawn += [kind] * (round(at / total * _CYCLE) - round(before / total * _CYCLE))
    random.Random(seed).shuffle(drawn)
    return drawn
