"""The load engine with the Triton drivers, against a real server."""

import pytest
from services.quiet_moment import in_a_quiet_moment
from services.triton import counted

from benchhouse.drivers.triton import TritonHttp, TritonTarget
from benchhouse.drivers.triton_grpc import TritonGrpc
from benchhouse.experiments.serving.infer import Sequences
from benchhouse.load.engine import run_load
from benchhouse.load.protocols.calls import CallResult
from benchhouse.load.shape import Shape
from benchhouse.load.source import Planned, RequestPool

FIXED = {"model": "identity_fp32", "shapes": {"INPUT0": [8]}}


class Kept:
    """A tally that counts, and keeps the gaps between tokens."""

    def __init__(self) -> None:
        self.batches, self.gaps_ms = 0.0, []

    def add(self, call, reply: CallResult, start_ns, end_ns) -> int:
        self.batches += reply.count
        self.gaps_ms += [(b - a) / 1e6 for a, b in zip(reply.token_ns, reply.token_ns[1:], strict=False)]
        return 0

    def merge(self, other: "Kept") -> None:
        self.batches += other.batches
        self.gaps_ms += other.gaps_ms

    def streams(self) -> tuple[()]:
        return ()


def pool(driver: TritonHttp) -> RequestPool:
    return RequestPool([Planned(number, driver.request(number)) for number in range(driver.distinct)], seed=0)


def test_the_engine_gets_every_answer_and_the_server_counts_as_many(triton):
    driver = TritonHttp(TritonTarget(url=triton.url, **FIXED, batch=2))
    before = driver.statistics()
    book = run_load(lambda: driver, pool(driver), Shape(concurrency=8, requests=400, warmup=0), Kept)
    assert (book.failed, book.succeeded) == (0, 400)
    found = counted(driver, before, 400)
    assert (found["requests"], found["inferences"], book.tally.batches) == (400, 800, 800)


def test_two_load_processes_share_one_driver_in_shared_memory(triton):
    driver = TritonHttp(TritonTarget(url=triton.url, **FIXED, shared_memory=True))
    try:
        shape = Shape(concurrency=8, requests=200, warmup=0, processes=2)
        book = run_load(lambda: driver, pool(driver), shape, Kept)
        assert (book.failed, book.succeeded) == (0, 200)
        assert len(triton.get("/v2/systemsharedmemory/status")) == 2  # the children gave nothing back
    finally:
        driver.close()


def test_sequences_run_in_order_side_by_side(triton):
    driver = TritonHttp(TritonTarget(url=triton.url, model="sequence", sequence_length=5))
    book = run_load(
        lambda: driver, Sequences(5, driver.request, seed=0), Shape(concurrency=4, requests=100, warmup=0), Kept
    )
    assert (book.errors, book.succeeded) == ({}, 100)


def test_the_engine_stamps_streamed_tokens_with_their_spacing(triton):
    driver = TritonHttp(TritonTarget(url=triton.url, model="decoupled", call="stream", values={"count": 10}))

    def measure():
        book = run_load(lambda: driver, pool(driver), Shape(concurrency=4, requests=20, warmup=0), Kept)
        gaps = sorted(book.tally.gaps_ms)
        assert (book.failed, len(gaps)) == (0, 180)
        assert gaps[90] == pytest.approx(10, abs=0.5)

    in_a_quiet_moment(measure)


def test_threads_make_calls_over_grpc(triton):
    pytest.importorskip("grpc", reason="grpcio is not installed")
    target = TritonTarget(url=triton.grpc_url, protocol="grpc", **FIXED)
    numbers = RequestPool([Planned(number) for number in range(16)], seed=0)
    book = run_load(lambda: TritonGrpc(target), numbers, Shape(concurrency=4, requests=100, warmup=0), Kept)
    assert (book.failed, book.succeeded, book.connections) == (0, 100, 4)


def test_a_model_that_fails_is_counted_with_its_words(triton):
    driver = TritonHttp(
        TritonTarget(url=triton.url, model="text", shapes={"TEXT": [1]}, values={"TEXT": "fail"}, distinct=1)
    )
    book = run_load(lambda: driver, pool(driver), Shape(concurrency=1, requests=3, warmup=0), Kept)
    assert book.errors == {"http_500": 3}
    assert book.details == {"http_500": "asked to fail"}
