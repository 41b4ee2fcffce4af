"""Converts a sampler's recording to files: one Parquet file per scope, and the summary."""

import json
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from itertools import pairwise
from math import isnan, nan
from pathlib import Path

from benchhouse.analysis.summary import mean, quantile, shaky_quantiles
from benchhouse.evidence.writing import write_text
from benchhouse.schema import telemetry
from benchhouse.schema.telemetry import STEADY, TEARDOWN, WARMUP, WHOLE, Phase, Stats, TelemetrySummary
from benchhouse.worker.monitors.parquet import encode
from benchhouse.worker.monitors.sampler import Recording, Track
from benchhouse.worker.monitors.tagged_processes import STEPS
from benchhouse.worker.monitors.tree import TRIAL

SUMMARY = "summary.json"
TIME = "time_s"
_PERCENTILES = ("p95", "p99")
_LEAST = 0.5  # of the interval: over a shorter time, a counter of clock ticks gives no rate
_WINDOW_S, _MOST_WINDOWS = 2.0, 12  # for the comparison of nodes; some series are read only once a second
_FEW = 2  # samples of a trial shorter than an interval: one at its start, one at its end


def write(
    folder: Path, recording: Recording, started: str, duration_s: float, phases: Iterable[Phase]
) -> TelemetrySummary:
    """Write one Parquet file per scope, and summary.json. An OSError leaves no half-written file behind."""
    summary = summarise(recording, started, duration_s, phases)
    folder.mkdir(exist_ok=True)
    made: list[Path] = []
    try:
        for track in recording.tracks:
            if file := summary.scopes[track.scope].file:
                made.append(folder / file)
                made[-1].write_bytes(as_parquet(track, started))
        made.append(folder / SUMMARY)
        # Last and atomically: if it exists, the others do.
        write_text(made[-1], summary.model_dump_json(exclude_defaults=True) + "\n", sync=False)
    except OSError:
        for path in made:
            path.unlink(missing_ok=True)
        if not any(folder.iterdir()):
            folder.rmdir()
        raise
    return summary


def as_parquet(track: Track, started: str) -> bytes:
    """Encode the times in seconds since `started`, then one column per series, with raw counters."""
    names = [TIME, *(series.name for series in track.series)]
    about = json.dumps([series.model_dump(exclude_defaults=True) for series in track.series])
    columns = {name: track.column(at) for at, name in enumerate(names)}
    return encode(columns, {"started": started, "scope": track.scope, "series": about})


def summarise(recording: Recording, started: str, duration_s: float, given: Iterable[Phase]) -> TelemetrySummary:
    """Summarize by scope, series, and phase. With two samples, only the whole trial can be summarized."""
    few = all(track.samples <= _FEW for track in recording.tracks)
    phases = all_phases([] if few else given, duration_s)
    parts: dict[str, list[Phase]] = {}
    for phase in phases:
        parts.setdefault(phase.name, []).append(phase)
    energies = [_energies(recording.tracks, phase) for phase in phases]
    phases = [
        phase.model_copy(update={"energy_j": sum(used.values()) if used else None})
        for phase, used in zip(phases, energies, strict=True)
    ]
    cost = telemetry.OwnCost(
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
        energy_of=list(energies[0]),
        phases=phases,
        scopes={track.scope: _scope(track, parts, recording.interval_s) for track in recording.tracks},
        nodes=recording.nodes,
        abnormal=_abnormal(recording, phases) if recording.nodes else None,
        problems=recording.problems,
    )


def _scope(track: Track, parts: dict[str, list[Phase]], interval_s: float) -> telemetry.ScopeSummary:
    times = track.column(0)
    series: dict[str, telemetry.SeriesSummary] = {}
    for at, item in enumerate(track.series, start=1):
        values, stats = track.column(at), dict[str, Stats]()
        for name, phases in parts.items():
            gauge = item.kind == "gauge"
            figures = gauge_stats(times, values, phases) if gauge else counter_stats(times, values, phases, interval_s)
            if figures is not None:
                stats[name] = figures
        summary = telemetry.SeriesSummary(unit=item.summary_unit, kind=item.kind, family=item.family, phases=stats)
        series[item.name] = summary
    name = re.sub(r"[^A-Za-z0-9_-]+", ".", track.scope).strip(".")  # service:postgres is in service.postgres.parquet
    return telemetry.ScopeSummary(
        file=f"{name}.parquet" if track.samples > _FEW else None,
        samples=track.samples,
        node=track.node,
        series=series,
    )


