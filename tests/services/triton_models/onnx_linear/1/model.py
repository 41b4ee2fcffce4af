"""y = x W + b of an ONNX model, run by onnxruntime; W is 0, 1, 2, ... and b is 1."""

import numpy
import onnx
import onnxruntime
import triton_python_backend_utils as pb_utils
from onnx import TensorProto, helper, numpy_helper


def linear() -> bytes:
    weights = numpy.arange(8, dtype=numpy.float32).reshape(4, 2)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["X", "W"], ["XW"]), helper.make_node("Add", ["XW", "B"], ["Y"])],
        "linear",
        [helper.make_tensor_value_info("X", TensorProto.FLOAT, ["n", 4])],
        [helper.make_tensor_value_info("Y", TensorProto.FLOAT, ["n", 2])],
        [numpy_helper.from_array(weights, "W"), numpy_helper.from_array(numpy.ones(2, dtype=numpy.float32), "B")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    return model.SerializeToString()


class TritonPythonModel:
    def initialize(self, args):
        self.session = onnxruntime.InferenceSession(linear(), providers=["CPUExecutionProvider"])

    def execute(self, requests):
        return [
            pb_utils.InferenceResponse(
                [pb_utils.Tensor("Y", self.session.run(["Y"], {"X": request.inputs()[0].as_numpy()})[0])]
            )
            for request in requests
        ]
