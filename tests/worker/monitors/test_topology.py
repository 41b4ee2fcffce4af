"""What a worker reads of its node: the machine that runs this test. GPUs: cases_nvml.py."""

import os
import platform

import pytest

from benchhouse.worker import topology as module
from benchhouse.worker.topology import node_topology, topology


def test_the_node_is_as_the_kernel_says(tmp_path):
    node = topology(str(tmp_path))
    assert (node.machine, node.kernel) == (platform.machine(), platform.release())
    assert node.cpu.threads == os.cpu_count()
    assert node.cpu.usable == len(os.sched_getaffinity(0))
    assert node.cpu.cores is None or 1 <= (node.cpu.sockets or 0) <= node.cpu.cores <= (node.cpu.threads or 0)
    assert node.memory_bytes == os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert node.filesystem
    assert "lo" not in {nic.name for nic in node.nics}


def test_what_is_null_has_a_reason(tmp_path):
    node = topology(str(tmp_path))
    nulls = {"cpu_model": node.cpu.model, "cpu_cores": node.cpu.cores, "cpu_governor": node.cpu.governor,
             "gpus": node.gpus, "gpu_driver": node.gpu_driver, "cuda": node.cuda}  # fmt: skip
    assert {name for name, value in nulls.items() if value is None} <= set(node.unknown)
    for nic in node.nics:
        assert nic.speed_mbps is not None or f"nics.{nic.name}.speed_mbps" in node.unknown


def test_it_is_read_once_a_process(monkeypatch, tmp_path):
    node_topology()
    monkeypatch.setattr(module, "read_gpus", lambda: pytest.fail("asked again"))
    assert topology(str(tmp_path)).kernel == platform.release()


def test_adapters_of_infiniband_are_network_devices_too(tmp_path):
    """Files as a node with a Mellanox card has them, planted."""
    planted = {
        "net/eth0/speed": "25000\n", "net/ib0/speed": "-1\n", "net/lo/speed": "",
        "infiniband/mlx5_0/ports/1/rate": "400 Gb/sec (4X NDR)\n", "infiniband/mlx5_0/ports/1/state": "4: ACTIVE\n",
        "infiniband/mlx5_0/device/numa_node": "1\n",
        "infiniband/mlx5_1/ports/1/rate": "10 Gb/sec (4X SDR)\n", "infiniband/mlx5_1/ports/1/state": "1: DOWN\n",
    }  # fmt: skip
    for name, text in planted.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    unknown: dict[str, str] = {}
    nics = {nic.name: (nic.speed_mbps, nic.numa) for nic in module._nics(unknown, tmp_path)}
    assert nics == {"eth0": (25000, None), "ib0": (None, None), "mlx5_0": (400_000, 1), "mlx5_1": (None, None)}
    assert set(unknown) == {"nics.ib0.speed_mbps", "nics.mlx5_1.speed_mbps"}
