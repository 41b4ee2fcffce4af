"""The generated messages against those of tritonclient, which runs in the server's own environment."""

import json
import subprocess
import sys
from pathlib import Path

import numpy
import pytest
from services.on_demand import provide
from services.triton import CannotInstallError, install

from benchhouse.drivers import kserve_pb2
from benchhouse.drivers.triton_grpc import TritonGrpc, _as_json
from benchhouse.drivers.triton_target import TritonTarget
from benchhouse.drivers.triton_tensors import Tensor

SCRIPT = Path(__file__).parents[2] / "scripts" / "make_messages.py"
TEXTS = numpy.array(b"ab", dtype=object)  # a scalar: its shape is empty
TENSORS = [
    Tensor("INPUT0", "FP32", numpy.ones((1, 300), dtype="<f4")),
    Tensor("TÉXT", "BYTES", TEXTS),
    Tensor("EMPTY", "INT8", numpy.empty(0, dtype="<i1")),
]

PEER = """
import json, sys
from tritonclient.grpc import service_pb2 as pb, model_config_pb2 as config

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
stats = pb.ModelStatisticsResponse()
entry = stats.model_stats.add(name="m", version="2", inference_count=1 << 40, execution_count=3)
for number, part in enumerate(
    ("success", "fail", "queue", "compute_input", "compute_infer", "compute_output", "cache_hit"), start=1
):
    setattr(getattr(entry.inference_stats, part), "count", number)
    setattr(getattr(entry.inference_stats, part), "ns", 10 * number)
model = config.ModelConfig(name="m", max_batch_size=8, backend="python")
model.input.add(name="X", optional=True)
model.model_transaction_policy.decoupled = True
model.sequence_batching.SetInParent()
metadata = pb.ModelMetadataResponse(name="m", versions=["1", "2"], platform="p")
metadata.inputs.add(name="X", datatype="INT64", shape=[-1, 4])
metadata.outputs.add(name="Y", datatype="BYTES", shape=[1])
index = pb.RepositoryIndexResponse()
index.models.add(name="m", version="1", state="UNAVAILABLE", reason="why")
print(json.dumps({
    "requests": [request(*each).SerializeToString(deterministic=True).hex() for each in given],
    **{name: message.SerializeToString().hex() for name, message in {
        "answer": answer,
        "stream": pb.ModelStreamInferResponse(infer_response=answer),
        "failed": pb.ModelStreamInferResponse(error_message="no"),
        "statistics": stats,
        "config": pb.ModelConfigResponse(config=model),
        "metadata": metadata,
        "index": index,
        "server": pb.ServerMetadataResponse(name="triton", version="2.1", extensions=["x"]),
        "question": pb.ModelStatisticsRequest(name="m", version="4"),
    }.items()},
}))
"""

CASES = [
    ("model", "", TENSORS, [], {}),
    ("model", "12", TENSORS, ["Y", "Z"], {"sequence_id": ("int64_param", 1 << 61)}),
    ("m" * 200, "", TENSORS[:1], [], {"flag": ("bool_param", True)}),
    ("m", "", TENSORS[:1], [], {"off": ("bool_param", False)}),
    ("m", "", TENSORS[:1], [], {"low": ("int64_param", -5)}),
    ("m", "", TENSORS[:1], [], {"warm": ("double_param", 0.7)}),
    ("m", "", TENSORS[:1], [], {"text": ("string_param", "é")}),
]


@pytest.fixture(scope="module")
def peer():
    try:
        home = install()
    except CannotInstallError as reason:
        pytest.skip(f"no tritonclient: {reason}")
    given = [
        (model, version, [(t.name, t.datatype, t.shape, t.encode().hex()) for t in tensors], outputs, values)
        for model, version, tensors, outputs, values in CASES
    ]
    done = subprocess.run(
        [home / "bin" / "python", "-c", PEER], input=json.dumps(given), capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout)


def read(message, peer, name):
    return message.FromString(bytes.fromhex(peer[name]))


def test_the_generated_files_are_those_of_the_proto_file():
    provide("messages", "grpc_tools")
    done = subprocess.run([sys.executable, SCRIPT, "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_request_has_the_very_bytes_of_the_vendors_client(peer):
    for number in range(len(CASES)):
        model, version, tensors, outputs, values = CASES[number]
        plain = {name: value for name, (_, value) in values.items()}
        target = TritonTarget(
            url="grpc://h:1", protocol="grpc", model=model, version=version, outputs=outputs, parameters=plain
        )
        assert TritonGrpc(target)._serialise(tensors).hex() == peer["requests"][number]


def test_answers_of_the_vendors_messages_are_read(peer):
    answer = read(kserve_pb2.ModelInferResponse, peer, "answer")
    assert [(output.name, output.datatype, list(output.shape)) for output in answer.outputs] == [
        ("A", "FP32", [2, 1]),
        ("B", "BYTES", [-1]),
    ]
    assert list(answer.raw_output_contents) == [b"12345678", b""]
    assert read(kserve_pb2.ModelStreamInferResponse, peer, "stream").infer_response == answer
    assert read(kserve_pb2.ModelStreamInferResponse, peer, "failed").error_message == "no"


def test_what_a_server_says_of_itself_and_its_models_is_read(peer):
    (entry,) = read(kserve_pb2.ModelStatisticsResponse, peer, "statistics").model_stats
    parts = ("success", "fail", "queue", "compute_input", "compute_infer", "compute_output", "cache_hit")
    assert _as_json(entry) == {
        "version": "2", "inference_count": str(1 << 40), "execution_count": "3",
        "inference_stats": {
            part: {"count": str(number), "ns": str(10 * number)} for number, part in enumerate(parts, start=1)
        },
    }  # fmt: skip
    assert _as_json(read(kserve_pb2.ModelConfigResponse, peer, "config").config) == {
        "max_batch_size": 8, "backend": "python", "input": [{"name": "X", "optional": True}],
        "sequence_batching": {}, "model_transaction_policy": {"decoupled": True},
    }  # fmt: skip
    assert _as_json(read(kserve_pb2.ModelMetadataResponse, peer, "metadata")) == {
        "name": "m", "versions": ["1", "2"], "platform": "p",
        "inputs": [{"name": "X", "datatype": "INT64", "shape": ["-1", "4"]}],
        "outputs": [{"name": "Y", "datatype": "BYTES", "shape": ["1"]}],
    }  # fmt: skip
    assert _as_json(read(kserve_pb2.RepositoryIndexResponse, peer, "index")) == {
        "models": [{"name": "m", "version": "1", "state": "UNAVAILABLE", "reason": "why"}]
    }
    server = read(kserve_pb2.ServerMetadataResponse, peer, "server")
    assert (server.name, server.version) == ("triton", "2.1")
    question = kserve_pb2.ModelStatisticsRequest(name="m", version="4")
    assert question.SerializeToString().hex() == peer["question"]
