"""A real S3 server for tests, from the recipe that trials use.

The fixture `seaweedfs` (tests/conftest.py): one server a test process.
"""

import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from services import started

from benchhouse.drivers.s3 import S3
from benchhouse.http.s3_bucket import Bucket
from benchhouse.load.protocols.s3 import S3Target
from benchhouse.recipes.seaweedfs import RECIPE
from benchhouse.schema.recipe import Recipe


@dataclass
class SeaweedFS:
    """A running server: where it is, and who may ask."""

    endpoint: str  # with credentials
    pid: int

    @property
    def url(self) -> str:
        parts = urlsplit(self.endpoint)
        return f"http://{parts.hostname}:{parts.port}"

    @property
    def environment(self) -> dict[str, str]:
        parts = urlsplit(self.endpoint)
        assert parts.username and parts.password
        return {"AWS_ACCESS_KEY_ID": parts.username, "AWS_SECRET_ACCESS_KEY": parts.password}

    def bucket(self, name: str) -> Bucket:
        """A second way to look at it; created where it is not there."""
        found = S3.for_target(S3Target(), self.endpoint, name).bucket()
        found.make_sure(create=True)
        return found

    def kill(self) -> None:
        """The server itself, not the shell that tidies up after it."""
        for child in Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split():
            os.kill(int(child), signal.SIGKILL)

    def kill_after(self, name: str, objects: int) -> None:
        """Kill it as soon as so many objects are in a bucket, from a thread."""
        bucket = self.bucket(name)

        def wait() -> None:
            while sum(1 for _ in bucket.keys("")) < objects:
                time.sleep(0.05)
            self.kill()

        threading.Thread(target=wait, daemon=True).start()


@contextlib.contextmanager
def running(recipe: Recipe = RECIPE) -> Iterator[SeaweedFS]:
    with started.running(recipe) as server:
        yield SeaweedFS(server.endpoint, server.pid)


@contextlib.contextmanager
def running_small() -> Iterator[SeaweedFS]:
    """One with eight volumes of 1 MiB: a first bucket takes seven of them, and gives them back when it is removed."""
    small = {"-master.volumeSizeLimitMB=256": "-master.volumeSizeLimitMB=1", "-volume.max=0": "-volume.max=8"}
    assert small.keys() <= set(RECIPE.command)
    command = [small.get(word, word) for word in RECIPE.command]
    with running(RECIPE.model_copy(update={"command": command})) as server:
        yield server


@pytest.fixture(scope="session")
def seaweedfs() -> Iterator[SeaweedFS]:
    with running() as server:
        yield server
