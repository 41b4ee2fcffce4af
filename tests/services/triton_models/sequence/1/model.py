"""The sum of a sequence so far; the answer to the last request of a sequence is negative."""

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self.sums = {}

    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        def value(name):
            return pb_utils.get_input_tensor_by_name(request, name).as_numpy()

        name = int(value("CORRID").flat[0])
        if value("START").flat[0]:
            self.sums[name] = 0
        total = self.sums[name] = self.sums[name] + value("INPUT0")
        if value("END").flat[0]:
            total = -self.sums.pop(name)
        return pb_utils.InferenceResponse([pb_utils.Tensor("SUM", total)])
