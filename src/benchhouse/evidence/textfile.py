"""Prometheus text files for node exporter's textfile collector, for sites where scraping over a network is forbidden.

Two kinds, each of one run and replaced by a rename, so that a reader never sees half of one: `benchhouse_run_RUN.prom`
holds the results of the last trial of each case; `benchhouse_live_RUN.prom` holds the last sampled values of the
running trial and is removed with it, because stale values would be served forever.
"""

import contextlib
import math
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple

from benchhouse.evidence.writing import write_text
from benchhouse.processes.owned_names import sweep_temporaries
from benchhouse.schema import hot_metrics
from benchhouse.schema.hot_metrics import LABELS, RUN, SCOPE, SERIES_BUDGET, STATS, Allowance
from benchhouse.schema.measurement import Measurement
from benchhouse.schema.telemetry import Series
from benchhouse.schema.trial import Meta, TrialSpec

_OURS = "benchhouse_*.prom"

Labels = tuple[tuple[str, str], ...]


class TextfileSample(NamedTuple):
    """One value under a name, with its explanation."""

    name: str
    value: float
    labels: Labels = ()
    help: str = ""
    kind: Literal["gauge", "counter"] = "gauge"


def trial_labels(spec: TrialSpec, gpu_model: str, given: Mapping[str, str]) -> Labels:
    """Return the labels that identify a trial in hot metrics: its run, its case, and where it ran.

    Labels that its contract drops are left out. Series that then have the same labels become one, the newest.
    """
    path = "/".join(part for part in (spec.executor, spec.partition, spec.qos) if part)
    labels = dict(given) | {
        "run_id": spec.run_id,
        "benchmark_case_id": spec.benchmark_case_id,
        "gpu_model": gpu_model,
        "scheduler_path": path,
        "concurrency_bucket": hot_metrics.concurrency_bucket(spec.parameters.get("concurrency")),
    }
    dropped = Allowance.of(spec.contract).dropped_labels
    return tuple((name, labels[name]) for name in LABELS if labels.get(name) and name not in dropped)


def results(measurements: Iterable[Measurement], labels: Labels) -> list[TextfileSample]:
    """Return the valid numbers of a whole trial in base units; the others are only in the evidence."""
    samples = []
    for row in measurements:
        if row.window or row.stat not in STATS or row.scope != "trial" or not row.valid:
            continue
        name, factor, _ = hot_metrics.result_name(row.metric, row.stat, row.unit)
        stat = "" if row.stat == "value" else f", {row.stat}"
        samples.append(
            TextfileSample(name, row.value * factor, labels, f"{row.metric}{stat}, of the last trial of a case.")
        )
    return samples


def telemetry(values: Iterable[tuple[str, Series, float]], labels: Labels) -> list[TextfileSample]:
    """Return sampled values, each with its scope."""
    samples = []
    for scope, series, value in values:
        name, factor, _ = hot_metrics.telemetry_name(series)
        text = series.description or series.name
        samples.append(TextfileSample(name, value * factor, (*labels, (SCOPE, scope)), text, series.kind))
    return samples


def render(samples: Iterable[TextfileSample]) -> str:
    """Return text format 0.0.4: the samples of each name together, after its HELP and TYPE."""
    grouped: dict[str, list[TextfileSample]] = {}
    for sample in samples:
        grouped.setdefault(sample.name, []).append(sample)
    lines = []
    for name in sorted(grouped):
        first = grouped[name][0]
        lines += [f"# HELP {name} {_escaped(first.help)}", f"# TYPE {name} {first.kind}"]
        for sample in grouped[name]:
            labels = ",".join(f'{key}="{_escaped(value, quotes=True)}"' for key, value in sample.labels)
            lines.append(f"{name}{{{labels}}} {float(sample.value)!r}" if labels else f"{name} {float(sample.value)!r}")
    return "\n".join(lines) + "\n"


def within(samples: Iterable[TextfileSample], budget: int) -> tuple[list[TextfileSample], int]:
    """Return the first samples that fit into the budget, no series twice, and the number of dropped ones."""
    kept: dict[tuple[str, Labels], TextfileSample] = {}
    dropped = 0
    for sample in samples:
        if not math.isfinite(sample.value):
            continue
        key = sample.name, sample.labels
        if key in kept or len(kept) >= budget:
            dropped += 1
        else:
            kept[key] = sample
    return list(kept.values()), dropped


