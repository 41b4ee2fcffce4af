"""The HTTP driver against a real server."""

import json
import os
import threading
from array import array
from pathlib import Path

import numpy
import pytest
from pydantic import ValidationError
from services.quiet_moment import in_a_quiet_moment
from services.triton import Triton, counted, exchange, free_ports

from benchhouse.drivers.triton import SharedRegion, TritonHttp, TritonTarget
from benchhouse.drivers.triton_model import between
from benchhouse.load.protocols.calls import CallResult, Exchange
from benchhouse.load.protocols.kserve import InferItem, sequence
from benchhouse.schema.errors import BenchError

FIRST = 1000  # id of a first sequence; the server forgets those of an earlier test when they end
FIXED = {"model": "identity_fp32", "shapes": {"INPUT0": [8]}}


def drive(triton: Triton, **options) -> TritonHttp:
    return TritonHttp(TritonTarget(url=triton.url, **options))


def call(driver: TritonHttp, item=0) -> tuple[Exchange, CallResult]:
    done = exchange(driver.request(item), driver.url)
    return done, driver.read(done)


def tensors(done: Exchange) -> dict[str, bytes]:
    """The outputs of a binary answer by name, read without the driver."""
    length = next(int(line.split(b":")[1]) for line in done.head.splitlines() if line.startswith(b"Inference-Header"))
    found, at = {}, length
    for each in json.loads(done.body[:length])["outputs"]:
        size = each["parameters"]["binary_data_size"]
        found[each["name"]] = done.body[at : at + size]
        at += size
    return found


def answered(done: Exchange, body: bytes, **changes) -> Exchange:
    """The same answer with another body."""
    return Exchange(0, changes.get("status", 200), changes.get("head", done.head), body, [(len(body), 5)])


# What goes in comes out


def test_a_batch_of_floats_comes_back_bit_by_bit(triton):
    driver = drive(triton, **FIXED, batch=4)
    for number in range(3):
        request = driver.request(number)
        done, reply = call(driver, number)
        assert (reply.error, reply.count, reply.size) == (None, 4, len(done.body))
        assert tensors(done)["OUTPUT0"] == request[-4 * 8 * 4 :]
    assert driver.request(0) != driver.request(1)
    assert driver.request(16) == driver.request(0) == driver.request(InferItem(0))


def test_every_data_type_comes_back_bit_by_bit(triton):
    driver = drive(triton, model="every_type")
    done, reply = call(driver)
    assert reply.error is None
    found = tensors(done)
    assert len(found) == 13
    request = driver.request(0)
    assert all(data in request for data in found.values())


def test_shapes_vary_from_request_to_request(triton):
    driver = drive(triton, model="identity_fp32", shapes={"INPUT0": [[4], [400]]})
    assert [len(tensors(call(driver, number)[0])["OUTPUT0"]) for number in range(4)] == [16, 1600, 16, 1600]


def test_an_onnx_model_computes_on_inputs_from_a_file(triton, tmp_path):
    samples = numpy.array([[1, 0, 0, 0], [0, 1, 0, 0], [1, 1, 1, 1]], dtype=numpy.float32)
    numpy.savez(tmp_path / "in.npz", X=samples)
    driver = drive(triton, model="onnx_linear", inputs=str(tmp_path / "in.npz"), batch=3)
    done, reply = call(driver)
    assert reply.error is None
    assert numpy.frombuffer(tensors(done)["Y"], "<f4").tolist() == [1, 2, 3, 4, 13, 17]


def test_texts_go_in_and_out(triton):
    driver = drive(triton, model="text", shapes={"TEXT": [2]}, values={"TEXT": ["one", "zwölf"], "SUFFIX": "!"})
    found = tensors(call(driver)[0])
    assert found["UPPER"] == b"\x04\0\0\0ONE!\x07\0\0\0" + "ZWöLF!".encode()
    assert numpy.frombuffer(found["LENGTHS"], "<i4").tolist() == [3, 6]


def test_only_the_outputs_asked_for_are_sent(triton):
    driver = drive(triton, model="text", shapes={"TEXT": [2]}, outputs=["LENGTHS"])
    done, reply = call(driver)
    assert reply.error is None
    assert list(tensors(done)) == ["LENGTHS"]


