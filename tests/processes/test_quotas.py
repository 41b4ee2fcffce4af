"""What cgroups leave to a process."""

import os

from benchhouse.processes import quotas as module


def test_limits_of_cgroups_are_the_least_from_here_upward(monkeypatch, tmp_path):
    inner = tmp_path / "job" / "step"
    inner.mkdir(parents=True)
    (inner / "cpu.max").write_text("max 100000\n")
    (inner.parent / "cpu.max").write_text("150000 100000\n")
    (tmp_path / "cpu.max").write_text("800000 100000\n")
    (inner / "memory.max").write_text("max\n")
    (inner.parent / "memory.max").write_text("1048576\n")
    monkeypatch.setattr(module, "_CGROUP", tmp_path)
    read = module._read
    fake = {"/proc/self/cgroup": "0::/job/step"}
    monkeypatch.setattr(module, "_read", lambda path: fake.get(str(path)) or read(path))
    assert (module.cpu_quota(), module.memory_limit()) == (1.5, 1 << 20)


def test_cores_are_those_of_the_affinity_within_the_quota(monkeypatch):
    cores = len(os.sched_getaffinity(0))
    monkeypatch.setattr(module, "cpu_quota", lambda: None)
    assert module.usable_cores() == cores
    monkeypatch.setattr(module, "cpu_quota", lambda: 0.4)
    assert module.usable_cores() == 1
