"""A place of the trial's own in a bucket, for programs that reach it with s3fs under the user's Python."""

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from secrets import token_hex
from typing import Any
from urllib.parse import urlsplit

from benchhouse.experiments.storage.s3 import ends_in_order, remove
from benchhouse.experiments.storage.s3_source import Places
from benchhouse.load.protocols.s3 import S3Bucket, S3Refused, S3Target
from benchhouse.load.trial import advised, with_hint
from benchhouse.schema.errors import BenchError
from benchhouse.schema.experiment import Context

_BUCKET = "benchhouse"


@dataclass(frozen=True)
class S3Place:
    """Everything of ours begins with `url`."""

    url: str
    where: str
    """For people."""
    environment: Mapping[str, str]
    """With it, fsspec finds the server and who asks."""


@contextmanager
def s3_place(target: S3Target, ctx: Context) -> Iterator[S3Place]:
    """Objects below it are removed afterwards; those of others are left alone."""
    if target.endpoint and not target.bucket:
        ctx.fail("no_bucket", "target.s3.bucket says which bucket to work in; objects of others in it are left alone")
    ours = not target.endpoint
    endpoint = ctx.service("seaweedfs").endpoint if ours else target.endpoint
    name = target.bucket or _BUCKET
    try:
        driver = ctx.driver(target.driver).for_target(target, endpoint, name)
    except BenchError as error:
        ctx.fail("no_credentials", with_hint(error))
    bucket: S3Bucket = driver.bucket()
    parts = urlsplit(endpoint)
    address = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
    prefix = f"benchhouse/{ctx.trial_id}-{token_hex(4)}/"
    with ends_in_order():
        try:
            made = bucket.make_sure(target.create_bucket or ours)
        except S3Refused as refused:
            hint = "; create_bucket: true creates it for the trial" if refused.kind == "http_404" else ""
            ctx.fail(refused.kind, advised(refused.kind, f"bucket {name!r} at {address}: {refused.message}{hint}"))
        try:
            where = f"bucket {name!r} at {address}"
            yield S3Place(f"s3://{name}/{prefix.rstrip('/')}", where, _environment(target, driver, address))
        finally:
            if ours:  # it goes with the server
                bucket.close()
            else:
                remove(bucket, Places(prefix), made, ctx)


def _environment(target: S3Target, driver: Any, address: str) -> dict[str, str]:
    """As fsspec reads it: `FSSPEC_S3` are the arguments of s3fs."""
    config = {"s3": {"addressing_style": target.style, "payload_signing_enabled": target.sign_payload}}
    region = target.region or os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or "us-east-1"
    client = {"region_name": region, "verify": target.verify_tls}
    credentials = driver.credentials
    arguments = {
        "endpoint_url": address, "key": credentials.access_key, "secret": credentials.secret,
        "token": credentials.token or None, "config_kwargs": config, "client_kwargs": client,
    }  # fmt: skip
    return {"FSSPEC_S3": json.dumps(arguments)}
