"""Prometheus's node exporter, which also exports the text files in a folder."""

from shlex import split

from benchhouse.schema.recipe import Ready, Recipe

RECIPE = Recipe(
    name="node_exporter",
    description="Metrics of this machine for Prometheus, and those of the text files in a folder.",
    licence="Apache-2.0",
    program=("prometheus-node-exporter", "node_exporter"),
    published="docker.io/prom/node-exporter:v1.9.1@"
    "sha256:d00a542e409ee618a4edc67da14dd48c5da66726bbd5537ab2af9c1dfc442c8a",
    image_program="node_exporter",
    install="Debian: apt install prometheus-node-exporter",
    version_command=("{program}", "--version"),
    parameters={"textfiles": "{folder}"},
    command=split(
        "{program} --web.listen-address={host}:{port} --collector.textfile.directory={textfiles} --log.level=warn"
    ),
    endpoint="http://{host}:{port}",
    metrics="http://{host}:{port}/metrics",
    ready=Ready(kind="http", url="http://{host}:{port}/metrics"),
)
