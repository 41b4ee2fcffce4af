"""A separate place of the trial in a bucket, of a given or a started server; nothing is left there afterwards."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from secrets import token_hex
from typing import Any, NamedTuple, NoReturn
from urllib.parse import urlsplit

from benchhouse.experiments.storage.s3_source import Places
from benchhouse.http.s3_bucket import S3Refused
from benchhouse.load.protocols.s3 import S3Bucket, S3Target
from benchhouse.load.trial import advised, with_hint
from benchhouse.schema.errors import BenchError
from benchhouse.schema.experiment import Context

_BUCKET = "benchhouse"
_FOLDER = "benchhouse/"  # parent of all our objects in any bucket
_SHOWN = 3  # of objects that could not be removed
_ADMIN_S = 60.0


class OwnPlace(NamedTuple):
    """A place in a bucket; every key of the trial begins with `places.prefix`."""

    driver: Any
    bucket: S3Bucket
    name: str
    address: str  # of the server, without credentials
    where: str  # for people
    places: Places


@contextmanager
def trial_prefix(
    target: S3Target, ctx: Context, timeout_s: float = _ADMIN_S, key: str = "target"
) -> Iterator[OwnPlace]:
    """Yield a place in a bucket. Its objects are removed afterwards; all others are left alone. `key` is the name of
    `target` in the scenario."""
    if target.endpoint and not target.bucket:
        ctx.fail("no_bucket", f"{key}.bucket says which bucket to work in; objects of others in it are left alone")
    ours = not target.endpoint
    endpoint = ctx.service("seaweedfs").endpoint if ours else target.endpoint
    name = target.bucket or _BUCKET
    try:
        driver = ctx.driver(target.driver).for_target(target, endpoint, name)
    except BenchError as error:
        ctx.fail("no_credentials", with_hint(error))
    bucket: S3Bucket = driver.bucket(timeout_s)
    parts = urlsplit(endpoint)
    address = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
    where = f"bucket {name!r} at {urlsplit(driver.url).netloc}"
    with ends_in_order():
        try:
            made = bucket.make_sure(target.create_bucket or ours)
        except S3Refused as refused:
            hint = "; create_bucket: true creates it for the trial" if refused.kind == "http_404" else ""
            ctx.fail(refused.kind, advised(refused.kind, f"{where}: {refused.message}{hint}"))
        if others := bucket.folders(_FOLDER):  # including those of killed trials, which we must not remove either
            which = f"{len(others)} folders below {_FOLDER} are of other trials, such as {others[0]}"
            ctx.warn("others_objects", f"{which}: they run now, or were cut short (remove them by hand)")
        places = Places(f"{_FOLDER}{ctx.trial_id}-{token_hex(4)}/")
        try:
            yield OwnPlace(driver, bucket, name, address, where, places)
        finally:
            if ours:  # the bucket is removed with the server
                bucket.close()
            else:
                _remove(bucket, places, made, ctx)


def _remove(bucket: S3Bucket, places: Places, made: bool, ctx: Context) -> None:
    """Remove all our objects and no others, and warn about those that stay."""
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
    """Turn SIGTERM (a time limit, a cancelled run) into an error, so that `finally` blocks remove the objects."""
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
