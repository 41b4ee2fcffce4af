"""One server without a trial: for benchmarks and tests of what talks to it."""

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path

from benchhouse.schema.recipe import Recipe, Service
from benchhouse.worker.output import Capture
from benchhouse.worker.services import Services


@contextlib.contextmanager
def running(
    recipe: Recipe, folder: Path, parameters: Mapping[str, str] | None = None, images: str = ""
) -> Iterator[Service]:
    """Started as a trial starts it, with its log in `folder/logs`; ended afterwards."""
    logs = Capture.begin(folder, "", streams=())
    services = Services(folder / "services", logs, images=images)
    try:
        with logs.pumping():
            try:
                yield services.start(recipe, parameters=parameters)
            finally:
                services.close()
    finally:
        logs.close()
