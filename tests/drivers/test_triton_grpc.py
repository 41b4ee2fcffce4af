"""The gRPC driver against a real server."""

import sys

import numpy
import pytest
from services.gateway import Gateway
from services.quiet_moment import in_a_quiet_moment
from services.triton import counted, free_ports

from benchhouse.drivers import kserve_pb2
from benchhouse.drivers.triton import TritonHttp, TritonTarget
from benchhouse.drivers.triton_grpc import TritonGrpc
from benchhouse.load.protocols.kserve import sequence
from benchhouse.schema.errors import BenchError

grpc = pytest.importorskip("grpc", reason="grpcio is not installed")
FIRST = 2000  # id of a first sequence
FIXED = {"model": "identity_fp32", "shapes": {"INPUT0": [8]}}


@pytest.fixture
def drive(triton):
    opened = []

    def make(timeout_s=None, **options) -> TritonGrpc:
        driver = TritonGrpc(TritonTarget(url=triton.grpc_url, protocol="grpc", **options), timeout_s=timeout_s)
        opened.append(driver)
        driver.open()
        return driver

    yield make
    for driver in opened:
        driver.close()


def raw(driver: TritonGrpc, item) -> dict[str, bytes]:
    """The outputs of a real answer by name."""
    answer = kserve_pb2.ModelInferResponse.FromString(driver._infer(driver.request(item)))
    return {output.name: data for output, data in zip(answer.outputs, answer.raw_output_contents, strict=True)}


def test_a_batch_of_floats_comes_back_bit_by_bit(drive):
    driver = drive(**FIXED, batch=4)
    reply = driver.call(1)
    assert (reply.error, reply.count) == (None, 4)
    assert raw(driver, 1)["OUTPUT0"] == driver.request(1)[-4 * 8 * 4 :]


def test_every_data_type_comes_back_bit_by_bit(drive):
    driver = drive(model="every_type")
    assert driver.call(0).error is None
    found = raw(driver, 0)
    assert len(found) == 13
    assert all(data in driver.request(0) for data in found.values())


def test_both_protocols_report_the_same_model_and_the_same_statistics(drive, triton):
    for options in [
        {"model": "every_type"},
        {"model": "text", "shapes": {"TEXT": [2]}},
        {"model": "sequence", "sequence_length": 2},
        {"model": "decoupled", "call": "stream", "values": {"count": 1}},
        {"model": "versioned", "version": "1"},
        {"model": "versioned"},
    ]:
        over_grpc = drive(**options)
        over_http = TritonHttp(TritonTarget(url=triton.url, **options))
        assert over_grpc.model == over_http.model
        before = over_grpc.statistics()
        over_grpc.check()
        assert counted(over_grpc, before, 1)["requests"] == 1
        assert over_grpc.statistics() == over_http.statistics()


def test_each_sequence_keeps_its_own_sum(drive):
    driver = drive(model="sequence", sequence_length=2, values={"INPUT0": 5})
    one, other = sequence(0, 2, FIRST), sequence(1, 2, FIRST)
    sums = [
        int.from_bytes(raw(driver, item)["SUM"], "little", signed=True) for item in (one[0], other[0], one[1], other[1])
    ]
    assert sums == [5, 5, -10, -10]


def test_streamed_tokens_are_stamped_with_their_spacing(drive):
    driver = drive(model="decoupled", call="stream", values={"count": 20})

    def measure():
        reply = driver.call(0)
        assert (reply.error, len(reply.token_ns)) == (None, 20)
        assert numpy.median(numpy.diff(reply.token_ns)) / 1e6 == pytest.approx(10, abs=1)

    in_a_quiet_moment(measure)


def test_an_error_in_mid_stream_is_told_with_the_servers_words(drive):
    reply = drive(model="decoupled", call="stream", values={"count": -2}).call(0)
    assert (reply.error, reply.detail, len(reply.token_ns)) == ("server_error", "the planted failure", 2)


def test_a_model_that_fails_a_request_has_the_error_it_has_over_http(drive):
    reply = drive(model="text", shapes={"TEXT": [1]}, values={"TEXT": "fail"}).call(0)
    assert (reply.error, reply.detail) == ("http_500", "INTERNAL: asked to fail")


def test_a_call_that_takes_too_long_is_a_timeout(drive):
    driver = drive(timeout_s=0.2, model="decoupled", call="stream", values={"count": 60})
    assert driver.call(0).error == "timeout"


def test_a_target_that_does_not_fit_the_server_is_refused_before_the_load(drive):
    for options, message in [
        ({"model": "identity_fp23"}, "has no model 'identity_fp23'.*\n.*did you mean 'identity_fp32'"),
        ({"model": "broken"}, "is not ready: UNAVAILABLE: .*the weights are missing"),
        ({"model": "versioned", "version": "9"}, "no version '9' at .*\nready versions: 1, 2"),
        ({"model": "slow", "shapes": {"INPUT0": [5]}}, r"INPUT0 takes \[4\], and \[5\] does not fit"),
        ({"model": "decoupled"}, "decoupled.*\ncall: stream"),
    ]:
        with pytest.raises(BenchError, match=message):
            drive(**options)


def test_a_server_that_is_down_is_named_and_one_that_goes_down_is_an_error(triton):
    (port,) = free_ports(1)
    driver = TritonGrpc(TritonTarget(url=f"grpc://127.0.0.1:{port}", model="m", protocol="grpc", timeout=5))
    with pytest.raises(BenchError, match="no Triton server answers at grpc://"):
        driver.open()
    driver.close()
    with Gateway(triton.grpc_port) as gateway:
        url = f"grpc://127.0.0.1:{gateway.port}"
        driver = TritonGrpc(TritonTarget(url=url, protocol="grpc", **FIXED))
        driver.open()
        before = driver.statistics()
        assert driver.call(0).error is None
        assert counted(driver, before, 1)["requests"] == 1
    assert driver.call(0).error in ("refused", "reset")
    driver.close()


def test_an_answer_of_the_wrong_size_is_malformed(drive):
    driver = drive(**FIXED)
    good = driver._infer(driver.request(0))
    assert driver._read(good).error is None
    assert driver._read(good[:-1]).error == "malformed"
    assert "bytes for FP32" in driver._read(good.replace(b"\x1a\x02\x01\x08", b"\x1a\x02\x01\x09")).detail
    assert "OUTPUT0 is missing" in driver._read(b"").detail


def test_without_grpcio_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "grpc", None)
    with pytest.raises(BenchError, match=r"needs grpcio and protobuf\n.*benchhouse\[triton\]"):
        TritonGrpc(TritonTarget(url="grpc://h:1", model="m", protocol="grpc"))