def _abnormal(recording: Recording, phases: Sequence[Phase]) -> telemetry.AbnormalNode | None:
    """Find an abnormal node in the longest steady phase, or in the whole if there is none. None if it has too few
    windows of two or more samples."""
    from benchhouse.analysis.playbooks.abnormal_node import LEAST_WINDOWS, NodeSeries, find_abnormal

    longest = max(phases, key=lambda phase: (phase.name == STEADY, phase.end_s - phase.begin_s))
    length_s = longest.end_s - longest.begin_s
    count = min(_MOST_WINDOWS, int(length_s / max(_WINDOW_S, 2 * recording.interval_s)))
    if count < LEAST_WINDOWS:
        return None
    ends = [longest.begin_s + length_s * at / count for at in range(count + 1)]
    windows = [Phase(name=STEADY, begin_s=begin_s, end_s=end_s) for begin_s, end_s in pairwise(ends)]
    rows, servers = list[NodeSeries](), set[str]()
    for track in recording.tracks:
        node, part = track.node or recording.node, track.scope.removeprefix(f"{track.node}/")
        if not track.node and part in (STEPS, TRIAL):  # the experiment itself runs on no other node
            part = TRIAL if part == STEPS else ""
        if part.startswith("service:"):
            servers.add(node)
            continue
        times = track.column(0)
        for at, item in enumerate(track.series, start=1):
            values = track.column(at)
            gauge = item.kind == "gauge"
            figures = [
                gauge_stats(times, values, [window]) if gauge else counter_stats(times, values, [window], 0.0)
                for window in windows
            ]
            rows.append(
                NodeSeries(node, part, item.name, item.summary_unit, [nan if f is None else f.avg for f in figures])
            )
    work = [row.values for row in rows if (row.scope, row.series) == (TRIAL, "cpu")]
    common = [at for at in range(count) if not any(isnan(values[at]) for values in work)]  # steps start later
    rows = [row._replace(values=[row.values[at] for at in common]) for row in rows]
    return find_abnormal([row for row in rows if not isnan(sum(row.values))], servers)


def _energies(tracks: Sequence[Track], phase: Phase) -> dict[str, float]:
    """Return the energy by scope: from its meter if a device has one, otherwise its power over time. Empty if any is
    unknown."""
    used: dict[str, float] = {}
    for track in tracks:
        columns = list(enumerate(track.series, start=1))
        meters = [at for at, series in columns if series.unit == "J" and series.kind == "counter"]
        for at in meters or [at for at, series in columns if series.unit == "W"]:
            read = [row for row in zip(track.column(0), track.column(at), strict=True) if not isnan(row[1])]
            times, values = [time_s for time_s, _ in read], [value for _, value in read]
            joules = (_growth if meters else energy_j)(times, values, phase)
            if not isnan(joules):
                used[track.scope] = used.get(track.scope, 0.0) + joules * _unseen(times, phase)
    return {} if isnan(sum(used.values())) else used


def _growth(times: Sequence[float], values: Sequence[float], phase: Phase) -> float:
    found = counter_stats(times, values, [phase], 0.0)
    return nan if found is None or found.growth is None else found.growth


def _unseen(times: Sequence[float], phase: Phase) -> float:
    """Return the factor that extrapolates the sampled part of a phase to all of it; NaN if that part is less than half.

    A GPU is opened after a trial has started: its power before the first reading is assumed to be the same.
    """
    seen_s, length_s = min(phase.end_s, times[-1]) - max(phase.begin_s, times[0]), phase.end_s - phase.begin_s
    return length_s / seen_s if seen_s >= length_s / 2 else nan


