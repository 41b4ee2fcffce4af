"""GPUs by NVML, against a fake of the library that gives what an H200 gave, and fails when told to."""

import ctypes
import math

import pytest

from benchhouse.worker.monitors import nvml


def values(gpu: nvml.Gpu) -> dict[str, float]:
    return {series.name: value for series, value in zip(gpu.series, gpu.sample(), strict=True)}


def test_a_gpu_tells_everything_in_plain_units(library, faults):
    first, second = nvml.open_gpus(library)
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


def test_what_a_gpu_does_not_know_is_no_series(library, faults):
    first, second = nvml.open_gpus(library)
    missing = {item.name for item in first.series} - {item.name for item in second.series}
    assert missing == {
        "nvlink_active", "nvlink_sent", "nvlink_received", "nvlink_crc", "nvlink_replays", "nvlink_recoveries",
    }  # fmt: skip
    assert values(second)["pcie_width"] == 8
    assert values(second)["gpu_throttled"] == 0, "an idle GPU is not throttled"


def test_a_driver_without_field_values_tells_the_rest(library, faults):
    faults.write_text("nvmlDeviceGetFieldValues 0 13\n")
    gpu = nvml.open_gpus(library)[0]
    seen = values(gpu)
    assert "gpu_memory_temperature" not in seen
    assert seen["nvlink_active"] == 17
    assert gpu.problems == []


def test_a_call_that_fails_in_mid_run_is_nan_and_one_warning(library, faults):
    gpu = nvml.open_gpus(library)[0]
    faults.write_text("nvmlDeviceGetPowerUsage 0 999\nfield52 0 999\n")
    for _ in range(3):
        seen = values(gpu)
        assert {name for name, value in seen.items() if math.isnan(value)} == {"gpu_power", "nvlink_replays"}
    assert gpu.problems == [
        "gpu0: nvmlDeviceGetPowerUsage: Unknown Error (999); values are missing where it does not answer"
    ]
    faults.write_text("")
    assert not any(math.isnan(value) for value in gpu.sample()), "it answers again"


def test_a_gpu_that_falls_off_the_bus_leaves_the_other_one_alone(library, faults):
    first, second = nvml.open_gpus(library)
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


def test_a_gpu_that_is_lost_from_the_start_is_named_and_the_others_are_watched(library, faults):
    faults.write_text("* 1 15\n")
    first, second = nvml.open_gpus(library)
    assert values(first)["gpu_busy"] == 0.97
    assert list(second.sample()) == list(second.series) == []
    assert second.problems == ["gpu1: the GPU is lost, its series end here"]


def test_no_nvml_is_no_source_and_no_noise(tmp_path, capfd, library, faults):
    assert nvml.open_gpus(str(tmp_path / "libnvidia-ml.so.1")) is None
    broken = tmp_path / "broken.so"
    broken.write_bytes(b"not a library")
    assert nvml.open_gpus(str(broken)) is None
    assert nvml.open_gpus("libc.so.6") is None, "a library without its functions"
    faults.write_text("nvmlInit_v2 0 9\n")  # the driver is not loaded
    assert nvml.open_gpus(library) is None
    assert capfd.readouterr() == ("", "")


def test_closing_ends_what_was_begun_and_may_be_done_twice(library, faults):
    begun = ctypes.CDLL(library).fake_begun
    before = begun()
    gpus = nvml.open_gpus(library)
    assert begun() == before + 2
    for gpu in gpus * 2:
        gpu.close()
    assert begun() == before
    assert all(math.isnan(value) for value in gpus[0].sample()), "a closed source raises nothing"


def test_every_series_is_declared_once():
    names = [item.name for item in nvml.SERIES]
    assert len(set(names)) == len(names) == 29
    assert {item.family for item in nvml.SERIES} == {"gpu", "pcie", "nvlink", "energy"}
