"""Runs llama.cpp's own HTTP server from the wheel `xllamacpp`, which brings it as a library and no command.

Only the start is ours: sockets, HTTP, SSE, batching and inference are llama.cpp's. Prints the address when it
listens, and ends when its standard input does, so that it can't outlive the test that started it.
"""

import json
import sys

import xllamacpp

options = json.loads(sys.argv[1])
parameters = xllamacpp.CommonParams()
parameters.model.path = options["path"]
parameters.model_alias = {options["name"]}
parameters.hostnames = ["127.0.0.1"]
parameters.port = 0
parameters.n_parallel = options["slots"]
parameters.n_ctx = options["slots"] * options["context"]
parameters.cache_prompt = options["prefix_cache"]
parameters.endpoint_metrics = True
parameters.ui = False
parameters.fit_params = False
parameters.cpuparams.n_threads = 1
if options["api_key"]:
    parameters.api_keys = [options["api_key"]]
server = xllamacpp.Server(parameters)
print(server.listening_address, flush=True)
sys.stdin.read()
