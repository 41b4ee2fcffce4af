"""What was sampled comes out of the files as it was, and the summary says it by phase."""

import json
import random
from array import array
from math import isnan, nan

import pyarrow.parquet as pq
import pytest
from services.small_disk import small_disk as small_disk

from benchhouse.schema.telemetry import Phase, Series, TelemetrySummary
from benchhouse.worker.monitors import store
from benchhouse.worker.monitors.sampler import Recording, Track
from benchhouse.worker.monitors.store import all_phases, counter_stats, energy_j, gauge_stats

CPU = Series(name="cpu", unit="s", kind="counter", family="process")
RSS = Series(name="rss", unit="B", family="process")
POWER = Series(name="power", unit="W", family="energy")


def recording(rows, series=(CPU, RSS), interval_s=1.0, scope="trial") -> Recording:
    track = Track(scope, series, array("d", [value for row in rows for value in row]))
    return Recording(interval_s, [track], ticks_missed=0, cpu_s=0.001, samples=len(rows), problems=[])


def idle_then_busy(warm_s=10, busy_s=20, end_s=5):
    """No core, then one, then half of one; memory 100, 300, 200 bytes."""
    rows, cpu = [], 0.0
    for second in range(warm_s + busy_s + end_s + 1):
        rows.append((float(second), cpu, 100.0 if second < warm_s else 300.0 if second <= warm_s + busy_s else 200.0))
        cpu += 0.0 if second < warm_s else 1.0 if second < warm_s + busy_s else 0.5
    return rows


def test_phases_split_where_the_experiment_said():
    told = [Phase(name="steady", begin_s=10.0, end_s=30.0)]
    summary = store.summarise(recording(idle_then_busy()), "2026-11-15T00:00:00+00:00", 35.0, told)
    assert [(one.name, one.begin_s, one.end_s) for one in summary.phases] == [
        ("trial", 0, 35), ("warmup", 0, 10), ("steady", 10, 30), ("teardown", 30, 35),
    ]  # fmt: skip
    cpu = summary.scopes["trial"].series["cpu"]
    assert cpu.unit == "1"
    assert {name: stats.avg for name, stats in cpu.phases.items()} == pytest.approx(
        {"trial": 22.5 / 35, "warmup": 0.0, "steady": 1.0, "teardown": 0.5}
    )
    assert cpu.phases["steady"].growth == pytest.approx(20.0)
    assert (cpu.phases["steady"].min, cpu.phases["steady"].max, cpu.phases["steady"].n) == (1.0, 1.0, 20)
    assert summary.scopes["trial"].series["rss"].phases["steady"].max == 300


def test_a_phase_between_two_samples_is_interpolated_and_claims_no_spread():
    stats = counter_stats([0.0, 1.0, 2.0], [0.0, 1.0, 3.0], [Phase(name="x", begin_s=1.25, end_s=1.75)], 1.0)
    assert stats.avg == pytest.approx(2.0)
    assert (stats.n, stats.min, stats.p50) == (0, None, None)


def test_an_interval_too_short_for_clock_ticks_gives_no_rate():
    """A last sample a millisecond after a tick may see one tick more: ten cores, if it were believed."""
    stats = counter_stats([0.0, 1.0, 1.001], [0.0, 1.0, 1.01], [Phase(name="x", begin_s=0, end_s=2)], 1.0)
    assert (stats.n, stats.max) == (1, pytest.approx(1.0, abs=0.01))


def test_the_greatest_growth_is_at_least_the_mean_where_the_busiest_interval_is_cut_by_a_phase():
    stats = counter_stats([0.0, 1.0, 2.0], [0.0, 1.0, 5.0], [Phase(name="x", begin_s=0.0, end_s=1.5)], 1.0)
    assert stats.n == 1
    assert stats.min == 1.0
    assert stats.max == stats.avg == pytest.approx(2.0)


def test_several_steady_parts_are_one_phase():
    parts = [Phase(name="steady", begin_s=1.0, end_s=2.0), Phase(name="steady", begin_s=4.0, end_s=5.0)]
    values = [float(value) for value in range(7)]
    assert gauge_stats(values, values, parts).n == 4
    assert counter_stats(values, values, parts, 1.0).growth == pytest.approx(2.0)
    assert [one.name for one in all_phases(parts, 6.0)] == ["trial", "warmup", "steady", "steady", "teardown"]


def test_percentiles_that_too_few_samples_carry_are_marked():
    times = [float(at) for at in range(50)]
    stats = gauge_stats(times, times, [Phase(name="x", begin_s=0, end_s=100)])
    assert stats.too_few_for == ["p99"]
    assert stats.p95 == pytest.approx(46.55)


def test_what_could_not_be_read_is_left_out_of_the_figures():
    whole = [Phase(name="x", begin_s=0, end_s=9)]
    assert gauge_stats([0.0, 1.0], [nan, nan], whole) is None
    assert gauge_stats([0.0, 1.0, 2.0], [nan, 4.0, nan], whole).avg == 4
    assert counter_stats([0.0, 1.0, 2.0], [0.0, nan, 2.0], whole, 1.0).avg == 1


