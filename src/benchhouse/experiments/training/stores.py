"""A place of the trial's own in a bucket, for programs that reach it with s3fs under the user's Python."""

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from benchhouse.experiments.storage.s3_place import trial_prefix
from benchhouse.load.protocols.s3 import S3Target
from benchhouse.schema.experiment import Context


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
    with trial_prefix(target, ctx, key="target.s3") as place:
        url = f"s3://{place.name}/{place.places.prefix.rstrip('/')}"
        yield S3Place(url, place.where, _environment(target, place.driver, place.address))


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