def test_the_version_asked_for_answers_and_the_newest_otherwise(triton):
    for version, factor in [("1", 1), ("2", 2), ("", 2)]:
        driver = drive(triton, model="versioned", version=version, values={"INPUT0": [1.5, -3]})
        assert driver.model.version == str(factor)
        assert numpy.frombuffer(tensors(call(driver)[0])["OUTPUT0"], "<f4").tolist() == [1.5 * factor, -3 * factor]


def test_headers_travel_with_every_request(triton):
    driver = drive(triton, **FIXED, headers={"X-Tenant": "a"})
    assert b"\r\nX-Tenant: a\r\n" in driver.request(0).partition(b"\r\n\r\n")[0] + b"\r\n"
    assert call(driver)[1].error is None


# Streams, JSON and sequences


def test_streamed_tokens_are_stamped_with_their_spacing(triton):
    driver = drive(triton, model="decoupled", call="stream", values={"count": 20})

    def measure():
        done, reply = call(driver)
        assert (reply.error, len(reply.token_ns)) == (None, 20)
        # Token n leaves the model n times 10 ms after the request came, never before.
        assert all(stamp >= done.sent_ns + number * 10e6 for number, stamp in enumerate(reply.token_ns, start=1))
        assert reply.token_ns[-1] <= done.ended_ns
        assert numpy.median(numpy.diff(reply.token_ns)) / 1e6 == pytest.approx(10, abs=1)

    in_a_quiet_moment(measure)


def test_an_error_in_mid_stream_is_told_with_the_servers_words(triton):
    _, reply = call(drive(triton, model="decoupled", call="stream", values={"count": -2}))
    assert (reply.error, reply.detail, len(reply.token_ns)) == ("server_error", "the planted failure", 2)


def test_generate_takes_one_answer_and_names_a_second(triton):
    assert call(drive(triton, model="decoupled", call="generate", values={"count": 1}))[1].error is None
    _, reply = call(drive(triton, model="decoupled", call="generate", values={"count": 3}))
    assert reply.error == "server_error"
    assert "exactly 1 response" in reply.detail


def test_events_that_arrive_together_or_in_pieces_keep_their_stamps(triton):
    driver = drive(triton, model="decoupled", call="stream", values={"count": 1})
    event = b'data: {"text_output":"a"}\n\n'
    marks = array("q", [len(event) * 2, 10, 0, len(event) * 2 + 5, 20, 10, len(event) * 3, 30, 20])
    assert list(driver.read(Exchange(0, 200, b"", event * 3, marks)).token_ns) == [10, 10, 30]


def test_each_sequence_keeps_its_own_sum(triton):
    driver = drive(triton, model="sequence", sequence_length=3, values={"INPUT0": 5})
    one, other = sequence(0, 3, FIRST), sequence(1, 3, FIRST)
    sums = []
    for item in (one[0], other[0], one[1], one[2], other[1], other[2]):
        done, reply = call(driver, item)
        assert reply.error is None
        sums.append(int.from_bytes(tensors(done)["SUM"], "little", signed=True))
    assert sums == [5, 5, 10, -15, 10, -15]


def test_a_number_is_no_item_for_a_model_that_takes_sequences(triton):
    driver = drive(triton, model="sequence", sequence_length=3)
    with pytest.raises(BenchError, match=r"are those of sequence\(\)"):
        driver.request(0)


# Shared memory


def test_tensors_in_shared_memory_come_back_there(triton):
    driver = drive(triton, **FIXED, batch=2, shared_memory=True, distinct=5)
    try:
        source, sink = driver._regions
        for number in range(5):
            done, reply = call(driver, number)
            assert (reply.error, reply.count) == (None, 2)
            assert len(done.body) < 300
        size = 2 * 8 * 4
        assert source.memory[: 5 * size] == sink.memory[: 5 * size] != bytes(5 * size)
        if (child := os.fork()) == 0:
            driver.close()  # as a load process does that ends
            os._exit(0)
        os.waitpid(child, 0)
        assert len(triton.get("/v2/systemsharedmemory/status")) == 2
    finally:
        driver.close()
    assert triton.get("/v2/systemsharedmemory/status") == []
    assert not list(Path("/dev/shm").glob(f"benchhouse_{os.getpid()}_*"))