def test_energy_is_power_over_time_and_null_without_a_meter(tmp_path):
    assert energy_j([0.0, 10.0], [100.0, 200.0], Phase(name="x", begin_s=0, end_s=10)) == pytest.approx(1500)
    assert energy_j([0.0, 10.0], [100.0, 200.0], Phase(name="x", begin_s=5, end_s=10)) == pytest.approx(875)
    rows = [(float(at), 100.0) for at in range(11)]
    told = [Phase(name="steady", begin_s=2.0, end_s=7.0)]
    metered = store.summarise(recording(rows, (POWER,), scope="gpu0"), "", 10.0, told)
    assert metered.energy_j == pytest.approx(1000)
    assert {one.name: one.energy_j for one in metered.phases}["steady"] == pytest.approx(500)
    meter = Series(name="energy", unit="J", kind="counter", family="energy")
    both = [(float(at), 100.0, 5000.0 + 90.0 * at) for at in range(11)]  # the meter is the better witness
    assert store.summarise(recording(both, (POWER, meter)), "", 10.0, []).energy_j == pytest.approx(900)
    assert store.summarise(recording(idle_then_busy()), "", 35.0, []).energy_j is None


def test_energy_of_a_device_that_was_opened_late_is_raised_to_the_whole_phase_or_unknown():
    meter = Series(name="energy", unit="J", kind="counter", family="energy")
    rows = [(float(at), 100.0, 5000.0 + 90.0 * at) for at in range(2, 10)] + [(10.0, nan, nan)]
    assert store.summarise(recording(rows, (POWER, meter)), "", 10.0, []).energy_j == pytest.approx(900)
    assert store.summarise(recording([row[:2] for row in rows], (POWER,)), "", 10.0, []).energy_j == pytest.approx(1000)
    told = [Phase(name="steady", begin_s=0.0, end_s=3.0)]  # two thirds of it before the first reading
    phases = store.summarise(recording(rows, (POWER, meter)), "", 10.0, told).phases
    assert {one.name: one.energy_j for one in phases}["steady"] is None


def test_parquet_holds_every_sample_bit_for_bit(tmp_path):
    rows = [(at / 3, at * 0.1, nan if at % 7 == 0 else at * 1e9) for at in range(2000)]
    store.write(tmp_path / "telemetry", recording(rows, scope="service:a/b"), "2026-11-15T00:00:00+00:00", 700.0, [])
    path = tmp_path / "telemetry" / "service.a.b.parquet"
    table = pq.read_table(path)
    assert table.column_names == ["time_s", "cpu", "rss"]
    back = list(zip(*(table[name].to_pylist() for name in table.column_names), strict=True))
    for kept, given in zip(back, rows, strict=True):
        assert kept[:2] == given[:2]
        assert kept[2] == given[2] or (isnan(kept[2]) and isnan(given[2]))
    metadata = pq.read_schema(path).metadata
    assert metadata[b"started"] == b"2026-11-15T00:00:00+00:00"
    assert json.loads(metadata[b"series"])[0]["unit"] == "s"
    import duckdb

    assert duckdb.sql(f"SELECT count(*), max(time_s) FROM '{path}'").fetchall() == [(2000, 1999 / 3)]


def test_two_samples_make_a_summary_and_no_parquet(tmp_path):
    store.write(tmp_path / "telemetry", recording([(0.0, 0.0, 1.0), (0.01, 0.01, 2.0)]), "", 0.01, [])
    assert [path.name for path in (tmp_path / "telemetry").iterdir()] == ["summary.json"]
    summary = TelemetrySummary.model_validate_json((tmp_path / "telemetry" / "summary.json").read_bytes())
    assert summary.scopes["trial"].file is None
    told = json.loads((tmp_path / "telemetry" / "summary.json").read_text())
    assert (told["schema_version"], told["energy_j"]) == (1, None)
    assert summary.stats("trial", "cpu", "trial").growth == pytest.approx(0.01)


def test_on_a_full_disk_nothing_half_written_is_left_to_fill_it(small_disk):
    """A megabyte is enough for the first scope and not for the second."""
    random.seed(1)
    rows = [(float(at), random.random(), random.random()) for at in range(50_000)]
    made = recording(rows)
    made.tracks.append(Track("service:a", (CPU, RSS), made.tracks[0].rows))
    with pytest.raises(OSError, match="No space"):
        store.write(small_disk / "telemetry", made, "", 50_000.0, [])
    assert list(small_disk.iterdir()) == []


def test_what_can_not_be_written_leaves_nothing_half_done(tmp_path):
    folder = tmp_path / "telemetry"
    folder.mkdir()
    (folder / "summary.json").mkdir()  # writing it fails as on a full disk: after the first file
    with pytest.raises(OSError):
        store.write(folder, recording(idle_then_busy()), "", 35.0, [])
    assert [path.name for path in folder.iterdir()] == ["summary.json"]
