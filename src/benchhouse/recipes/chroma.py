"""Chroma as a server: `chroma run`, in a folder of the trial's own."""

from benchhouse.schema.recipe import Ready, Recipe

RECIPE = Recipe(
    name="chroma",
    description="Chroma's own server, one node, with its default settings.",
    licence="Apache-2.0",
    program=("chroma",),
    published="docker.io/chromadb/chroma:1.5.9@sha256:1e0b73a187a28757c572acba508c46f48c9e8b0acaf5c20e6d95cdedce1acdf6",
    install="pip install 'benchhouse[chroma]'",
    version_command=("{program}", "--version"),
    command=("{program}", "run", "--path", "{folder}/data", "--host", "{host}", "--port", "{port}"),
    environment={"ANONYMIZED_TELEMETRY": "False"},
    endpoint="http://{host}:{port}",
    ready=Ready(kind="http", url="http://{host}:{port}/api/v2/heartbeat"),
)
