"""The host's own Python: the interpreter that runs `bench`."""

import sys

from benchhouse.schema.errors import BenchError
from benchhouse.schema.protocols import RuntimeContainer, RuntimeContext
from benchhouse.schema.resources import RuntimeSettings


class ProcessRuntime:
    def prepare(self, spec: RuntimeSettings, place: RuntimeContext) -> None:
        if spec.requirements or spec.environments or spec.python:
            raise BenchError(
                "the runtime 'process' uses the installed packages as they are",
                "for requirements or another python, write runtime: {kind: venv, ...}",
            )

    def python(self, spec: RuntimeSettings, place: RuntimeContext) -> tuple[str, ...]:
        return (sys.executable, "-P")  # a json.py in the current folder must not be imported

    def identity(self, spec: RuntimeSettings, place: RuntimeContext) -> str | None:
        return None

    def packages(self, spec: RuntimeSettings, place: RuntimeContext) -> str:
        return f"this Python ({sys.executable})"

    def container(self, spec: RuntimeSettings, place: RuntimeContext) -> RuntimeContainer | None:
        return None
