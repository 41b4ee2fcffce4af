"""Experiment `storage.s3`: a bucket under a load of gets, puts, deletes, listings, and multipart uploads."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from pydantic import Field, model_validator

from benchhouse.experiments.storage.s3_content import Stretch, make_contents
from benchhouse.experiments.storage.s3_place import trial_prefix
from benchhouse.experiments.storage.s3_source import (
    ObjectRequests,
    Operation,
    Places,
    PreparedBucket,
    RequestMix,
    S3Tally,
    cycle,
    planned,
)
from benchhouse.experiments.storage.user_content import Given
from benchhouse.http.s3_bucket import S3Refused
from benchhouse.load.calls import CallTally
from benchhouse.load.endpoint import EndpointServers
from benchhouse.load.load_record import LoadRecord
from benchhouse.load.metrics import FAILURES, FROM_DUE, GOODPUT, LATENCY_SENT, REQUESTS_PER_S, higher, lower
from benchhouse.load.protocols.calls import CallResult
from benchhouse.load.protocols.s3 import S3Bucket, S3Item, S3Target
from benchhouse.load.shape import Shape
from benchhouse.load.source import Planned
from benchhouse.load.trial import emit_rate, emit_rates, emit_times, judge, keep_book, offer
from benchhouse.schema.experiment import Context, experiment
from benchhouse.schema.quantities import Bytes

_IN_FLIGHT = 16
_READ_BACK_OBJECTS = 20
_READ_BACK_BYTES = 256 << 20
_SHOWN = 3


class S3Writes:
    """Writes each object once, and compares the ETag that the server returns with its MD5."""

    needs_replies = False
    events, alone = 1.0, "it compares what the server calls each object"

    def __init__(self, driver: Any, objects: Sequence[tuple[str, Stretch]], seed: int) -> None:
        self.seed = seed
        self._driver, self._objects = driver, objects
        self.named_by_md5 = 0

    def take(self, index: int) -> Planned:
        key, content = self._objects[index]
        return planned(self._driver, S3Item("put", key, content))

    def answered(self, item: S3Item, reply: CallResult) -> None:
        content: Any = item.content
        self.named_by_md5 += reply.error is None and reply.value == content.md5


def prepare(
    driver: Any,
    objects: Sequence[tuple[str, Stretch]],
    timeout_s: float,
    ctx: Context,
    *,
    where: str,
    servers: EndpointServers,
) -> bool:
    """Write the objects. Return whether the server's ETags are the MD5 of contents, as on most servers."""
    source = S3Writes(driver, objects, ctx.seed)
    shape = Shape(concurrency=min(_IN_FLIGHT, len(objects)), requests=len(objects), warmup=0, timeout=timeout_s)
    book = offer(lambda: driver, source, shape, CallTally, ctx, where=where, servers=servers)
    if book.stopped or book.failed:
        kind, count = (book.errors.most_common(1) or [("server_gone", 0)])[0]
        detail = book.details.get(kind) or book.stopped
        ctx.fail(kind, f"{count} of {len(objects)} objects could not be written before the load: {detail}")
    if 0 < source.named_by_md5 < len(objects):
        other = len(objects) - source.named_by_md5
        ctx.fail("corrupt", f"{other} of {len(objects)} objects got an ETag that is not the MD5 of what was sent")
    return source.named_by_md5 > 0


