"""vLLM's OpenAI-compatible server for one model."""

from shlex import split

from benchhouse.schema.recipe import Ready, Recipe
from benchhouse.schema.resources import Resources

RECIPE = Recipe(
    name="vllm",
    description="vLLM's OpenAI-compatible server for a model: a folder, or a name that it can download.",
    licence="Apache-2.0",
    program=("vllm",),
    published="docker.io/vllm/vllm-openai:v0.11.0@"
    "sha256:014a95f21c9edf6abe0aea6b07353f96baa4ec291c427bb1176dc7c93a85845c",
    install="pip install vllm, in an environment of its own; then -p program=ENVIRONMENT/bin/vllm",
    version_command=("{program}", "--version"),
    parameters={
        "model": None,
        "name": "model",
        "max_model_len": "4096",
        "max_num_seqs": "256",
        "dtype": "auto",
        "tensor_parallel_size": "1",
    },
    command=split(
        "{program} serve {model} --served-model-name={name} --host={host} --port={port} "
        "--max-model-len={max_model_len} --max-num-seqs={max_num_seqs} --dtype={dtype} "
        "--tensor-parallel-size={tensor_parallel_size}"
    ),
    resources=Resources(gpus=1, cpus=4),  # of a batch job; use --gpus 0 for a build without CUDA
    environment={"VLLM_NO_USAGE_STATS": "1"},
    endpoint="http://{host}:{port}",
    metrics="http://{host}:{port}/metrics",
    ready=Ready(kind="http", url="http://{host}:{port}/health", timeout=1800),  # weights may come over a network
)
