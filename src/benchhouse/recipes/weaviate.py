"""Weaviate's own server."""

from benchhouse.schema.recipe import Ready, Recipe

RECIPE = Recipe(
    name="weaviate",
    description="Weaviate, one node, anonymous access, no modules.",
    licence="BSD-3-Clause",
    program=("weaviate",),
    published="docker.io/semitechnologies/weaviate:1.37.2",
    install="take the program from Weaviate's releases, or its container",
    version_command=("{program}", "--version"),
    ports={"port": 0, "grpc": 0, "gossip": 0, "data": 0, "raft": 0, "raft_rpc": 0, "metrics_port": 0},
    command=("{program}", "--host={host}", "--port={port}", "--scheme=http"),
    environment={
        "PERSISTENCE_DATA_PATH": "{folder}/data",
        "AUTHENTICATION_ANONYMOUS_ACCESS_ENABLED": "true",
        "DEFAULT_VECTORIZER_MODULE": "none",
        "DISABLE_TELEMETRY": "true",
        "GRPC_PORT": "{grpc}",
        "CLUSTER_HOSTNAME": "node{replica}",
        "CLUSTER_ADVERTISE_ADDR": "{host}",
        "CLUSTER_GOSSIP_BIND_PORT": "{gossip}",
        "CLUSTER_DATA_BIND_PORT": "{data}",
        "RAFT_PORT": "{raft}",
        "RAFT_INTERNAL_RPC_PORT": "{raft_rpc}",
        "PROMETHEUS_MONITORING_ENABLED": "true",
        "PROMETHEUS_MONITORING_PORT": "{metrics_port}",
    },
    endpoint="http://{host}:{port}?grpc={grpc}",
    metrics="http://{host}:{metrics_port}/metrics",
    ready=Ready(kind="http", url="http://{host}:{port}/v1/.well-known/ready"),
)
