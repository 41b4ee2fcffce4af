"""GPUs by NVML, against a fake of the library that gives what an H200 gave, and fails when told to.

Run by test_nvml.py in a process whose loader finds the fake: what was loaded once can't be taken back.
"""

import ctypes
import math
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import benchhouse_client
from benchhouse.experiments.training.run import train
from benchhouse.schema.telemetry import MonitorSettings, Phase
from benchhouse.worker import topology
from benchhouse.worker.context import TrialContext
from benchhouse.worker.monitors import nvml, watch
from benchhouse.worker.monitors.sampler import Sampler
from benchhouse.worker.monitors.store import summarise
from benchhouse.worker.monitors.watch import Outward
from benchhouse.worker.results import Handover
from benchhouse.worker.topology import read_gpus

ASKED = MonitorSettings(interval=0.1, sources=["gpu"])


@pytest.fixture
def faults(tmp_path) -> Iterator[Path]:
    """Lines of "CALL GPU CODE": from then on that call fails."""
    path = tmp_path / "faults"
    path.write_text("")
    ctypes.CDLL(None).setenv(b"FAKE_NVML_FAULTS", str(path).encode(), 1)
    yield path
    ctypes.CDLL(None).unsetenv(b"FAKE_NVML_FAULTS")


def values(gpu: nvml.GpuSource) -> dict[str, float]:
    return {series.name: value for series, value in zip(gpu.series, gpu.sample(), strict=True)}


def test_a_gpu_tells_everything_in_plain_units(faults):
    first, second = nvml.open_gpus()
    assert (first.name, second.name, first.model) == ("gpu0", "gpu1", "NVIDIA H200")
    seen = values(first)
    energy = seen.pop("gpu_energy")
    assert 5e6 < energy < 5.001e6
    assert values(first)["gpu_energy"] == pytest.approx(energy + 1)
    assert seen == pytest.approx(
        {
            "gpu_busy": 0.97, "gpu_memory_busy": 0.31, "gpu_memory_used": 6001 * 2**20,
            "gpu_memory_total": 143771 * 2**20, "gpu_sm_clock": 1980, "gpu_memory_clock": 3201, "gpu_power": 113.05,
            "gpu_temperature": 38, "gpu_memory_temperature": 41, "gpu_throttled": 1, "gpu_throttled_power": 1,
            "gpu_throttled_heat": 1, "gpu_throttled_hardware": 0, "gpu_ecc_corrected": 7, "gpu_ecc_uncorrected": 0,
            "pcie_width": 16, "pcie_width_most": 16, "pcie_generation": 5, "pcie_generation_most": 5,
            "pcie_sent": 1_093_000, "pcie_received": 541_000, "pcie_replays": 2, "nvlink_active": 17,
            "nvlink_sent": 10240, "nvlink_received": 20480, "nvlink_crc": 5, "nvlink_replays": 3,
            "nvlink_recoveries": 6,
        }
    )  # fmt: skip
    assert first.problems == second.problems == []
    for gpu in (first, second):
        gpu.close()


def test_what_a_gpu_does_not_know_is_no_series(faults):
    first, second = nvml.open_gpus()
    missing = {item.name for item in first.series} - {item.name for item in second.series}
    assert missing == {
        "nvlink_active", "nvlink_sent", "nvlink_received", "nvlink_crc", "nvlink_replays", "nvlink_recoveries",
    }  # fmt: skip
    assert values(second)["pcie_width"] == 8
    assert values(second)["gpu_throttled"] == 0, "an idle GPU is not throttled"


def test_a_driver_without_field_values_tells_the_rest(faults):
    faults.write_text("nvmlDeviceGetFieldValues 0 13\n")
    gpu = nvml.open_gpus()[0]
    seen = values(gpu)
    assert "gpu_memory_temperature" not in seen
    assert seen["nvlink_active"] == 17
    assert gpu.problems == []


def test_a_call_that_fails_in_mid_run_is_nan_and_one_warning(faults):
    gpu = nvml.open_gpus()[0]
    faults.write_text("nvmlDeviceGetPowerUsage 0 999\nfield52 0 999\n")
    for _ in range(3):
        seen = values(gpu)
        assert {name for name, value in seen.items() if math.isnan(value)} == {"gpu_power", "nvlink_replays"}
    assert gpu.problems == [
        "gpu0: nvmlDeviceGetPowerUsage: Unknown Error (999); values are missing where it does not answer"
    ]
    faults.write_text("")
    assert not any(math.isnan(value) for value in gpu.sample()), "it answers again"


def test_a_gpu_that_falls_off_the_bus_leaves_the_other_one_alone(faults):
    first, second = nvml.open_gpus()
    faults.write_text("* 0 15\n")
    assert all(math.isnan(value) for value in first.sample())
    assert len(first.sample()) == len(first.series)
    assert not any(math.isnan(value) for value in second.sample())
    assert first.problems == ["gpu0 NVIDIA H200: the GPU is lost, its series end here"]
    assert second.problems == []
    faults.write_text("")
    assert all(math.isnan(value) for value in first.sample()), "a lost GPU is not asked again"
    first.close()
    second.close()


def test_a_gpu_that_is_lost_from_the_start_is_named_and_the_others_are_watched(faults):
    faults.write_text("* 1 15\n")
    first, second = nvml.open_gpus()
    assert values(first)["gpu_busy"] == 0.97
    assert list(second.sample()) == list(second.series) == []
    assert second.problems == ["gpu1: the GPU is lost, its series end here"]