def test_every_data_type_fits_into_shared_memory(triton):
    driver = drive(triton, model="every_type", shared_memory=True, distinct=2)
    try:
        assert [call(driver, number)[1].error for number in range(2)] == [None, None]
    finally:
        driver.close()


def test_a_server_that_refuses_shared_memory_is_told_and_no_file_stays():
    class FakeServer:
        url = "http://far:8000"

        def ask(self, path, body):
            return 400, {"error": "not enabled"}

    with pytest.raises(BenchError, match=r"far:8000 refuses shared memory: not enabled\n.*--allow-client-shm=true"):
        SharedRegion(FakeServer(), 100)
    assert not list(Path("/dev/shm").glob(f"benchhouse_{os.getpid()}_*"))


# What the server says of itself


def test_the_model_is_known_before_the_load(triton):
    model = drive(triton, model="text", shapes={"TEXT": [1]}).model
    assert (model.max_batch, model.decoupled, model.sequences, model.backend) == (8, False, False, "python")
    assert [(spec.name, spec.datatype, spec.shape, spec.optional) for spec in model.inputs] == [
        ("TEXT", "BYTES", (-1,), False),
        ("SUFFIX", "BYTES", (1,), True),
    ]


def test_the_servers_queue_and_compute_times_are_joined(triton):
    driver = drive(triton, model="slow")

    def measure():  # a busy machine may send the four one after another
        before = driver.statistics()
        crew = [threading.Thread(target=call, args=(driver,)) for _ in range(4)]
        for thread in crew:
            thread.start()
        for thread in crew:
            thread.join()
        found = counted(driver, before, 4)
        assert (found["requests"], found["executions"], found["failures"]) == (4, 4, 0)
        assert found["compute_ms"] >= 20  # planted
        assert found["request_ms"] >= found["compute_ms"] + found["queue_ms"]
        assert found["compute_ms"] == pytest.approx(21, abs=2)
        assert found["queue_ms"] == pytest.approx(1.5 * 20, abs=6)  # they wait for 0, 1, 2 and 3 of the others

    in_a_quiet_moment(measure)


def test_statistics_of_a_server_that_was_started_anew_are_not_compared():
    assert between({"requests": 5.0}, {"requests": 2.0}) == {}
    assert between({}, {"requests": 2.0}) == {}


# What goes wrong


def test_a_target_that_does_not_fit_the_server_is_refused_before_the_load(triton):
    for options, message in [
        ({"model": "identity_fp23"}, "has no model 'identity_fp23'.*\n.*did you mean 'identity_fp32'"),
        ({"model": "broken"}, "model 'broken' at .* is not ready: UNAVAILABLE: .*the weights are missing"),
        ({"model": "versioned", "version": "9"}, "no version '9' at .*\nready versions: 1, 2"),
        ({"model": "identity_fp32"}, "where -1 may be anything.*\nshapes: {INPUT0: "),
        ({"model": "slow", "shapes": {"INPUT0": [5]}}, r"INPUT0 takes \[4\], and \[5\] does not fit"),
        ({"model": "slow", "batch": 2}, "batch is 2, and model 'slow' takes no batches"),
        ({**FIXED, "batch": 65}, "takes at most 64 a request"),
        ({"model": "decoupled"}, "decoupled.*\ncall: stream"),
        ({"model": "sequence"}, "takes sequences\n.*sequence_length"),
        ({"model": "slow", "sequence_length": 2}, "takes no sequences"),
        ({"model": "slow", "outputs": ["OUT"]}, "has no 'OUT'; it has OUTPUT0"),
        ({"model": "slow", "inputs": "/nowhere.npy"}, "/nowhere.npy can't be read"),
    ]:
        with pytest.raises(BenchError, match=message):
            drive(triton, **options)


