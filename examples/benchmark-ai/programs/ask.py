"""The client of an inference benchmark: asks the server, and prints how long each answer took."""

import argparse
import time
from urllib.request import urlopen

parser = argparse.ArgumentParser()
parser.add_argument("--host", required=True)
parser.add_argument("--port", required=True)
parser.add_argument("--requests", type=int, default=20)
options = parser.parse_args()
for _ in range(options.requests):
    began = time.perf_counter()
    with urlopen(f"http://{options.host}:{options.port}/") as answer:
        answer.read()
    print(f"response_time:{time.perf_counter() - began:.6f}")
