"""Milvus itself, standalone: its own log, embedded etcd, and local storage, in one process."""

from benchhouse.schema.recipe import Ready, Recipe

_USER = """
etcd:
  use:
    embed: true
  data:
    dir: {folder}/etcd
common:
  storageType: local
localStorage:
  path: {folder}/data
rocksmq:
  path: {folder}/rocksmq
mq:
  type: rocksmq
proxy:
  port: {port}
  http:
    port: {metrics_port}
"""

RECIPE = Recipe(
    name="milvus",
    description="Milvus standalone with embedded etcd and local storage.",
    licence="Apache-2.0",
    program=("milvus",),
    published="docker.io/milvusdb/milvus:v2.6.18",
    install="take Milvus's packages or its container; to try things out, the recipe milvus_lite needs neither",
    ports={"port": 0, "metrics_port": 0},
    files={"configs/user.yaml": _USER},
    command=("{program}", "run", "standalone"),
    environment={"MILVUSCONF": "{folder}/configs", "METRICS_PORT": "{metrics_port}", "ETCD_USE_EMBED": "true"},
    endpoint="http://{host}:{port}",
    metrics="http://{host}:{metrics_port}/metrics",
    ready=Ready(kind="http", url="http://{host}:{metrics_port}/healthz", timeout=180),
)
