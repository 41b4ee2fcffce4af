"""Objects of a trial outside of its window: written before, looked at afterwards, removed whatever happened."""

import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

from benchhouse.experiments.storage.s3_content import Stretch
from benchhouse.experiments.storage.s3_source import Places, planned
from benchhouse.load.calls import CallTally
from benchhouse.load.endpoint import Servers
from benchhouse.load.protocols.calls import Reply
from benchhouse.load.protocols.s3 import S3Bucket, S3Item, S3Refused
from benchhouse.load.shape import Shape
from benchhouse.load.source import Planned
from benchhouse.load.trial import offer
from benchhouse.schema.errors import BenchError
from benchhouse.schema.experiment import Context

_IN_FLIGHT = 16
_READ_BACK_OBJECTS = 20
_READ_BACK_BYTES = 256 << 20
_SHOWN = 3


class Writes:
    """Writes each object once, and compares what the server calls them with their MD5."""

    needs_replies = False

    def __init__(self, driver: Any, objects: Sequence[tuple[str, Stretch]], seed: int) -> None:
        self.seed = seed
        self._driver, self._objects = driver, objects
        self.named_by_md5 = 0

    def take(self, index: int) -> Planned:
        key, content = self._objects[index]
        return planned(self._driver, S3Item("put", key, content))

    def answered(self, item: S3Item, reply: Reply) -> None:
        content: Any = item.content
        self.named_by_md5 += reply.error is None and reply.value == content.md5


def prepare(
    driver: Any, objects: Sequence[tuple[str, Stretch]], timeout_s: float, ctx: Context, *, where: str, servers: Servers
) -> bool:
    """Write the objects; whether the server names an object by the MD5 of its content, as most do."""
    source = Writes(driver, objects, ctx.seed)
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
    """Read some of what the load has written, evenly chosen; how many, and what is wrong with which."""
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
    """What is wrong with the number of objects there; a request that failed may have been carried out or not."""
    expected = prepared + stored - removed
    if expected - unsure <= len(keys) <= expected + unsure:
        return ""
    answered = f"{stored} writes and {removed} deletes were answered well, {unsure} were not"
    return f"{len(keys)} objects are there and {expected} should be: {prepared} were prepared, {answered}"


def remove(bucket: S3Bucket, places: Places, made: bool, ctx: Context) -> None:
    """Remove everything of ours, and only that; warns of what stays."""
    left: list[str] = []
    try:
        bucket.abort_uploads(places.prefix)
        left = bucket.remove([key for key in bucket.keys(places.prefix) if key.startswith(places.prefix)])
        left = left or [f"{key} is still there" for key in bucket.keys(places.prefix)]
        if made and not left:
            bucket.remove_bucket()
    except S3Refused as refused:
        left = [f"{refused.kind}: {refused.message}"]
    finally:
        bucket.close()
    if left:
        more = f" and {len(left) - _SHOWN} more" if len(left) > _SHOWN else ""
        shown = "; ".join(left[:_SHOWN]) + more
        ctx.warn("leftovers", f"not everything below {places.prefix} could be removed: {shown}")


@contextmanager
def ends_in_order() -> Iterator[None]:
    """Let a request to end (SIGTERM: a time limit, a cancelled run) pass through `finally`, so that objects go too."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(_number: int, _frame: Any) -> NoReturn:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # once is enough
        raise BenchError("the trial was asked to end")

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