def test_a_driver_that_is_not_loaded_is_no_source_and_a_reason(faults, capfd):
    faults.write_text("nvmlInitWithFlags 0 9\n")
    assert nvml.open_gpus() == []
    with pytest.raises(nvml.NoNvml, match=r"NVML does not start: Driver Not Loaded \(9\)"):
        read_gpus()
    assert capfd.readouterr() == ("", "")


def test_closing_ends_what_was_begun_and_may_be_done_twice(faults):
    begun = ctypes.CDLL("libnvidia-ml.so.1").fake_begun
    before = begun()
    gpus = nvml.open_gpus()
    assert begun() == before + 2
    for gpu in gpus * 2:
        gpu.close()
    assert begun() == before
    assert all(math.isnan(value) for value in gpus[0].sample()), "a closed source raises nothing"


def test_gpus_tell_how_they_are_joined(faults):
    (first, second), driver, cuda = read_gpus()
    assert (driver, cuda) == ("570.86.10", "12.8")
    assert (first.uuid, first.name, first.memory_bytes) == ("GPU-0", "NVIDIA H200", 143771 << 20)
    assert (first.bus, first.pcie_width, first.pcie_generation_most) == ("00000000:a0:00.0", 16, 5)
    assert (second.pcie_width, second.pcie_width_most) == (8, 16)
    assert first.nvlinks == 17, "one of 18 is down"
    assert first.nvlink_peers == ["00000000:a1:00.0"] * 9 + ["switch"] * 8
    assert (second.nvlinks, second.nvlink_peers) == (None, [])
    assert first.paths == {"00000000:a1:00.0": "PXB"} and second.paths == {"00000000:a0:00.0": "PXB"}


def test_what_one_gpu_does_not_tell_is_null_for_it_alone(faults):
    faults.write_text("nvmlDeviceGetUUID 1 3\nnvmlDeviceGetHandleByIndex_v2 0 15\n")
    (first, second), driver, _ = read_gpus()
    assert (first.uuid, first.name, first.nvlinks) == (None, None, None)
    assert (second.uuid, second.name, driver) == (None, "NVIDIA H200", "570.86.10")


def test_what_a_gpu_does_not_tell_has_a_reason(faults):
    faults.write_text("nvmlDeviceGetUUID 1 3\n")
    unknown = topology.node_topology.__wrapped__().unknown
    assert unknown["gpus.1.uuid"] == "NVML does not say"
    assert unknown["gpus.1.nvlinks"] == "NVML shows no NVLink on it"
    assert "gpus.0.nvlinks" not in unknown and "gpus.0.uuid" not in unknown


@pytest.fixture
def fake_driver(faults, monkeypatch):
    monkeypatch.setattr(watch, "driver_is_here", lambda: True)
    return faults


def watched(seconds: float, meanwhile=None):
    sampler = Sampler([], ASKED.interval)
    sampler.start()
    beside = Outward(ASKED, None, sampler)
    beside.begin()
    time.sleep(seconds)
    if meanwhile:
        meanwhile()
        time.sleep(seconds)
    beside.end()
    return sampler.stop()


def test_gpus_are_sampled_in_threads_of_their_own(fake_driver):
    recording = watched(0.6)
    assert [track.scope for track in recording.tracks] == ["gpu0", "gpu1"]
    busy = [track.column(1) for track in recording.tracks]
    assert len(busy[0]) >= 4
    assert set(busy[0]) == {0.97}
    assert recording.problems == []


def test_a_gpu_that_falls_off_the_bus_ends_nothing_and_is_named(fake_driver):
    recording = watched(0.6, lambda: fake_driver.write_text("* 0 15\n"))
    lost, well = (track.column(1) for track in recording.tracks)
    assert lost[0] == 0.97
    assert math.isnan(lost[-1])
    assert set(well) == {0.0}
    assert recording.problems == ["gpu0 NVIDIA H200: the GPU is lost, its series end here"]


def test_energy_of_a_training_is_what_its_gpus_drew_by_its_tokens(faults, tmp_path):
    """Without a meter of energy, so that the truth is known: each draws 113.05 W all the time."""
    faults.write_text("".join(f"nvmlDeviceGetTotalEnergyConsumption {gpu} 3\n" for gpu in range(2)))
    program = f"import sys, time; sys.path.insert(0, {str(Path(benchhouse_client.__file__).parent)!r})\n"
    program += "from benchhouse_client import emit\nbegin = time.monotonic()\nfor step in range(10):\n"
    program += "    time.sleep(0.1); end = time.monotonic()\n"
    program += "    emit({'step': step, 't_start': begin, 't_end': end, 'tokens': 50}); begin = end\n"
    sampler = Sampler([], ASKED.interval)
    sampler.start()
    for gpu in nvml.open_gpus():
        sampler.add(gpu)
    ctx = TrialContext(train, "trial", 1, 0, tmp_path, tmp_path / "artifacts", None)
    train.call({"argv": [sys.executable, "-S", "-c", program]}, {"warmup": 0}, ctx)
    duration_s = time.monotonic() - sampler.zero_s
    ((name, begin_ns, end_ns),) = ctx.phases
    begin_s, end_s = (moment / 1e9 - sampler.zero_s for moment in (begin_ns, end_ns))
    recording, phase = sampler.stop(), Phase(name=name, begin_s=begin_s, end_s=end_s)
    handover = Handover(per_energy=ctx.per_energy)
    handover.energy_metrics(summarise(recording, "2026-11-15T00:00:00+00:00", duration_s, [phase]), str)
    (row,) = handover.measurements
    assert (row.metric, row.unit) == ("energy_per_token", "J/token")
    assert row.value == pytest.approx(2 * 113.05 * (end_s - begin_s) / (10 * 50))
