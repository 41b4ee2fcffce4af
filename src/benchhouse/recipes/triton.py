"""NVIDIA Triton Inference Server for a folder of models."""

from shlex import split

from benchhouse.schema.recipe import Ready, Recipe

RECIPE = Recipe(
    name="triton",
    description="Triton Inference Server: HTTP and gRPC on a model repository that is given.",
    licence="BSD-3-Clause",
    program=("tritonserver", "/opt/tritonserver/bin/tritonserver", "pytriton:tritonserver/bin/tritonserver"),
    published="nvcr.io/nvidia/tritonserver:25.06-py3",
    install="run it from NVIDIA's container, or `pip install nvidia-pytriton`, whose wheel holds the server",
    version_command=("{program}", "--version"),
    parameters={"models": None, "backends": "/opt/tritonserver/backends", "library_path": ""},
    ports={"port": 0, "grpc": 0, "metrics_port": 0},
    binds=("{models}:{models}",),
    command=split(
        "{program} --model-repository={models} --backend-directory={backends} "
        "--backend-config=python,shm-region-prefix-name=t{port}_ "  # so that several servers can run on one machine
        "--http-address={host} --http-port={port} --grpc-address={host} --grpc-port={grpc} "
        "--metrics-address={host} --metrics-port={metrics_port} --exit-timeout-secs=3"
    ),
    environment={"LD_LIBRARY_PATH": "{library_path}"},
    endpoint="http://{host}:{port}",
    metrics="http://{host}:{metrics_port}/metrics",
    ready=Ready(kind="http", url="http://{host}:{port}/v2/health/ready", timeout=300),
)
