"""Numbers that a program prints: found with a pattern, or as members of JSON lines."""

import json
import math
import re
import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal

from pydantic import Field, field_validator

from benchhouse.experiments.emitted_records import Emitted
from benchhouse.experiments.pattern_search import PatternSearch, SlowPattern
from benchhouse.schema.experiment import Context, Direction
from benchhouse.schema.model import Model
from benchhouse.schema.patterns import compiled
from benchhouse.schema.quoting import quote

SEARCHED_BYTES = 16 * 2**20  # of each output


class PrintedMetric(Model):
    """A number that the program prints."""

    name: str = Field(pattern=r"^[A-Za-z][A-Za-z0-9_.@-]*$", max_length=100, description="Name of the metric.")
    unit: str = Field("1", description="Unit of the printed number.")
    direction: Direction | None = Field(None, description="Which way is better.")
    pattern: str | None = Field(
        None,
        description="Regular expression with one group around the number; by default the JSON member of that name.",
    )
    take: Literal["first", "last", "mean", "all"] | None = Field(
        None, description="Which of an execution's values; by default the last match of a pattern, all of a member."
    )

    @field_validator("pattern")
    @classmethod
    def _one_group(cls, pattern: str | None) -> str | None:
        if pattern is None:
            return None
        try:
            groups = compiled(pattern).groups
        except ValueError as error:
            raise ValueError(f"{quote(pattern)} is {error}") from error
        if groups != 1:
            raise ValueError(f"{pattern!r} has {groups} groups; put exactly one around the number")
        return pattern

    def values(self, matches: Sequence[str]) -> list[float]:
        """Return the numbers among the matches of one execution's output; other matches are ignored."""
        numbers = [_number(_without_thousands(match)) for match in matches]
        return self.taken([number for number in numbers if number is not None])

    def taken(self, values: list[float]) -> list[float]:
        take = self.take or ("all" if self.pattern is None else "last")
        if not values or take == "all":
            return values
        return [{"first": values[0], "last": values[-1], "mean": statistics.fmean(values)}[take]]


