"""Numbers that a program prints: found by a pattern, or as members of JSON lines."""

import json
import math
import re
import statistics
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Literal

from pydantic import Field, field_validator

from benchhouse.schema.experiment import Context, Direction
from benchhouse.schema.model import Model

SEARCHED_BYTES = 16 * 2**20  # of each output


class OutputMetric(Model):
    """A number that the program prints."""

    name: str = Field(pattern=r"^[A-Za-z][A-Za-z0-9_.@-]*$", max_length=100, description="Name of the metric.")
    unit: str = Field("1", description="Unit of the printed number.")
    direction: Direction | None = Field(None, description="Which way is better.")
    pattern: str = Field(description="Regular expression with one group around the number; `^` begins a line.")
    take: Literal["first", "last", "mean", "all"] = Field("last", description="Which of an execution's matches.")

    @field_validator("pattern")
    @classmethod
    def _one_group(cls, pattern: str) -> str:
        try:
            groups = re.compile(pattern).groups
        except re.error as error:
            raise ValueError(f"{pattern!r} is not a regular expression: {error}") from error
        if groups != 1:
            raise ValueError(f"{pattern!r} has {groups} groups; put exactly one around the number")
        return pattern

    def values(self, text: str) -> list[float]:
        """Numbers of one execution's output; what does not read as a finite number is passed over."""
        found: list[float] = []
        for match in re.finditer(self.pattern, text, re.MULTILINE):
            try:
                number = float(_without_thousands(match[1] or ""))
            except ValueError:
                continue
            if math.isfinite(number):
                found.append(number)
        if not found or self.take == "all":
            return found
        return [{"first": found[0], "last": found[-1], "mean": statistics.fmean(found)}[self.take]]


class PrintedValues:
    """What the executions printed, turned into numbers."""

    def __init__(self, metrics: Sequence[OutputMetric], json_lines: bool, reserved: frozenset[str]) -> None:
        self.metrics, self.json_lines = metrics, json_lines
        self.reserved = reserved | {metric.name for metric in metrics}
        self.values: dict[str, list[float]] = {metric.name: [] for metric in metrics}
        self.missed: Counter[str] = Counter()
        self.facts: dict[str, Any] = {}
        self.cut = 0

    def add(self, stdout: bytes, stderr: bytes) -> None:
        self.cut += max(len(stdout), len(stderr)) >= SEARCHED_BYTES
        text = stdout.decode(errors="replace")
        both = f"{text}\n{stderr.decode(errors='replace')}" if stderr else text
        for metric in self.metrics:
            found = metric.values(both)
            self.values[metric.name] += found
            self.missed[metric.name] += not found
        if self.json_lines:
            self.facts = {}
            for item in _json_objects(text):
                self._add_object(item)

    def _add_object(self, item: dict[str, Any]) -> None:
        for key, value in item.items():
            number = _finite(value)
            if number is not None:
                name = re.sub(r"[^A-Za-z0-9_.@-]", "_", key)[:90]
                if name in self.reserved or not name[:1].isalpha():
                    name = f"output.{name}"
                self.values.setdefault(name, []).append(number)
            else:
                self.facts[key] = value

    def report(self, executions: int, ctx: Context) -> None:
        declared = {metric.name: metric for metric in self.metrics}
        for metric in self.metrics:
            if self.missed[metric.name] == executions:
                ctx.fail(
                    "metric_not_found",
                    f"no output of {executions} executions has a number where {metric.name} looks for "
                    f"{metric.pattern!r}; artifacts/last.stdout shows what was printed",
                )
            if self.missed[metric.name]:
                ctx.warn(
                    "metric_missing",
                    f"{metric.name}: {self.missed[metric.name]} of {executions} executions did not print it",
                )
        if self.json_lines and len(self.values) == len(self.metrics):
            ctx.fail("metric_not_found", f"no JSON object with a number on the stdout of {executions} executions")
        if self.cut:
            searched = f"the last {SEARCHED_BYTES // 2**20} MiB of the output"
            ctx.warn(
                "output_cut", f"only {searched} were searched for metrics in {self.cut} of {executions} executions"
            )
        for name, values in self.values.items():
            for value in values:
                if known := declared.get(name):
                    ctx.emit(name, value, known.unit, direction=known.direction)
                else:
                    ctx.emit(name, value)
        if self.facts:
            ctx.metadata(output=self.facts)


def _json_objects(text: str) -> Iterator[dict[str, Any]]:
    for line in text.splitlines():
        if line.lstrip().startswith("{"):
            try:
                item = json.loads(line, parse_constant=str)
            except ValueError:
                continue
            if isinstance(item, dict):
                yield item


def _without_thousands(text: str) -> str:
    """`1,234.5` reads as 1234.5; a decimal comma (`3,5`) does not read as a number at all."""
    return text.replace(",", "") if re.fullmatch(r"[+-]?\d{1,3}(,\d{3})+(\.\d*)?", text) else text


def _finite(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None
