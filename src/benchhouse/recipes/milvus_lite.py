"""Milvus Lite as a server: Milvus's protocol on one port, in pure Python."""

from benchhouse.schema.recipe import Ready, Recipe

RECIPE = Recipe(
    name="milvus_lite",
    description="Faithful to the protocol of Milvus, and about a hundred times slower: for trying things out. Measure "
    "the real one by its address.",
    licence="Apache-2.0",
    program=("milvus-lite",),
    install="pip install 'benchhouse[milvus]' (with milvus-lite 3 or newer)",
    version_command=("{python}", "-c", "from importlib.metadata import version; print(version('milvus-lite'))"),
    command=("{program}", "server", "--data-dir", "{folder}/data", "--host", "{host}", "--port", "{port}"),
    endpoint="http://{host}:{port}",
    ready=Ready(kind="tcp"),
)
