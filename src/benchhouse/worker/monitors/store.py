"""From what a sampler took to files: a Parquet file a scope, and the summary."""

import json
import re
from collections.abc import Iterable, Sequence
from math import isnan
from pathlib import Path

from benchhouse.evidence.writing import write_text
from benchhouse.schema.telemetry import (
    OwnCost,
    Phase,
    ScopeSummary,
    SeriesSummary,
    Stats,
    TelemetrySummary,
)
from benchhouse.worker.monitors.phases import all_phases, counter_stats, energy_j, gauge_stats
from benchhouse.worker.monitors.sampler import Recording, Track

SUMMARY = "summary.json"
TIME = "time_s"
_FEW = 2  # samples of a trial shorter than an interval: one at its start, one at its end


def write(
    folder: Path, recording: Recording, started: str, duration_s: float, told: Iterable[Phase]
) -> TelemetrySummary:
    """Write a Parquet file a scope, and summary.json. An OSError leaves no half-written file behind."""
    summary = summarise(recording, started, duration_s, told)
    folder.mkdir(exist_ok=True)
    made: list[Path] = []
    try:
        for track in recording.tracks:
            if file := summary.scopes[track.scope].file:
                made.append(folder / file)
                made[-1].write_bytes(as_parquet(track, started))
        made.append(folder / SUMMARY)
        # Last and whole: where it is, the others are.
        write_text(made[-1], summary.model_dump_json(exclude_defaults=True) + "\n", sync=False)
    except OSError:
        for path in made:
            path.unlink(missing_ok=True)
        if not any(folder.iterdir()):
            folder.rmdir()
        raise
    return summary


def file_name(scope: str) -> str:
    """`service:postgres` is kept in service.postgres.parquet."""
    return re.sub(r"[^A-Za-z0-9_-]+", ".", scope).strip(".") + ".parquet"


def as_parquet(track: Track, started: str) -> bytes:
    """Times in seconds since `started`, then a column a series, counters as they are."""
    from benchhouse.worker.monitors.parquet import encode

    columns = {TIME: track.column(0)} | {one.name: track.column(at) for at, one in enumerate(track.series, start=1)}
    series = [one.model_dump(exclude_defaults=True) for one in track.series]
    return encode(columns, {"started": started, "scope": track.scope, "series": json.dumps(series)})


def summarise(recording: Recording, started: str, duration_s: float, told: Iterable[Phase]) -> TelemetrySummary:
    """By scope, series and phase. Of two samples nothing but the whole can be told."""
    few = all(track.samples <= _FEW for track in recording.tracks)
    phases = all_phases([] if few else told, duration_s)
    names = list(dict.fromkeys(phase.name for phase in phases))
    parts = {name: [phase for phase in phases if phase.name == name] for name in names}
    phases = [phase.model_copy(update={"energy_j": _energy(recording.tracks, phase)}) for phase in phases]
    cost = OwnCost(
        samples=recording.samples,
        cpu_s=recording.cpu_s,
        cpu_us_per_sample=recording.cpu_s / max(1, recording.samples) * 1e6,
        cores=recording.cpu_s / duration_s if duration_s else 0.0,
    )
    return TelemetrySummary(
        schema_version=1,
        started=started,
        duration_s=duration_s,
        interval_s=recording.interval_s,
        ticks_missed=recording.ticks_missed,
        cost=cost,
        energy_j=phases[0].energy_j,
        phases=phases,
        scopes={track.scope: _scope(track, parts, recording.interval_s) for track in recording.tracks},
        problems=recording.problems,
    )


def _scope(track: Track, parts: dict[str, list[Phase]], interval_s: float) -> ScopeSummary:
    times = track.column(0)
    series: dict[str, SeriesSummary] = {}
    for at, one in enumerate(track.series, start=1):
        values = track.column(at)
        told: dict[str, Stats] = {}
        for name, phases in parts.items():
            if one.kind == "gauge":
                stats = gauge_stats(times, values, phases)
            else:
                stats = counter_stats(times, values, phases, interval_s)
            if stats is not None:
                told[name] = stats
        series[one.name] = SeriesSummary(unit=one.told_unit, kind=one.kind, family=one.family, phases=told)
    file = file_name(track.scope) if track.samples > _FEW else None
    return ScopeSummary(file=file, samples=track.samples, series=series)


def _energy(tracks: Sequence[Track], phase: Phase) -> float | None:
    """Of all devices together: by its meter where a device has one, else by its power over time."""
    known: list[float] = []
    for track in tracks:
        meters = [at for at, one in enumerate(track.series, start=1) if one.unit == "J" and one.kind == "counter"]
        for at in meters:
            metered = counter_stats(track.column(0), track.column(at), [phase], 0.0)
            known += [metered.growth] if metered and metered.growth is not None else []
        powers = [] if meters else [at for at, one in enumerate(track.series, start=1) if one.unit == "W"]
        by_power = [energy_j(track.column(0), track.column(at), phase) for at in powers]
        known += [joules for joules in by_power if not isnan(joules)]
    return sum(known) if known else None
