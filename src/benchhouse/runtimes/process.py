"""The host's own Python: the interpreter that runs `bench`."""

import sys

from benchhouse.schema.errors import BenchError
from benchhouse.schema.protocols import Container, Place
from benchhouse.schema.resources import Runtime


class ProcessRuntime:
    def prepare(self, spec: Runtime, place: Place) -> None:
        if spec.requirements or spec.environments or spec.python:
            raise BenchError(
                "the runtime 'process' uses the installed packages as they are",
                "for requirements or another python, write runtime: {kind: venv, ...}",
            )

    def python(self, spec: Runtime, place: Place) -> tuple[str, ...]:
        return (sys.executable, "-P")  # a json.py in the current folder is not ours to import

    def identity(self, spec: Runtime, place: Place) -> str | None:
        return None

    def packages(self, spec: Runtime, place: Place) -> str:
        return f"this Python ({sys.executable})"

    def container(self, spec: Runtime, place: Place) -> Container | None:
        return None
