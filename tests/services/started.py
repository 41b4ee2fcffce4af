"""Servers of recipes, for tests: started as a trial starts them, in a folder in memory, and ended after."""

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from benchhouse.schema.recipe import Recipe, Service
from benchhouse.worker.services import single_server


@contextmanager
def running(recipe: Recipe, parameters: Mapping[str, str] | None = None) -> Iterator[Service]:
    folder = Path(
        tempfile.mkdtemp(prefix=f"{recipe.name}-", dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None)
    )
    try:
        with single_server(recipe, folder, parameters) as service:
            yield service
    finally:
        shutil.rmtree(folder, ignore_errors=True)
