"""Prometheus with the targets to scrape."""

from shlex import split

from benchhouse.schema.recipe import Ready, Recipe

_CONFIG = """
global:
  scrape_interval: {interval}
scrape_configs:
  - job_name: benchhouse
    static_configs:
      - targets: [{targets}]
"""

RECIPE = Recipe(
    name="prometheus",
    description="Prometheus that scrapes the given targets: host:port, with commas in between.",
    licence="Apache-2.0",
    program=("prometheus",),
    published="docker.io/prom/prometheus:v3.5.0@"
    "sha256:63805ebb8d2b3920190daf1cb14a60871b16fd38bed42b857a3182bc621f4996",
    install="Debian: apt install prometheus (and disable its service, where only benchmarks use it)",
    version_command=("{program}", "--version"),
    parameters={"targets": "", "interval": "1s"},
    files={"prometheus.yml": _CONFIG},
    command=split(
        "{program} --config.file={folder}/prometheus.yml --storage.tsdb.path={folder}/data "
        "--web.listen-address={host}:{port} --log.level=warn"
    ),
    endpoint="http://{host}:{port}",
    metrics="http://{host}:{port}/metrics",
    ready=Ready(kind="http", url="http://{host}:{port}/-/ready"),
)
