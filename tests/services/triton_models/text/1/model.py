"""Upper case and length of every text; the text `fail` fails the request."""

import numpy
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        texts = pb_utils.get_input_tensor_by_name(request, "TEXT").as_numpy()
        if b"fail" in texts:
            return pb_utils.InferenceResponse(error=pb_utils.TritonError("asked to fail"))
        suffix = pb_utils.get_input_tensor_by_name(request, "SUFFIX")
        ending = suffix.as_numpy().flat[0] if suffix else b""
        upper = numpy.array([text.upper() + ending for text in texts.flat], dtype=object).reshape(texts.shape)
        lengths = numpy.array([len(text) for text in texts.flat], dtype=numpy.int32).reshape(texts.shape)
        return pb_utils.InferenceResponse([pb_utils.Tensor("UPPER", upper), pb_utils.Tensor("LENGTHS", lengths)])