@dataclass
class RunSeries:
    """The hot metrics of one run: results of the last trial of each case, and trial counts."""

    run_id: str
    given: Mapping[str, str] = field(default_factory=dict)
    allowance: Allowance = field(default_factory=Allowance)
    """The allowance in the run's contract."""
    dropped: int = 0
    _cases: dict[str, list[TextfileSample]] = field(default_factory=dict)
    _counts: dict[str, int] = field(default_factory=dict)
    _last_s: float = 0.0

    def take(self, spec: TrialSpec, meta: Meta, measurements: Sequence[Measurement], at_s: float) -> None:
        """Replace the numbers of a case with those of a trial sealed at `at_s`; warm-ups and invalid trials have
        none."""
        self._last_s = at_s
        if meta.outcome == "succeeded" and not spec.warmup:
            self._cases.pop(spec.benchmark_case_id, None)  # the newest case comes last
            gpus = meta.hardware.get("gpus") or [""]
            labels = trial_labels(spec, str(gpus[0]), self.given)
            self._cases[spec.benchmark_case_id] = results(measurements, labels)

    def count(self, outcomes: Mapping[str, int], planned: int) -> None:
        """Set the number of trials per outcome."""
        self._counts = {"planned": planned} | dict(outcomes)

    def samples(self, budget: int = SERIES_BUDGET) -> list[TextfileSample]:
        """Return as many samples as the budget and the contract allow; older cases are dropped and counted."""
        mine = () if "run_id" in self.allowance.dropped_labels else (("run_id", self.run_id),)
        fixed = [
            TextfileSample(f"{RUN}_trials_{name}", count, mine, f"Trials of the run: {name.replace('_', ' ')}.")
            for name, count in sorted(self._counts.items())
        ]
        if self._last_s:
            text = "When the last trial of the run ended."
            fixed.append(TextfileSample(f"{RUN}_last_trial_timestamp_seconds", self._last_s, mine, text))
        newest_first = [sample for case in reversed(self._cases.values()) for sample in case]
        room = max(0, min(budget, self.allowance.series) - len(fixed) - 1)
        kept, self.dropped = within(newest_first, room)
        text = "Series of the run that did not fit into the budget and are only in its evidence."
        return [*fixed, TextfileSample(f"{RUN}_series_dropped", self.dropped, mine, text), *kept]


@dataclass
class RunFile:
    """The text file of one run."""

    folder: Path
    run_id: str
    given: Mapping[str, str] = field(default_factory=dict)
    budget: int = SERIES_BUDGET
    """Most series in the folder, for all runs that share it."""
    allowance: Allowance = field(default_factory=Allowance)
    removed: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.series = RunSeries(self.run_id, self.given, self.allowance)

    @property
    def path(self) -> Path:
        return self.folder / f"benchhouse_run_{self.run_id}.prom"

    @property
    def dropped(self) -> int:
        """Number of series that did not fit."""
        return self.series.dropped

    def take(self, spec: TrialSpec, meta: Meta, measurements: Sequence[Measurement]) -> None:
        """Add a trial that was sealed now."""
        self.series.take(spec, meta, measurements, time.time())

    def count(self, outcomes: Mapping[str, int], planned: int) -> None:
        """Set the number of trials per outcome."""
        self.series.count(outcomes, planned)

    def write(self) -> None:
        """Rewrite the file. If it does not fit, files of older runs are removed first, then older cases of this run."""
        samples = self.series.samples(self.budget)
        self._make_room(len(samples))
        write_text(self.path, render(samples), sync=False)

    def _make_room(self, needed: int) -> None:
        """Remove the oldest files so that all runs in the folder fit into one budget."""
        others = []
        sweep_temporaries(self.folder)
        for path in self.folder.glob(_OURS):
            with contextlib.suppress(OSError):
                if path != self.path:
                    others.append((path.stat().st_mtime, path, count_series(path.read_text(encoding="utf-8"))))
        total = needed + sum(count for _, _, count in others)
        for _, path, count in sorted(others):
            if total <= self.budget:
                break
            path.unlink(missing_ok=True)
            self.removed.append(path.name)
            total -= count


def count_series(text: str) -> int:
    return sum(1 for line in text.splitlines() if line and not line.startswith("#"))


@dataclass
class LiveFile:
    """The last sampled values of the running trial. Concurrent trials share the file: the last one wins."""

    folder: Path
    spec: TrialSpec
    given: Mapping[str, str] = field(default_factory=dict)
    gpu_model: str = ""
    budget: int = 0
    """Most series in the file; by default a quarter of the run's."""
    dropped: int = 0

    def __post_init__(self) -> None:
        self.budget = self.budget or max(1, Allowance.of(self.spec.contract).series // 4)

    @property
    def path(self) -> Path:
        return self.folder / f"benchhouse_live_{self.spec.run_id}.prom"

    def write(self, values: Iterable[tuple[str, Series, float]]) -> None:
        """Write the (scope, series, value) of everything that is sampled; NaN is left out."""
        labels = trial_labels(self.spec, self.gpu_model, self.given)
        kept, self.dropped = within(telemetry(values, labels), self.budget)
        write_text(self.path, render(kept), sync=False)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.path.unlink(missing_ok=True)


def _escaped(text: str, *, quotes: bool = False) -> str:
    text = text.replace("\\", "\\\\").replace("\n", "\\n")
    return text.replace('"', '\\"') if quotes else text
