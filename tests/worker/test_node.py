"""What is said of the machine is what can be read there."""

import os

from benchhouse.worker import node


def test_hardware_is_this_machine():
    found = node.hardware()
    assert found["cpus_usable"] == len(os.sched_getaffinity(0))
    assert found["memory_bytes"] > 1 << 28
    assert isinstance(found["gpus"], list)


def test_packages_are_named_and_the_lock_digest_follows_them(monkeypatch):
    assert "pydantic" in node.packages()
    assert list(node.packages()) == sorted(node.packages())
    before = node.lock_digest()
    monkeypatch.setattr(node, "packages", lambda: {"other": "1"})
    assert node.lock_digest.__wrapped__() != before


def test_unreadable_files_are_none():
    assert node._read("/nowhere") is None