class PrintedValues:
    """The numbers that the executions printed."""

    def __init__(self, metrics: Sequence[PrintedMetric], json_lines: bool, reserved: frozenset[str]) -> None:
        self.declared = {metric.name: metric for metric in metrics}
        self.patterns = [metric for metric in metrics if metric.pattern is not None]
        self._search = PatternSearch({metric.name: metric.pattern for metric in self.patterns if metric.pattern})
        self.slow = ""  # the name of a pattern that takes too long
        self.json_lines = json_lines
        self.reserved = reserved | {metric.name for metric in self.patterns}
        self.values: dict[str, list[float]] = {metric.name: [] for metric in metrics}
        self.missed: Counter[str] = Counter()
        self.not_finite: Counter[str] = Counter()  # values: they are excluded from every figure
        self.members: set[str] = set()  # names of all numbers found in JSON
        self.facts: dict[str, Any] = {}
        self.cut = 0
        self.lost = 0  # emitted records that were not written

    def add(self, stdout: bytes, stderr: bytes, emitted: Sequence[Emitted]) -> None:
        """Add the output of one execution, and the records that it emitted."""
        self.cut += max(len(stdout), len(stderr)) >= SEARCHED_BYTES
        text = stdout.decode(errors="replace")
        both = f"{text}\n{stderr.decode(errors='replace')}" if stderr else text
        printed = self._searched(both)
        self.lost += sum(process.lost for process in emitted)
        objects = [
            *(_json_objects(text) if self.json_lines else ()),
            *(item for each in emitted for item in each.figures),
        ]
        members = self._members(objects)
        self.members |= members.keys()
        for name, numbers in members.items():
            printed[name] = self.declared[name].taken(numbers) if name in self.declared else numbers
        for name, numbers in printed.items():
            finite = [number for number in numbers if math.isfinite(number)]
            self.values.setdefault(name, []).extend(finite)
            self.not_finite[name] += len(numbers) - len(finite)
        for name in self.declared:
            self.missed[name] += not printed.get(name)

    def _searched(self, text: str) -> dict[str, list[float]]:
        if not self.patterns or self.slow:
            return {}
        try:
            matches = self._search.find(text)
        except SlowPattern as slow:
            self.slow = str(slow)
            return {}
        return {metric.name: metric.values(matches[metric.name]) for metric in self.patterns}

    def close(self) -> None:
        self._search.close()

    def _members(self, objects: Iterable[dict[str, Any]]) -> dict[str, list[float]]:
        """Return the numbers of one execution's JSON objects; other members become facts, of the last execution
        only."""
        members: dict[str, list[float]] = {}
        self.facts = {}
        for key, value in (member for item in objects for member in item.items()):
            number = _number(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
            if number is None:
                self.facts[key] = value
                continue
            name = re.sub(r"[^A-Za-z0-9_.@-]", "_", key)[:90]
            name = f"output.{name}" if name in self.reserved or not name[:1].isalpha() else name
            members.setdefault(name, []).append(number)
        return members

    def report(self, executions: int, ctx: Context) -> None:
        self.close()
        if self.slow:
            pattern = self.declared[self.slow].pattern
            advice = "let it not repeat what repeats, as (a+)+"
            ctx.fail("pattern_slow", f"{self.slow}: {pattern!r} takes too long on what was printed; {advice}")
        if self.json_lines and not self.members:
            ctx.fail(
                "metric_not_found",
                f"no JSON object with a number on the stdout of {executions} executions, and none was emitted",
            )
        for name, count in self.not_finite.items():
            if count and not self.values[name]:
                ctx.fail("not_finite", f"{name}: what {executions} executions printed is no finite number")
            if count:
                ctx.warn("not_finite", f"{name}: {count} values were no finite numbers (nan, inf): in no figure")
        for name, metric in self.declared.items():
            if self.missed[name] == executions:
                ctx.fail("metric_not_found", self._not_found(metric, executions))
            if self.missed[name]:
                ctx.warn("metric_missing", f"{name}: {self.missed[name]} of {executions} executions did not print it")
        if self.lost:
            ctx.warn("records_lost", f"{self.lost} emitted records could not be written, or were too large")
        if self.cut:
            searched = f"only the last {SEARCHED_BYTES // 2**20} MiB of the output were searched for metrics"
            ctx.warn("output_cut", f"{searched} in {self.cut} of {executions} executions")
        for name, values in self.values.items():
            known = self.declared.get(name)
            unit, direction = (known.unit, known.direction) if known else (None, None)
            for value in values:
                ctx.emit(name, value, unit, direction=direction)
        if self.facts:
            ctx.metadata(output=self.facts)

    def _not_found(self, metric: PrintedMetric, executions: int) -> str:
        if metric.pattern is None:
            there = ", ".join(sorted(self.members)[:20])
            return f"no JSON object of {executions} executions has a number called {metric.name}; there are: {there}"
        place = f"where {metric.name} looks for {metric.pattern!r}"
        evidence = "artifacts/last.stdout shows what was printed"
        return f"no output of {executions} executions has a number {place}; {evidence}"


def _json_objects(text: str) -> Iterator[dict[str, Any]]:
    for line in text.splitlines():
        if line.lstrip().startswith("{"):
            try:
                item = json.loads(line)
            except ValueError:
                continue
            if isinstance(item, dict):
                yield item


def _without_thousands(text: str) -> str:
    """Remove thousands separators: `1,234.5` becomes 1234.5. A decimal comma (`3,5`) stays and is not a number."""
    return text.replace(",", "") if re.fullmatch(r"[+-]?\d{1,3}(,\d{3})+(\.\d*)?", text) else text


def _number(value: str | float) -> float | None:
    try:
        return float(value)
    except ValueError:
        return None
    except OverflowError:
        return math.inf
