"""Data for exporters, and their types: the numbers of a run or the content of a packet, for another tool."""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from benchhouse.schema.claim import Claim
from benchhouse.schema.experiment import Direction


@dataclass(frozen=True)
class ExportedStatistic:
    """One statistic of one metric at one point, over its valid trials; every number in it is finite."""

    metric: str
    stat: str
    """`value`, or a statistic that a trial computed from its samples: mean, p50, p99, ..."""
    unit: str
    direction: Direction | None
    mean: float
    """Mean over the trials."""
    stdev: float | None
    """Standard deviation between the trials; None for a single trial."""
    interval: tuple[float, float] | None
    """The 95% interval of the mean; None for a single trial."""
    values: tuple[float, ...]
    """The value of each trial."""
    trials: tuple[str, ...]
    """The ids of the trials, in the order of `values`."""
    headline: bool
    """Whether this is the main statistic of its metric: the value, or the mean."""
    shaky: bool
    """Whether this is a percentile of too few samples per trial to be reliable."""
    ref: str
    """The reference for `bench trace`."""

    @property
    def name(self) -> str:
        """The name in other tools: `qps`, or `latency.p99`."""
        return self.metric if self.stat == "value" else f"{self.metric}.{self.stat}"

    @property
    def n(self) -> int:
        return len(self.values)

    @property
    def is_spread(self) -> bool:
        """Whether the statistic is the spread or the number of samples, not a measured quantity."""
        return self.stat in ("stdev", "n")

    def words(self) -> str:
        """Return interval, n, and doubts on one line, for formats that have a text field."""
        ends = "" if self.interval is None else f"95% interval {self.interval[0]:.6g} to {self.interval[1]:.6g}, "
        trials = "1 trial" if self.n == 1 else f"{self.n} trials"
        return f"{ends}{trials}{', a percentile of few samples' if self.shaky else ''}"


@dataclass(frozen=True)
class ExportedPoint:
    """A point of a run that has numbers."""

    name: str
    """Unique within the run, and the same in every run of the scenario."""
    target_name: str | None
    target: Mapping[str, Any]
    parameters: Mapping[str, Any]
    instance_digest: str
    benchmark_case_id: str
    started: datetime
    """Start of its first valid trial, UTC."""
    ended: datetime
    """End of its last valid trial, UTC."""
    figures: tuple[ExportedStatistic, ...]
    files: Mapping[str, Path]
    """Sealed files of its trials, by relative path: `TRIAL/manifest.json`."""
    lost_files: tuple[str, ...]
    """Files that are missing or were changed after sealing, in words."""


@dataclass(frozen=True)
class ExportedRun:
    """The valid numbers of a run. Invalid and failed trials are only mentioned in `left_out`, in words."""

    run_id: str
    scenario: str
    experiment: str
    experiment_version: str
    executor: str
    hosts: tuple[str, ...]
    git_commit: str
    benchhouse: str
    """Version of Benchhouse that exports it."""
    points: tuple[ExportedPoint, ...]
    left_out: tuple[str, ...]

    def names(self) -> list[str]:
        """Return `SCENARIO/POINT` of each point."""
        return [f"{self.scenario}/{point.name}" for point in self.points]


@dataclass(frozen=True)
class PackedColumn:
    """A column of a table in a packet."""

    name: str
    kind: str
    """text, texts, integer, number, numbers, truth or time."""
    description: str


@dataclass(frozen=True)
class PackedTable:
    """The rows of a run in a table of a packet."""

    name: str
    file: str
    """Path in the packet: `tables/NAME/PART.parquet`."""
    description: str
    columns: tuple[PackedColumn, ...]


@dataclass(frozen=True)
class ExportedPacket:
    """The packet of a claim, checked, and described by digests."""

    file: str
    """Name of the packet's file."""
    sha256: str
    size: int
    claim: Claim
    files: Mapping[str, tuple[str, int]]
    """Files in the packet: sha256 and size in bytes by name."""
    tables: tuple["PackedTable", ...]
    licence: str
    """License under which the packet is published, an address or a name; empty if unknown."""
    url: str
    """Address where it is published; empty if unknown."""
    described_at: str
    """Time of the export, UTC, ISO 8601."""


@dataclass(frozen=True)
class ExportedDocument:
    """A document, and the numbers that its format cannot hold."""

    text: str
    left_out: tuple[str, ...] = ()


@dataclass(frozen=True)
class Sent:
    """The result of sending a run to a store of another tool."""

    where: str
    made: int
    """Number of points that were added."""
    known: int
    """Number of points that already existed and were not changed."""
    left_out: tuple[str, ...] = ()


@dataclass(frozen=True)
class DocumentExporter:
    """An exporter that writes a run as one document."""

    about: str
    """The format, in one line."""
    render: Callable[[ExportedRun], ExportedDocument]


@dataclass(frozen=True)
class FolderExporter:
    """An exporter that writes a run as files.

    `write` gets an empty folder, which gets its final name when everything is written and synced. It returns the
    numbers that the format cannot hold.
    """

    about: str
    write: Callable[[ExportedRun, Path], list[str]]


@dataclass(frozen=True)
class StoreExporter:
    """An exporter that adds a run to a store.

    `send` gets the location of the store; a point that is sent twice is stored once.
    """

    about: str
    send: Callable[[ExportedRun, str], Sent]


@dataclass(frozen=True)
class PacketExporter:
    """An exporter that describes a published packet in one document."""

    about: str
    render: Callable[[ExportedPacket], ExportedDocument]


Exporter = DocumentExporter | FolderExporter | StoreExporter | PacketExporter
"""The type of entry points in the group `benchhouse.exporters`."""


@dataclass
class Names:
    """Names in the form that another tool allows; a digest of the original distinguishes names that become equal."""

    allowed: Callable[[str], str]
    """Converts a name to allowed characters, without limiting its length."""
    longest: int
    _made: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, names: Iterable[str], allowed: Callable[[str], str], longest: int) -> "Names":
        """Convert all names at once, so that the result does not depend on their order."""
        made = cls(allowed, longest)
        known = list(dict.fromkeys(names))
        short = {name: allowed(name)[:longest] for name in known}
        taken = Counter(short.values())
        for name in known:
            same = taken[short[name]] == 1 and len(allowed(name)) <= longest
            end = "" if same else f"-{hashlib.sha256(name.encode()).hexdigest()[:8]}"
            made._made[name] = f"{short[name][: longest - len(end)]}{end}"
        return made

    def __getitem__(self, name: str) -> str:
        return self._made[name]
