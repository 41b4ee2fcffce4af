"""Data that an importer reads from another tool's file: cases with raw samples, the tool's statistics, and gaps."""

from __future__ import annotations

import math
import sys
from array import array
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from benchhouse.schema.experiment import Direction, Metric, Role
from benchhouse.schema.model import Model, empty_list

Setting = str | int | float | bool | None
IMPORTED = "imported"
"""The experiment for measurements of other tools."""
OWN = "@"
"""Separates a metric from the tool that defines it: `wall_ms@hyperfine` is `wall_ms` as defined by hyperfine."""


class ToolFigure(Model):
    """A statistic that the tool reports for samples that were imported too."""

    stat: str = Field(description="mean, p99, ...: the one of ours that it stands beside.")
    value: float
    because: str = Field("", description="Why ours may differ: another definition of percentiles, ...")


class ReadSeries(Model):
    """One metric of a case, and the position of its values in samples.f64."""

    metric: Metric
    start: int = Field(ge=0, description="Place of the first value.")
    count: int = Field(ge=1)
    told: list[ToolFigure] = Field(default_factory=empty_list)

    def values(self, samples: Path) -> array[float]:
        """Return the values from samples.f64."""
        read = array("d")
        with samples.open("rb") as file:
            file.seek(self.start * read.itemsize)
            read.fromfile(file, self.count)
        return little_endian(read)


class ReadCase(Model):
    """One case of the file: a point, and its measurements."""

    target: dict[str, Setting]
    settings: dict[str, Setting]
    series: list[ReadSeries]
    missing: dict[str, str] = Field(default_factory=dict, description="What the file does not say, and why.")
    facts: dict[str, Any] = Field(default_factory=dict)
    doubts: list[tuple[str, str]] = Field(default_factory=empty_list, description="Warnings: code and message.")


class ImportedReading(Model):
    """reading.json: a file of another tool, as its importer read it."""

    schema_version: Literal[1] = 1
    kind: str = Field(description="Name of the importer.")
    tool: str
    tool_version: str | None
    measured_at: str | None = Field(description="As the file says; null: it does not.")
    measured_on: str | None = Field(description="Host or machine, as the file says; null: it does not.")
    file: str = Field(description="Its name; its bytes lie beside this file, and in the evidence of each trial.")
    sha256: str
    size: int
    cases: list[ReadCase]


def little_endian(values: array[float]) -> array[float]:
    """Convert values between this machine's byte order and that of samples.f64, in either direction."""
    if sys.byteorder == "big":
        values = array("d", values)
        values.byteswap()
    return values


@dataclass
class Samples:
    """Values of one metric in the file's order, and the tool's statistics of them."""

    metric: Metric
    values: array[float]
    told: list[ToolFigure]


@dataclass
class ImportedCase:
    """A case of a file while an importer fills it. `target` has a `name`; `settings` distinguish the cases."""

    target: dict[str, Setting]
    settings: dict[str, Setting] = field(default_factory=dict)
    samples: list[Samples] = field(default_factory=list)
    missing: dict[str, str] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)
    doubts: list[tuple[str, str]] = field(default_factory=list)

    def add(
        self,
        metric: Metric,
        values: Iterable[float],
        told: Mapping[str, float | None] | None = None,
        because: str | Mapping[str, str] = "",
    ) -> None:
        """Add raw samples; `told` are the tool's statistics under Benchhouse names, `because` explains why ours may
        differ.
        """
        kept = values if isinstance(values, array) else array("d", values)
        if not kept:
            self.missing[metric.name] = "the file has no value of it"
            return
        if not all(map(math.isfinite, kept)):
            raise ValueError(f"{metric.name}: a value is not a finite number")
        reasons = because if isinstance(because, Mapping) else {}
        otherwise = because if isinstance(because, str) else ""
        figures = [
            ToolFigure(stat=stat, value=value, because=reasons.get(stat, otherwise))
            for stat, value in (told or {}).items()
            if value is not None
        ]
        self.samples.append(Samples(metric, kept, figures))

    def add_figure(self, metric: Metric, value: float | None, why_missing: str = "") -> None:
        """Add a value of the tool that cannot be recomputed; None means that the file does not have it."""
        if value is None:
            self.missing[metric.name] = why_missing or "the file does not have it"
        else:
            self.add(metric, (value,))


@dataclass
class Imported:
    """All that an importer found in a file."""

    tool: str
    version: str | None
    cases: list[ImportedCase]
    measured_at: str | None = None
    measured_on: str | None = None


def their(
    tool: str, name: str, unit: str, formula: str, direction: Direction | None = None, role: Role | None = None
) -> Metric:
    """Return a metric as `tool` defines it: `name@tool`. It is compared only with itself."""
    return Metric(name=f"{name}{OWN}{tool}", unit=unit, direction=direction, formula=formula, role=role)
