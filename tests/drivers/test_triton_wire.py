"""Our messages against those of tritonclient's generated code, which runs in the server's own environment."""

import contextlib
import json
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st
from services.triton import CannotInstallError, install

from benchhouse.drivers import triton_wire as wire

INPUTS = [
    ("INPUT0", "FP32", (1, 300), bytes(1200)),
    ("TÉXT", "BYTES", (), b"\x02\0\0\0ab"),
    ("EMPTY", "INT8", (0,), b""),
]

PEER = """
import json, sys
from tritonclient.grpc import service_pb2 as pb

def request(model, version, inputs, outputs, values):
    made = pb.ModelInferRequest(model_name=model, model_version=version)
    for name, datatype, shape, data in inputs:
        made.inputs.add(name=name, datatype=datatype, shape=shape)
        made.raw_input_contents.append(bytes.fromhex(data))
    for name in outputs:
        made.outputs.add(name=name)
    for name, (kind, value) in values.items():
        setattr(made.parameters[name], kind, value)
    return made

given = json.load(sys.stdin)
answer = pb.ModelInferResponse(model_name="m", model_version="3", id="7")
answer.parameters["triton_final_response"].bool_param = True
answer.outputs.add(name="A", datatype="FP32", shape=[2, 1])
answer.outputs.add(name="B", datatype="BYTES", shape=[-1])
answer.raw_output_contents.extend([b"12345678", b""])
print(json.dumps({
    "requests": [request(*each).SerializeToString(deterministic=True).hex() for each in given],
    "answer": answer.SerializeToString().hex(),
    "stream": pb.ModelStreamInferResponse(infer_response=answer).SerializeToString().hex(),
    "failed": pb.ModelStreamInferResponse(error_message="no").SerializeToString().hex(),
}))
"""

CASES = [
    ("model", "", INPUTS, [], {}),
    ("model", "12", INPUTS, ["Y", "Z"], {"sequence_id": ("int64_param", 1 << 61)}),
    ("m" * 200, "", INPUTS[:1], [], {"flag": ("bool_param", True)}),
    ("m", "", INPUTS[:1], [], {"off": ("bool_param", False)}),
    ("m", "", INPUTS[:1], [], {"low": ("int64_param", -5)}),
    ("m", "", INPUTS[:1], [], {"warm": ("double_param", 0.7)}),
    ("m", "", INPUTS[:1], [], {"text": ("string_param", "é")}),
]


@pytest.fixture(scope="module")
def peer():
    try:
        home = install()
    except CannotInstallError as reason:
        pytest.skip(f"no tritonclient: {reason}")
    given = [
        (model, version, [(name, kind, shape, data.hex()) for name, kind, shape, data in inputs], outputs, values)
        for model, version, inputs, outputs, values in CASES
    ]
    done = subprocess.run(
        [home / "bin" / "python", "-c", PEER], input=json.dumps(given), capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout)


@pytest.mark.parametrize("number", range(len(CASES)))
def test_a_request_has_the_very_bytes_of_the_generated_code(peer, number):
    model, version, inputs, outputs, values = CASES[number]
    plain = {name: value for name, (_, value) in values.items()}
    assert wire.infer_request(model, version, inputs, outputs, plain).hex() == peer["requests"][number]


def test_an_answer_of_the_generated_code_is_read(peer):
    answer = wire.read_infer_response(bytes.fromhex(peer["answer"]))
    assert (answer.model, answer.version) == ("m", "3")
    assert [(each.name, each.datatype, each.shape, bytes(each.data)) for each in answer.outputs] == [
        ("A", "FP32", [2, 1], b"12345678"),
        ("B", "BYTES", [-1], b""),
    ]


def test_a_stream_answer_and_its_error_are_read(peer):
    error, answer = wire.read_stream_response(bytes.fromhex(peer["stream"]))
    assert (error, len(answer.outputs)) == ("", 2)
    assert wire.read_stream_response(bytes.fromhex(peer["failed"]))[0] == "no"


@given(st.integers(-(1 << 63), (1 << 63) - 1))
def test_every_int64_comes_back(value):
    assert wire.integers([memoryview(wire.varint(value))]) == [value]


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused_as_not_a_message(data):
    with contextlib.suppress(wire.WireError):
        wire.read_stream_response(data)


def test_a_message_cut_short_is_refused_wherever_a_field_is_open():
    whole = wire.infer_request("model", "1", INPUTS[:1])
    for length in range(1, len(whole)):
        try:
            found = list(wire.fields(whole[:length]))
        except wire.WireError:
            continue
        assert len(found) < len(list(wire.fields(whole)))  # it ended between two fields
    with pytest.raises(wire.WireError, match="bytes, and"):
        list(wire.fields(whole[:-1]))