def test_an_impossible_target_is_refused():
    for options, message in [
        ({"url": "localhost:8000"}, "write http://host:port"),
        ({"url": "http://h", "protocol": "grpc"}, "write grpc://host:port"),
        ({"url": "grpc://h", "protocol": "grpc", "call": "generate"}, "are for protocol http"),
        ({"url": "http://h", "call": "stream", "shared_memory": True}, "is for call: infer"),
        ({"url": "http://h", "call": "stream", "sequence_length": 2}, "is for call: infer"),
        ({"url": "http://h", "call": "generate", "batch": 2}, "one sample a request"),
        ({"url": "http://h:port"}, "write http://host:port"),
        ({"url": "http://h", "inputs": "x.npy", "values": {"x": 1}}, "leave out shapes and values"),
        ({"url": "http://h", "headers": {"A": "b\r\nEvil: 1"}}, "can't be sent"),
        ({"url": "grpcs://h", "protocol": "grpc", "verify_tls": False}, "always checks"),
        ({"url": "http://h", "batch": 0}, "greater than or equal to 1"),
        ({"url": "http://h", "modle": "x"}, "Extra inputs"),
    ]:
        with pytest.raises(ValidationError, match=message):
            TritonTarget(model="m", **options)


def test_a_server_that_is_down_is_told():
    (port,) = free_ports(1)
    with pytest.raises(BenchError, match=f"no Triton server answers at http://127.0.0.1:{port}: .*refused"):
        TritonHttp(TritonTarget(url=f"http://127.0.0.1:{port}", model="m"))


def test_the_grpc_port_is_not_taken_for_the_http_port(triton):
    with pytest.raises(BenchError, match=r"no Triton server answers at .*: does not speak HTTP"):
        TritonHttp(TritonTarget(url=f"http://127.0.0.1:{triton.grpc_port}", model="slow", timeout=2))


def test_check_tells_what_the_server_says_to_a_request(triton):
    driver = drive(triton, model="text", shapes={"TEXT": [1]}, values={"TEXT": "fail"})
    with pytest.raises(BenchError, match="does not answer a request: http_500: asked to fail"):
        driver.check()
    drive(triton, **FIXED).check()


def test_a_model_that_fails_a_request_is_an_error_with_its_words(triton):
    _, reply = call(drive(triton, model="text", shapes={"TEXT": [1]}, values={"TEXT": "fail"}))
    assert (reply.error, reply.detail) == ("http_500", "asked to fail")


def test_an_answer_of_the_wrong_size_is_malformed_also_after_good_ones(triton):
    driver = drive(triton, **FIXED)
    done, reply = call(driver)
    assert reply.error is None
    for body in (done.body[:-1], done.body + b"x", done.body[:20], b"", done.body.replace(b"[1,8]", b"[1,9]")):
        assert driver.read(answered(done, body)).error == "malformed"
    assert driver.read(done).error is None


def test_an_answer_that_is_not_of_the_protocol_is_malformed(triton):
    for head, data, detail in [
        (b'{"outputs":[]}', b"", "output OUTPUT0 is missing"),
        (b'{"outputs":[{"name":"OUTPUT0","datatype":"FP32","shape":[1]}]}', b"abcd", "binary_data_size"),
        (b"[1]", b"", "the head of the answer"),
        (b"<html>", b"", "the head of the answer"),
    ]:
        driver = drive(triton, **FIXED)
        line = f"HTTP/1.1 200 OK\r\nInference-Header-Content-Length: {len(head)}\r\n".encode()
        reply = driver.read(Exchange(0, 200, line, head + data))
        assert reply.error == "malformed"
        assert detail in reply.detail


def test_a_broken_stream_is_named(triton):
    for body, error in [
        (b"", "empty"),
        (b'data: {"text_output":"a"}\n\ndata: {"te', "malformed"),
        (b"data: {not json}\n\n", "malformed"),
        (b"data: " + b"[" * 200_000 + b"\n\n", "malformed"),
        (b"<html></html>\n\n", "malformed"),
    ]:
        driver = drive(triton, model="decoupled", call="stream", values={"count": 1})
        assert driver.read(Exchange(0, 200, b"", body, [(len(body), 1)])).error == error


def test_a_redirect_and_a_proxy_page_are_told_as_such(triton):
    driver = drive(triton, **FIXED)
    assert driver.read(Exchange(0, 302, b"", b"")).error == "redirect"
    reply = driver.read(Exchange(0, 502, b"", b"<html>Bad gateway"))
    assert (reply.error, reply.detail) == ("http_502", "<html>Bad gateway")
