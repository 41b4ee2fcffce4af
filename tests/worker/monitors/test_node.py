"""The node's figures agree with what the kernel says elsewhere, and what it does not say is NaN."""

import os
import time
from math import isnan
from pathlib import Path

import pytest

from benchhouse.worker.monitors.cgroup import Cgroup
from benchhouse.worker.monitors.machine import node
from benchhouse.worker.monitors.procfs import (
    Disks,
    Joined,
    MemoryFile,
    NetworkFile,
    OpenFile,
    Paced,
    Pressure,
    Processors,
)


def values(source):
    return dict(zip([one.name for one in source.series], source.sample(), strict=True))


def test_busy_time_is_all_time_but_idle_and_waiting():
    seen = values(Processors())
    user, nice, system, _, iowait, irq, softirq, _ = map(
        int, Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]
    )
    ticks = os.sysconf("SC_CLK_TCK")
    assert seen["cpu_busy"] == pytest.approx((user + nice + system + irq + softirq) / ticks, abs=1.0)
    assert seen["cpu_busy"] == pytest.approx(seen["cpu_user"] + seen["cpu_system"])
    assert seen["cpu_iowait"] == pytest.approx(iowait / ticks, abs=1.0)
    assert seen["running"] >= 1


def test_memory_agrees_with_the_machine():
    seen = values(MemoryFile())
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert seen["memory_used"] + seen["memory_available"] == pytest.approx(total, rel=0.05)


def test_only_real_disks_and_cards_are_counted(tmp_path):
    blocks, cards = tmp_path / "block", tmp_path / "net"
    for name in ("sda", "nvme0n1"):
        (blocks / name / "device").mkdir(parents=True)
    for name in ("dm-0", "loop0"):
        (blocks / name).mkdir()
    (cards / "eth0" / "device").mkdir(parents=True)
    for name in ("lo", "br0", "veth1"):
        (cards / name).mkdir()
    line = "8 0 {} 10 0 100 0 20 0 200 0 0 500 0 0 0 0 0 0 0\n"
    diskstats, dev = tmp_path / "diskstats", tmp_path / "dev"
    diskstats.write_text("".join(line.format(name) for name in ("sda", "sda1", "nvme0n1", "dm-0", "loop0")))
    row = "{}: 1000 1 2 3 0 0 0 0 500 1 4 5 0 0 0 0\n"
    dev.write_text("head\nhead\n" + "".join(row.format(name) for name in ("    lo", "  eth0", "br0", "veth1")))
    disks = values(Disks(str(diskstats), str(blocks)))
    assert disks == {
        "disk_read": 2 * 100 * 512, "disk_written": 2 * 200 * 512, "disk_reads": 20, "disk_writes": 40, "disk_busy": 1.0
    }  # fmt: skip
    network = values(NetworkFile(str(dev), str(cards)))
    assert network == {"net_received": 1000, "net_sent": 500, "net_errors": 6, "net_drops": 8, "loopback": 1000}


def test_a_kernel_without_pressure_has_no_such_series(tmp_path):
    assert list(Pressure("cpu", str(tmp_path)).series) == []
    (tmp_path / "io").write_text("some avg10=0.00 total=2500000\nfull avg10=0.00 total=1000000\n")
    assert values(Pressure("io", str(tmp_path))) == {"io_pressure": 2.5, "io_pressure_full": 1.0}


def test_a_part_that_can_not_be_read_is_nan_and_leaves_the_others_alone(tmp_path):
    broken = MemoryFile(str(tmp_path / "missing"))
    seen = values(Joined("node", [broken, Processors()]))
    assert isnan(seen["memory_used"])
    assert seen["cpu_busy"] > 0


def test_a_file_longer_than_a_page_is_read_whole(tmp_path):
    big = tmp_path / "big"
    big.write_text("x" * 100_000)
    assert len(OpenFile(str(big)).read()) == 100_000


def test_what_is_paced_is_read_once_a_second():
    paced = Paced(Processors())
    first, second = paced.sample(), paced.sample()
    assert not isnan(first[0])
    assert all(isnan(value) for value in second)
    time.sleep(0.95)
    assert not isnan(paced.sample()[0])


def test_the_whole_node_is_read_and_its_names_are_its_own():
    seen = node()
    names = [one.name for one in seen.series]
    assert len(set(names)) == len(names) == len(seen.sample())
    seen.close()


def test_a_v2_cgroup_tells_time_throttling_memory_and_kills(tmp_path):
    (tmp_path / "cpu.stat").write_text("usage_usec 1500000\nnr_periods 10\nnr_throttled 4\nthrottled_usec 250000\n")
    (tmp_path / "memory.current").write_text("4096\n")
    (tmp_path / "memory.events").write_text("low 0\noom 3\noom_kill 2\n")
    assert values(Cgroup({"v2": tmp_path})) == {
        "cgroup_cpu": 1.5, "cgroup_throttled": 0.25, "cgroup_periods": 10, "cgroup_throttled_periods": 4,
        "cgroup_memory": 4096, "cgroup_oom_kills": 2,
    }  # fmt: skip


def test_a_v1_cgroup_tells_the_same_from_its_controllers(tmp_path):
    for name in ("cpu", "cpuacct", "memory"):
        (tmp_path / name).mkdir()
    (tmp_path / "cpuacct" / "cpuacct.usage").write_text("1500000000\n")
    (tmp_path / "cpu" / "cpu.stat").write_text("nr_periods 10\nnr_throttled 4\nthrottled_time 250000000\n")
    (tmp_path / "memory" / "memory.usage_in_bytes").write_text("4096\n")
    (tmp_path / "memory" / "memory.oom_control").write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 2\n")
    assert values(Cgroup({name: tmp_path / name for name in ("cpu", "cpuacct", "memory")})) == {
        "cgroup_cpu": 1.5, "cgroup_throttled": 0.25, "cgroup_periods": 10, "cgroup_throttled_periods": 4,
        "cgroup_memory": 4096, "cgroup_oom_kills": 2,
    }  # fmt: skip


def test_without_a_cgroup_there_are_no_series_of_one():
    assert list(Cgroup({}).series) == []