def all_phases(given: Iterable[Phase], duration_s: float) -> list[Phase]:
    """Return the whole, the given phases (cut to the trial's time), and the times before and after `steady`."""
    cut = [(phase.name, max(0.0, phase.begin_s), min(duration_s, phase.end_s)) for phase in given]
    kept = [Phase(name=name, begin_s=begin_s, end_s=end_s) for name, begin_s, end_s in cut if begin_s < end_s]
    phases = [Phase(name=WHOLE, begin_s=0.0, end_s=duration_s)]
    steady = [phase for phase in kept if phase.name == STEADY]
    if steady:
        first, last = min(phase.begin_s for phase in steady), max(phase.end_s for phase in steady)
        if first > 0 and not any(phase.name == WARMUP for phase in kept):
            phases.append(Phase(name=WARMUP, begin_s=0.0, end_s=first))
        if last < duration_s and not any(phase.name == TEARDOWN for phase in kept):
            kept.append(Phase(name=TEARDOWN, begin_s=last, end_s=duration_s))
    return phases + sorted(kept, key=lambda phase: phase.begin_s)


def gauge_stats(times: Sequence[float], values: Sequence[float], parts: Sequence[Phase]) -> Stats | None:
    """Return statistics of the values in these parts of the time; None if there are none."""
    seen: list[float] = []
    for part in parts:
        seen += values[bisect_left(times, part.begin_s) : bisect_right(times, part.end_s)]
    if isnan(sum(seen)):
        seen = [value for value in seen if not isnan(value)]
    seen.sort()
    return _stats(seen, mean(seen)) if seen else None


def counter_stats(
    times: Sequence[float], values: Sequence[float], parts: Sequence[Phase], interval_s: float
) -> Stats | None:
    """Return statistics of the growth per second; the mean is over the parts, the rest over the intervals inside them.

    So the mean may be outside of the range of the intervals; minimum and maximum are extended to include it.
    """
    if isnan(sum(values)):
        known = [at for at, value in enumerate(values) if not isnan(value)]
        times, values = [times[at] for at in known], [values[at] for at in known]
    if len(times) < 2:
        return None
    growth = length_s = 0.0
    rates: list[float] = []
    for part in parts:
        begin_s, end_s = max(part.begin_s, times[0]), min(part.end_s, times[-1])
        if end_s <= begin_s:
            continue
        growth += _at(times, values, end_s) - _at(times, values, begin_s)
        length_s += end_s - begin_s
        first, last = bisect_left(times, part.begin_s), bisect_right(times, part.end_s)
        rates += [
            (values[at] - values[at - 1]) / (times[at] - times[at - 1])
            for at in range(first + 1, last)
            if times[at] - times[at - 1] >= _LEAST * interval_s
        ]
    if not length_s:
        return None
    return _stats(sorted(rates), growth / length_s, growth)


def energy_j(times: Sequence[float], watts: Sequence[float], part: Phase) -> float:
    """Integrate power over time by trapezoids with interpolated ends; NaN if fewer than two values are known."""
    known = [(time, value) for time, value in zip(times, watts, strict=True) if not isnan(value)]
    if len(known) < 2:
        return nan
    at, power = [time for time, _ in known], [value for _, value in known]
    begin_s, end_s = max(part.begin_s, at[0]), min(part.end_s, at[-1])
    if end_s <= begin_s:
        return nan
    inner = [(time, value) for time, value in known if begin_s < time < end_s]
    points = [(begin_s, _at(at, power, begin_s)), *inner, (end_s, _at(at, power, end_s))]
    return sum((after[0] - before[0]) * (after[1] + before[1]) / 2 for before, after in pairwise(points))


def _at(times: Sequence[float], values: Sequence[float], when_s: float) -> float:
    """Interpolate linearly between two samples."""
    after = bisect_left(times, when_s)
    if after == 0 or times[after] == when_s:
        return values[after]
    share = (when_s - times[after - 1]) / (times[after] - times[after - 1])
    return values[after - 1] + share * (values[after] - values[after - 1])


def _stats(ordered: list[float], avg: float, growth: float | None = None) -> Stats:
    if not ordered:
        return Stats(n=0, avg=avg, growth=growth)
    n, low, high = len(ordered), ordered[0], ordered[-1]
    too_few_for = [name for name in shaky_quantiles(n) if name in _PERCENTILES]
    p50, p95, p99 = (low, low, low) if low == high else (quantile(ordered, share) for share in (0.50, 0.95, 0.99))
    return Stats(
        n=n, avg=avg, min=min(low, avg), max=max(high, avg), p50=p50, p95=p95, p99=p99,
        too_few_for=too_few_for, growth=growth,
    )  # fmt: skip
