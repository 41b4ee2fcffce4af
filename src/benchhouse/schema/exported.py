"""What an exporter is given, and what it may be: the numbers of a run or the content of a packet, for another tool."""

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
    """One statistic of one metric at one point, over its good trials; every number in it is finite."""

    metric: str
    stat: str
    """value, or what a trial computed from its samples: mean, p50, p99, ..."""
    unit: str
    direction: Direction | None
    mean: float
    """Over the trials."""
    stdev: float | None
    """Between the trials; None of a single one."""
    interval: tuple[float, float] | None
    """The 95% interval of the mean; None of a single trial."""
    values: tuple[float, ...]
    """Of each trial."""
    trials: tuple[str, ...]
    """Their ids, in the same order."""
    headline: bool
    """Whether it leads its metric: the value, or the mean."""
    shaky: bool
    """A percentile of too few samples within a trial to be trusted."""
    ref: str
    """What `bench trace` takes."""

    @property
    def name(self) -> str:
        """`qps`, or `latency.p99`."""
        return self.metric if self.stat == "value" else f"{self.metric}.{self.stat}"

    @property
    def n(self) -> int:
        return len(self.values)

    @property
    def is_spread(self) -> bool:
        """Whether it says how samples scatter or how many there were, not what was measured."""
        return self.stat in ("stdev", "n")

    def words(self) -> str:
        """Interval, n and doubts in one line, for formats that have a place for text."""
        ends = "" if self.interval is None else f"95% interval {self.interval[0]:.6g} to {self.interval[1]:.6g}, "
        trials = "1 trial" if self.n == 1 else f"{self.n} trials"
        return f"{ends}{trials}{', a percentile of few samples' if self.shaky else ''}"


@dataclass(frozen=True)
class ExportedPoint:
    """One point of a run that has numbers."""

    name: str
    """Unlike that of every other point of the run, and the same in every run of the scenario."""
    target_name: str | None
    target: Mapping[str, Any]
    parameters: Mapping[str, Any]
    instance_digest: str
    benchmark_case_id: str
    started: datetime
    """Of its first good trial, UTC."""
    ended: datetime
    """Of its last good trial, UTC."""
    figures: tuple[ExportedStatistic, ...]
    files: Mapping[str, Path]
    """Sealed files of its trials, by their place below a folder: `TRIAL/manifest.json`."""
    lost_files: tuple[str, ...]
    """Those that are not here or not as they were sealed, in words."""


@dataclass(frozen=True)
class ExportedRun:
    """The good numbers of a run. What is invalid or failed is in `left_out`, in words, and nowhere else."""

    run_id: str
    scenario: str
    experiment: str
    experiment_version: str
    executor: str
    hosts: tuple[str, ...]
    git_commit: str
    benchhouse: str
    """Version that exports it."""
    points: tuple[ExportedPoint, ...]
    left_out: tuple[str, ...]

    def names(self) -> list[str]:
        """`SCENARIO/POINT` of each point."""
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
    """In the packet: `tables/NAME/PART.parquet`."""
    description: str
    columns: tuple[PackedColumn, ...]


@dataclass(frozen=True)
class ExportedPacket:
    """A packet of a claim as it lies there: checked, and described by digests."""

    file: str
    """Its name."""
    sha256: str
    size: int
    claim: Claim
    files: Mapping[str, tuple[str, int]]
    """What is in it: sha256 and bytes by name."""
    tables: tuple["PackedTable", ...]
    licence: str
    """Under which the packet is published: an address, or a name; empty: nobody said."""
    url: str
    """Where it is published; empty: nobody said."""
    described_at: str
    """Time of the export, UTC, ISO 8601."""


@dataclass(frozen=True)
class ExportedDocument:
    """One text, and what of the numbers has no place in it."""

    text: str
    left_out: tuple[str, ...] = ()


@dataclass(frozen=True)
class Sent:
    """What became of a run in a store of another tool."""

    where: str
    made: int
    """Points that are there now and were not before."""
    known: int
    """Points that were there already: nothing was done to them."""
    left_out: tuple[str, ...] = ()


@dataclass(frozen=True)
class DocumentExporter:
    """A run as one text."""

    about: str
    """The format, in one line."""
    render: Callable[[ExportedRun], ExportedDocument]


@dataclass(frozen=True)
class FolderExporter:
    """A run as files. `write` is given an empty folder, which gets its final name when all is written and synced; it
    returns what of the numbers has no place in them."""

    about: str
    write: Callable[[ExportedRun, Path], list[str]]


@dataclass(frozen=True)
class StoreExporter:
    """A run in a store that holds others too. `send` is given where that is; sent twice, a point is there once."""

    about: str
    send: Callable[[ExportedRun, str], Sent]


@dataclass(frozen=True)
class PacketExporter:
    """What a published packet is, as one text."""

    about: str
    render: Callable[[ExportedPacket], ExportedDocument]


Exporter = DocumentExporter | FolderExporter | StoreExporter | PacketExporter
"""What an entry point of the group `benchhouse.exporters` holds."""


@dataclass
class Names:
    """Names as another tool allows them. Two that become one are told apart by a digest of what they were."""

    allowed: Callable[[str], str]
    """A name as the tool takes it, however long."""
    longest: int
    _made: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, names: Iterable[str], allowed: Callable[[str], str], longest: int) -> "Names":
        """All names at once, so that none depends on their order."""
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
