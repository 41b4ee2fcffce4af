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
