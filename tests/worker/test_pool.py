"""What a pool knows of its workers."""

import socket

import pytest

from benchhouse.worker.pool import PoolWorker, WorkerPool


@pytest.fixture
def pool():
    made = WorkerPool()
    mine, made.theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    made.worker = PoolWorker(pid=0, line=mine, job="t")
    made.workers[0] = made.worker
    with mine, made.theirs:
        yield made


def test_a_trial_that_is_measured_leaves_its_slot_but_has_not_ended(pool):
    assert pool.measuring == 1
    pool.theirs.send(b"measured")
    assert pool._hear(pool.worker) is None
    assert pool.measuring == 0
    assert pool.worker.job == "t"


def test_a_trial_that_is_sealed_has_ended_and_its_worker_is_free(pool):
    pool.theirs.send(b"measured")
    pool.theirs.send(b"sealed")
    assert pool._hear(pool.worker) is None
    assert pool._hear(pool.worker) == ("t", 0)
    assert pool.worker.job is None


def test_the_next_trial_of_a_worker_has_its_slot_until_it_is_measured_itself(pool):
    for said in (b"measured", b"sealed"):
        pool.theirs.send(said)
        pool._hear(pool.worker)
    pool.begin({"id": "next", "folder": "", "log": ""})
    assert pool.measuring == 1