def read_back(
    bucket: S3Bucket, keys: Sequence[str], contents: Sequence[Stretch], share: float
) -> tuple[int, list[str]]:
    """Read some of the objects that the load wrote, evenly chosen. Return their number and the problems found."""
    most = min(_READ_BACK_OBJECTS, max(_READ_BACK_BYTES // contents[0].size, 1))
    count = min(round(len(keys) * share + 0.499), most) if share else 0
    problems = []
    for at in range(count):
        key = keys[at * len(keys) // count]
        content = contents[int(key.rpartition("/")[2]) % len(contents)]
        try:
            problem = content.problem(bucket.read(key))
        except S3Refused as refused:
            problem = f"{refused.kind}: {refused.message}"
        if problem:
            problems.append(f"{key}: {problem}")
    return count, problems


def lost_writes(keys: Sequence[str], prepared: int, stored: int, removed: int, unsure: int) -> str:
    """Describe a wrong number of objects; empty if it is right. A request that failed may have taken effect or not."""
    expected = prepared + stored - removed
    if expected - unsure <= len(keys) <= expected + unsure:
        return ""
    answered = f"{stored} writes and {removed} deletes were answered well, {unsure} were not"
    return f"{len(keys)} objects are there and {expected} should be: {prepared} were prepared, {answered}"


_LEAST_PART = 5 << 20  # limit of S3 itself
_MOST_PARTS = 10_000
_PREPARED_BYTES = 256 << 20
_SINGLE = ("get", "put", "delete", "part")


METRICS = (
    higher(
        "operations_per_s",
        "1/s",
        "good operations / seconds of the window; an upload in parts and a listing of pages are one each, and count "
        "with their last request",
        "throughput",
        primary=True,
    ),
    higher(
        "bandwidth",
        "MB/s",
        "bytes of object content that good requests moved, either way / 10^6 / seconds of the window",
    ),
    lower("latency", "ms", f"of any request, {FROM_DUE}", "latency", primary=True),
    LATENCY_SENT,
    GOODPUT,
    lower("ttfb", "ms", f"of a get: to the first byte of its answer, {FROM_DUE}"),
    lower("latency_get", "ms", f"of a get, to its last byte, {FROM_DUE}"),
    lower("latency_put", "ms", f"of a put in one request, {FROM_DUE}"),
    lower("latency_delete", "ms", f"of a delete, {FROM_DUE}"),
    lower("latency_list", "ms", f"of a listing with all its pages, {FROM_DUE}"),
    lower("latency_part", "ms", f"of one part of an upload, {FROM_DUE}"),
    lower("latency_multipart", "ms", f"of an upload: create, all parts, complete, {FROM_DUE}"),
    lower("corrupt", "1", "answers and objects whose content is not as written"),
    REQUESTS_PER_S,
    *FAILURES,
)


class S3Workload(Shape):
    """The load and its objects."""

    operation: Operation | None = Field(None, description="What every operation is; get by default.")
    mix: dict[Operation, float] | None = Field(None, description="Several by weight: {get: 70, put: 20, list: 10}.")
    size: Bytes = Field(10**6, gt=0, le=5 * 10**12, description="Size of an object.")
    content: Given | None = Field(None, description="A file whose bytes objects hold, instead of random ones.")
    objects: int | None = Field(None, ge=1, le=10**7, description="Objects for get and list; 4 to 1000 by default.")
    part_size: Bytes = Field(8 << 20, ge=_LEAST_PART, le=5 << 30, description="multipart: size of a part.")
    page_size: int = Field(1000, ge=1, le=1000, description="list: keys a page.")
    verify: float = Field(0.1, ge=0, le=1, description="Share of gets compared, and of written objects read back.")

    @model_validator(mode="after")
    def _goes_together(self) -> "S3Workload":
        if self.operation and self.mix is not None:
            raise ValueError("give operation or mix, not both")
        if self.mix is not None and (not self.mix or min(self.mix.values()) <= 0):
            raise ValueError("mix needs at least one operation, and weights above 0")
        weights = self.weights
        if {"get", "put", "delete"} & weights.keys() and self.size > 5 * 10**9:
            raise ValueError("S3 takes at most 5 GB with one put: use operation: multipart")
        if "multipart" in weights and self.size > self.part_size * _MOST_PARTS:
            raise ValueError(f"S3 takes at most {_MOST_PARTS} parts: use a larger part_size")
        if self.runs_dry and (not self.requests or self.warmup or self.cooldown):
            cure = "give requests instead of duration (so many are written before), and warmup: 0"
            raise ValueError(f"a delete needs an object that is there: with more deletes than puts, {cure}")
        return self

    @property
    def weights(self) -> dict[str, float]:
        return {str(kind): weight for kind, weight in (self.mix or {self.operation or "get": 1.0}).items()}

    @property
    def runs_dry(self) -> bool:
        """Whether more objects are deleted than written."""
        return self.weights.get("delete", 0) > self.weights.get("put", 0)

    @property
    def readable(self) -> int:
        """Number of objects to write before the load, for get and list."""
        if not {"get", "list"} & self.weights.keys():
            return 0
        return self.objects or min(max(_PREPARED_BYTES // self.size, 4), 1000)

    def stock(self, seed: int) -> int:
        """Return the number of objects to write before the load, for delete."""
        if "delete" not in self.weights:
            return 0
        if not self.runs_dry:
            return 64 + 4 * min(self.most_in_flight, 256)
        order, requests = cycle(self.weights, seed), (self.requests or 0) + self.shards
        shares = [
            sum(order[index % len(order)] == "delete" for index in range(shard, requests, self.shards))
            for shard in range(self.shards)
        ]
        return max(shares) * self.shards


class _Trial(NamedTuple):
    """The facts of a trial before its load begins."""

    target: S3Target
    workload: S3Workload
    driver: Any
    bucket: S3Bucket
    where: str  # for people
    places: Places
    contents: list[Stretch]


@experiment(
    "storage.s3",
    version="0.1",
    metrics=METRICS,
    component="storage",
    services=("s3",),
    drivers=("s3",),
    dataset="content.file",
)
def s3(target: S3Target, workload: S3Workload, ctx: Context) -> None:
    """Put a bucket under load: any S3-compatible server, objects of 1 KB to 1 GB, contents checked."""
    with _trial(target, workload, ctx) as trial:
        readable, stock = workload.readable, workload.stock(ctx.seed)
        keys = [*map(trial.places.read, range(readable)), *map(trial.places.stock, range(stock))]
        keys = keys or [trial.places.stock(0)]  # even one object shows how the server forms its ETags
        objects = [(key, trial.contents[int(key.rpartition("/")[2]) % len(trial.contents)]) for key in keys]
        offered: dict[str, Any] = {"where": trial.where, "servers": EndpointServers(verify_tls=target.verify_tls)}
        etag_is_md5 = prepare(trial.driver, objects, workload.timeout, ctx, **offered)
        prepared = PreparedBucket(trial.places, trial.contents, readable, len(keys) - readable, etag_is_md5)
        mix = RequestMix(workload.weights, workload.part_size, workload.page_size, workload.verify)
        source = ObjectRequests(trial.driver, prepared, mix, processes=workload.shards, seed=ctx.seed)
        source.make_ready(writes=not workload.weights.keys() <= {"get", "list"}, sha256=target.sign_payload)
        book = offer(lambda: trial.driver, source, workload, lambda: S3Tally(workload.objectives), ctx, **offered)
        certificate = keep_book(book, workload, ctx)
        _keep_evidence(trial, book, etag_is_md5, ctx)
        judge(book, certificate, ctx)
        corrupt = _verify_written_objects(trial, book, len(keys), ctx)
        _report(workload, book, corrupt, ctx)


@contextmanager
def _trial(target: S3Target, workload: S3Workload, ctx: Context) -> Iterator[_Trial]:
    """Yield a separate place in a bucket, and the contents to write there."""
    with trial_prefix(target, ctx, workload.timeout) as place:
        given = workload.content.checked() if workload.content else None
        most = max(workload.readable, workload.requests or 64)
        contents = make_contents(ctx.seed, workload.size, most, given)
        yield _Trial(target, workload, place.driver, place.bucket, place.where, place.places, contents)


def _keep_evidence(trial: _Trial, book: LoadRecord, etag_is_md5: bool, ctx: Context) -> None:
    tally: S3Tally = book.tally
    ctx.metadata(
        bucket=trial.where,
        deployment="server" if trial.target.endpoint else "embedded",
        addressing=trial.target.style,
        payload="signed" if trial.target.sign_payload else "unsigned",
        etag_is_md5=etag_is_md5,
        objects_prepared=trial.workload.readable,
        distinct_contents=len(trial.contents),
        requests={kind: stream.histogram.n for kind, stream in sorted(tally.by_kind.items())},
        bytes={kind: size for kind, size in sorted(tally.bytes_by_kind.items()) if size},
        compared=tally.verified,
    )


def _verify_written_objects(trial: _Trial, book: LoadRecord, prepared: int, ctx: Context) -> int:
    """Count the objects and read some of them. Return how many answers and objects were not as written."""
    tally: S3Tally = book.tally
    corrupt: int = book.errors["corrupt"]
    if not tally.stored and not tally.removed:
        return corrupt
    try:
        keys = list(trial.bucket.keys(trial.places.prefix))
    except S3Refused as refused:
        ctx.invalid("not_listed", f"what was written could not be looked at: {refused.kind}: {refused.message}")
        return corrupt
    if lost := lost_writes(keys, prepared, tally.stored, tally.removed, tally.unsure):
        ctx.invalid("writes_lost", lost)
    written = [key for key in keys if key.startswith(trial.places.prefix + "written/")]
    count, problems = read_back(trial.bucket, written, trial.contents, trial.workload.verify)
    ctx.metadata(read_back=count)
    if problems:
        ctx.invalid("writes_corrupt", f"{len(problems)} of {count} objects read back: {problems[0]}")
    return corrupt + len(problems)


def _report(workload: S3Workload, book: LoadRecord, corrupt: int, ctx: Context) -> None:
    tally: S3Tally = book.tally
    requests_per_s = emit_rates(book, workload, ctx)
    if len(tally.by_kind) == 1 and tally.operations == tally.calls:  # all requests are of one kind
        operations_per_s, bytes_per_s = requests_per_s, requests_per_s * tally.bytes / tally.calls
    else:
        operations_per_s, bytes_per_s = tally.done / book.window_s, tally.moved / book.window_s
    emit_rate("operations_per_s", operations_per_s, book, workload, ctx)
    emit_rate("bandwidth", bytes_per_s / 1e6, book, workload, ctx)
    ctx.emit("corrupt", corrupt)
    single = {kind: tally.by_kind[kind] for kind in _SINGLE if kind in tally.by_kind}
    times = {"latency": tally.latency, "latency_sent": tally.latency_sent, "ttfb": tally.first_byte}
    times |= {f"latency_{kind}": stream for kind, stream in (single | tally.whole).items()}
    emit_times(times, book, workload, ctx)
    if book.failed:
        kind, count = book.errors.most_common(1)[0]
        total = book.failed + book.succeeded
        ctx.warn("failures", f"{book.failed} of {total} requests failed, {kind} {count} times: {book.details[kind]}")
    if "put" in tally.by_kind and "put" not in workload.weights:
        ctx.warn("deletes_replaced", f"{tally.by_kind['put'].histogram.n} puts stand in for deletes without an object")
