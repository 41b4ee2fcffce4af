"""A separate place of the trial in a bucket, for programs that reach it with s3fs under the user's Python."""

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
    """A place in a bucket; the URL of every object of the trial begins with `url`."""

    url: str
    where: str
    """Description for people."""
    environment: Mapping[str, str]
    """Variables with the server and the credentials for fsspec."""


@contextmanager
def s3_place(target: S3Target, ctx: Context) -> Iterator[S3Place]:
    """Yield a place in the bucket. Its objects are removed afterwards; all others are left alone."""
    with trial_prefix(target, ctx, key="target.s3") as place:
        url = f"s3://{place.name}/{place.places.prefix.rstrip('/')}"
        yield S3Place(url, place.where, _environment(target, place.driver, place.address))


def _environment(target: S3Target, driver: Any, address: str) -> dict[str, str]:
    """Return the variables as fsspec reads them: `FSSPEC_S3` holds the arguments of s3fs."""
    config = {"s3": {"addressing_style": target.style, "payload_signing_enabled": target.sign_payload}}
    region = target.region or os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or "us-east-1"
    client = {"region_name": region, "verify": target.verify_tls}
    credentials = driver.credentials
    arguments = {
        "endpoint_url": address, "key": credentials.access_key, "secret": credentials.secret,
        "token": credentials.token or None, "config_kwargs": config, "client_kwargs": client,
    }  # fmt: skip
    return {"FSSPEC_S3": json.dumps(arguments)}
