"""Never becomes ready."""


class TritonPythonModel:
    def initialize(self, args):
        raise RuntimeError("the weights are missing")
