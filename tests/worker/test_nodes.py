"""The nodes of a trial, by the environment of its job."""

import os

import pytest

from benchhouse.schema.experiment import ExperimentFailed
from benchhouse.worker import nodes


@pytest.fixture(autouse=True)
def _no_job(monkeypatch):
    for name in [name for name in os.environ if name.startswith("SLURM")]:
        monkeypatch.delenv(name)


def test_outside_of_a_job_there_is_this_machine():
    assert nodes.names() == [os.uname().nodename]


def test_the_worker_s_own_node_comes_first(monkeypatch):
    monkeypatch.setenv("SLURM_JOB_NODELIST", "n[1-3]")
    monkeypatch.setenv("SLURMD_NODENAME", "n2")
    assert nodes.names() == ["n2", "n1", "n3"]
    assert nodes.others() == ["n1", "n3"]


def test_the_address_of_a_device_is_found_and_one_that_is_not_there_is_told():
    assert nodes.address("lo") == "127.0.0.1"
    with pytest.raises(ExperimentFailed, match=r"no address on the device ib7 .* it has: .*lo"):
        nodes.address("ib7")


def test_without_a_device_the_way_to_a_peer_decides():
    assert nodes.address(None, ["no-such-host.invalid", "127.0.0.1"]) == "127.0.0.1"


def test_without_srun_nothing_starts_elsewhere(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ExperimentFailed, match="there is no srun here"):
        nodes.command_on("n2", 1)
