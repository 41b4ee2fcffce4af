"""Streams `count` tokens, 10 ms apart; a negative count: that many, and then an error."""

import threading
import time

import numpy
import triton_python_backend_utils as pb_utils

SPACING_S = 0.010


class TritonPythonModel:
    def initialize(self, args):
        self.threads = []

    def execute(self, requests):
        self.threads = [thread for thread in self.threads if thread.is_alive()]
        for request in requests:
            count = int(pb_utils.get_input_tensor_by_name(request, "count").as_numpy()[0])
            thread = threading.Thread(target=self.stream, args=(request.get_response_sender(), count))
            thread.start()
            self.threads.append(thread)

    def stream(self, sender, count):
        began = time.monotonic()
        for number in range(1, abs(count) + 1):
            time.sleep(max(0.0, began + number * SPACING_S - time.monotonic()))
            token = pb_utils.Tensor("text_output", numpy.array([f"token{number} ".encode()], dtype=object))
            sender.send(pb_utils.InferenceResponse([token]))
        if count < 0:
            sender.send(pb_utils.InferenceResponse(error=pb_utils.TritonError("the planted failure")))
        sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)

    def finalize(self):
        for thread in self.threads:
            thread.join()
