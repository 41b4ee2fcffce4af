"""Qdrant's own server."""

from benchhouse.schema.recipe import Ready, Recipe

RECIPE = Recipe(
    name="qdrant",
    description="Qdrant, one node, with its default settings.",
    licence="Apache-2.0",
    program=("qdrant",),
    published="docker.io/qdrant/qdrant:v1.17.1@sha256:94728574965d17c6485dd361aa3c0818b325b9016dac5ea6afec7b4b2700865f",
    image_program="/qdrant/qdrant",
    install="take the program from Qdrant's releases, or its container",
    version_command=("{program}", "--version"),
    ports={"port": 0, "grpc": 0},
    command=("{program}", "--disable-telemetry"),
    environment={
        "QDRANT__STORAGE__STORAGE_PATH": "{folder}/storage",
        "QDRANT__STORAGE__SNAPSHOTS_PATH": "{folder}/snapshots",
        "QDRANT__SERVICE__HOST": "{host}",
        "QDRANT__SERVICE__HTTP_PORT": "{port}",
        "QDRANT__SERVICE__GRPC_PORT": "{grpc}",
    },
    endpoint="http://{host}:{port}",
    metrics="http://{host}:{port}/metrics",
    ready=Ready(kind="http", url="http://{host}:{port}/readyz"),
)
