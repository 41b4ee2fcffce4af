"""GPUs by nvidia-smi, against a fake of the program that prints what a real one printed beside an H200's NVML."""

import json
import math
import os
import time
from pathlib import Path

import pytest

from benchhouse.worker.monitors import smi

RECORDED = json.loads((Path(__file__).parent / "h200.json").read_text())
ROW = RECORDED[-1]["nvidia_smi"]  # under load


def fake_program(folder: Path, once: str, loop: str) -> str:
    path = folder / "fake-nvidia-smi"
    path.write_text(f'#!/bin/sh\ncase "$*" in\n*--loop-ms*) {loop};;\n*) {once};;\nesac\n')
    path.chmod(0o755)
    return str(path)


def values(gpu: smi.Gpu) -> dict[str, float]:
    return {series.name: value for series, value in zip(gpu.series, gpu.sample(), strict=True)}


def until(gpu: smi.Gpu, true, limit_s: float = 10) -> dict[str, float]:
    end = time.monotonic() + limit_s
    while not true(found := values(gpu)):
        assert time.monotonic() < end, found
        time.sleep(0.02)
    return found


@pytest.mark.parametrize("at", range(len(RECORDED)))
def test_what_nvidia_smi_prints_is_what_nvml_said_in_the_same_moment(tmp_path, at):
    recorded = RECORDED[at]
    (gpu,) = smi.open_gpus(0.1, fake_program(tmp_path, f"echo '{recorded['nvidia_smi']}'", "sleep 60"))
    seen = values(gpu)
    gpu.close()
    assert (gpu.name, gpu.model) == ("gpu0", "NVIDIA H200")
    assert len(seen) == 19
    if recorded["when"] == "end":  # the GPU had settled: between the two looks, 0.1 s apart, nothing moved
        assert seen == pytest.approx({name: recorded["nvml"][name] for name in seen}, rel=1e-3, abs=1)
    else:
        loose = {"gpu_sm_clock", "gpu_power", "gpu_temperature", "gpu_memory_temperature"}
        for name in seen:
            assert seen[name] == pytest.approx(recorded["nvml"][name], rel=0.06 if name in loose else 1e-3), name


def test_the_newest_line_counts(tmp_path):
    newer = ROW.replace(" 100, ", " 55, ", 1)
    (gpu,) = smi.open_gpus(0.1, fake_program(tmp_path, f"echo '{ROW}'", f"echo '{ROW}'; echo '{newer}'; sleep 60"))
    assert until(gpu, lambda seen: seen["gpu_busy"] == 0.55)["gpu_throttled_power"] == 1
    gpu.close()


def test_a_column_that_an_older_program_refuses_is_left_out(tmp_path):
    words = 'Field "temperature.memory" is not a valid field to query.'
    refuse = f"case \"$*\" in *temperature.memory*) echo '{words}'; exit 2;; esac"
    row = ", ".join(text for at, text in enumerate(ROW.split(", ")) if at != 10)
    (gpu,) = smi.open_gpus(0.1, fake_program(tmp_path, f"{refuse}; echo '{row}'", "sleep 60"))
    gpu.close()
    names = [item.name for item in gpu.series]
    assert "gpu_memory_temperature" not in names
    assert len(names) == 18


def test_what_is_not_available_is_no_series(tmp_path):
    row = ROW.replace("658.33", "[N/A]")
    (gpu,) = smi.open_gpus(0.1, fake_program(tmp_path, f"echo '{row}'", "sleep 60"))
    gpu.close()
    assert "gpu_power" not in [item.name for item in gpu.series]


def test_a_program_that_ends_in_mid_run_is_nan_and_one_problem(tmp_path):
    (gpu,) = smi.open_gpus(0.1, fake_program(tmp_path, f"echo '{ROW}'", "exit 9"))
    until(gpu, lambda seen: math.isnan(seen["gpu_busy"]))
    values(gpu)
    assert len(gpu.problems) == 1
    assert "nvidia-smi ended" in gpu.problems[0]
    gpu.close()


def test_a_program_that_hangs_is_nan_after_a_while(tmp_path):
    (gpu,) = smi.open_gpus(0.1, fake_program(tmp_path, f"echo '{ROW}'", "exec sleep 60"))
    until(gpu, lambda seen: math.isnan(seen["gpu_busy"]))
    assert gpu.problems == ["gpu0: nvidia-smi has printed nothing for 1 s; its values are missing from here on"]
    gpu.close()


def test_closing_ends_the_process(tmp_path):
    mark = tmp_path / "pid"
    row = ROW.replace("0, NVIDIA", "1, NVIDIA", 1)
    program = fake_program(tmp_path, f"echo '{ROW}'; echo '{row}'", f"echo $$ > {mark}; exec sleep 60")
    first, second = smi.open_gpus(0.1, program)
    end = time.monotonic() + 120
    while not (mark.exists() and mark.read_text().strip()):
        assert time.monotonic() < end
        time.sleep(0.02)
    pid = int(mark.read_text())
    first.close()
    os.kill(pid, 0)  # the other GPU still needs it
    second.close()
    second.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_no_program_or_no_gpu_is_no_source(tmp_path):
    assert smi.open_gpus(1.0, "there-is-no-such-program") == []
    assert smi.open_gpus(1.0, fake_program(tmp_path, "echo 'NVIDIA-SMI has failed'; exit 9", "true")) == []
    assert smi.open_gpus(1.0, fake_program(tmp_path, "echo 'No devices were found'", "true")) == []
