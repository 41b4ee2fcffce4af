"""Energy of processors, from a fake powercap tree: no machine of ours has a real one."""

import threading
import time
from math import isnan
from pathlib import Path

import pytest
from experiments.training.test_run import trainer
from laboratory import Lab

from benchhouse.experiments.training.run import train
from benchhouse.schema.telemetry import Phase
from benchhouse.worker.context import TrialContext
from benchhouse.worker.monitors.rapl import Energy, unreadable_reason
from benchhouse.worker.monitors.sampler import Sampler
from benchhouse.worker.monitors.store import summarise
from benchhouse.worker.results import Handover

RANGE_UJ = 262_143_328_850
FIRST_UJ = 1_000_000
ZONES = {
    "intel-rapl:0": "package-0", "intel-rapl:0:0": "core", "intel-rapl:0:1": "dram", "intel-rapl:1": "package-1",
    "intel-rapl:1:0": "dram", "intel-rapl:2": "psys", "intel-rapl-mmio:0": "package-0",
}  # fmt: skip


@pytest.fixture
def fake_powercap(tmp_path) -> Path:
    for zone, name in ZONES.items():
        folder = tmp_path / "powercap" / zone
        folder.mkdir(parents=True)
        (folder / "name").write_text(f"{name}\n")
        (folder / "max_energy_range_uj").write_text(f"{RANGE_UJ}\n")
        draw(tmp_path / "powercap", zone, FIRST_UJ)
    return tmp_path / "powercap"


def draw(root: Path, zone: str, microjoules: int) -> None:
    """In place, as the kernel's file is always the same."""
    with (root / zone / "energy_uj").open("r+" if (root / zone / "energy_uj").exists() else "w") as file:
        file.write(f"{microjoules:020}\n")


def test_packages_and_their_memory_are_counted_once(fake_powercap):
    source = Energy(fake_powercap)
    assert [item.name for item in source.series] == ["cpu_energy", "dram_energy"] and source.sample() == [0, 0]
    for number, zone in enumerate(ZONES):
        draw(fake_powercap, zone, FIRST_UJ + 10**number * 1_000_000)
    assert source.sample() == [1 + 1000, 100 + 10_000]
    source.close()
    assert unreadable_reason(fake_powercap) == ""


def test_a_counter_that_begins_again_goes_on(fake_powercap):
    draw(fake_powercap, "intel-rapl:1", RANGE_UJ - 3_000_000)
    source = Energy(fake_powercap)
    draw(fake_powercap, "intel-rapl:1", 2_000_000)
    assert source.sample()[0] == pytest.approx(5)


def test_what_was_not_read_for_longer_than_a_range_can_last_is_unknown(fake_powercap):
    (fake_powercap / "intel-rapl:0" / "max_energy_range_uj").write_text("1\n")  # over in a nanosecond
    source = Energy(fake_powercap)
    assert isnan(source.sample()[0]) and isnan(source.sample()[0])


@pytest.mark.parametrize(
    ("broken", "says"),
    [
        (lambda root: Path(root / "intel-rapl:1" / "energy_uj").unlink(), "energy_uj can't be read: by default only"),
        (lambda root: [Path(root / zone / "name").write_text("psys") for zone in ZONES], "has no processor package"),
        (lambda root: root.rename(root.parent / "elsewhere"), "this machine has no "),
    ],
)
def test_a_machine_that_does_not_tell_has_no_such_series_and_a_reason(fake_powercap, broken, says):
    broken(fake_powercap)
    assert "cpu_energy" not in [item.name for item in Energy(fake_powercap).series]
    assert says in unreadable_reason(fake_powercap)


def test_energy_of_a_training_is_what_its_processors_drew_by_its_tokens(fake_powercap, tmp_path):
    """Each package draws 50 W and each memory 10 W, all the time."""
    over, zero_s = threading.Event(), time.monotonic()

    def draw_on() -> None:
        while not over.wait(0.01):
            used_s = time.monotonic() - zero_s
            for zone, name in ZONES.items():
                draw(fake_powercap, zone, FIRST_UJ + int(used_s * (10e6 if name == "dram" else 50e6)))

    drawing = threading.Thread(target=draw_on)
    drawing.start()
    steps = "for step in range(10):\n    begin = time.monotonic(); time.sleep(0.1)\n"
    steps += "    emit({'step': step, 't_start': begin, 't_end': time.monotonic(), 'tokens': 50})\n"
    sampler = Sampler([Energy(fake_powercap)], 0.1)
    sampler.start()
    ctx = TrialContext(train, "trial", 1, 0, tmp_path, tmp_path / "artifacts", None)
    train.call(trainer(steps), {"warmup": 0}, ctx)
    recording, duration_s = sampler.stop(), time.monotonic() - sampler.zero_s
    over.set()
    drawing.join()
    ((name, *moments),) = ctx.phases
    begin_s, end_s = (moment / 1e9 - sampler.zero_s for moment in moments)
    phase = Phase(name=name, begin_s=begin_s, end_s=end_s)
    handover = Handover(per_energy=ctx.per_energy)
    handover.energy_metrics(summarise(recording, "2026-11-15T00:00:00+00:00", duration_s, [phase]), str)
    (row,) = handover.measurements
    assert row.value == pytest.approx(2 * (50 + 10) * (end_s - begin_s) / (10 * 50), rel=0.1)
    assert handover.custom == {"energy_of": ["node"]}


@pytest.mark.skipif(unreadable_reason() == "", reason="this machine tells the energy of its processors")
def test_a_trial_says_why_its_energy_is_not_known(tmp_path):
    lab = Lab(tmp_path)
    steps = "for step in range(10): emit({'step': step, 'step_s': 0.1, 'tokens': 50}); time.sleep(0.1)"
    lab.run("training.run", target=trainer(steps), workload={"warmup": 0}, monitors={"sources": ["node"]})
    (trial,) = lab.trials()
    assert trial.meta["custom"]["energy_of"] == [] and unreadable_reason() in trial.meta["custom"]["no_energy"]
    assert "energy_per_token" not in str(trial.metrics)
