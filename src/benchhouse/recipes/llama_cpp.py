"""llama.cpp's OpenAI-compatible server: small, quick to start, and usable without a GPU."""

from shlex import split

from benchhouse.schema.recipe import Ready, Recipe

# The wheel has the server as a library and no command, so this script starts it.
_SERVE = """
import sys
import time

import xllamacpp

path, name, host, port, slots, context, threads = sys.argv[1:]
options = xllamacpp.CommonParams()
options.model.path = path
options.model_alias = set([name])
options.hostnames = [host]
options.port = int(port)
options.n_parallel = int(slots)
options.n_ctx = int(slots) * int(context)
options.endpoint_metrics = True
options.ui = False
options.fit_params = False
options.cpuparams.n_threads = int(threads)
server = xllamacpp.Server(options)
print("listening on", server.listening_address, flush=True)
while True:
    time.sleep(3600)
"""

RECIPE = Recipe(
    name="llama_cpp",
    description="llama.cpp's OpenAI-compatible server, from the wheel xllamacpp: for a GGUF file, on a CPU.",
    licence="MIT",
    program=("python3", "python"),
    install="pip install xllamacpp; in an environment of its own: -p program=ENVIRONMENT/bin/python",
    version_command=("{program}", "-c", "from importlib.metadata import version; print(version('xllamacpp'))"),
    parameters={"model": None, "name": "model", "slots": "4", "context": "2048", "model_threads": "1"},
    files={"serve.py": _SERVE},
    binds=("{model}:{model}",),
    command=split("{program} {folder}/serve.py {model} {name} {host} {port} {slots} {context} {model_threads}"),
    endpoint="http://{host}:{port}",
    metrics="http://{host}:{port}/metrics",
    ready=Ready(kind="http", url="http://{host}:{port}/health", timeout=300),
)
