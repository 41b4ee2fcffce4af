"""Dashboards and rules for Prometheus and Grafana, made of everything that is installed here."""

import json
from pathlib import Path

from benchhouse.api import catalogue
from benchhouse.evidence.writing import write_text
from benchhouse.report import dashboards, rules
from benchhouse.schema.errors import unwritable
from benchhouse.schema.experiment import Metric
from benchhouse.worker.monitors.declared import all_series

RULES = "benchhouse_rules.yml"


def write(folder: Path) -> list[Path]:
    """Write them all; returns the files. They depend on what is installed, not on any run."""
    found = [
        dashboards.Declared(item.name, item.component, [Metric.model_validate(metric) for metric in item.metrics])
        for item in catalogue.experiments()
        if not item.broken and not item.deprecated
    ]
    series = all_series()
    texts = {
        f"{name}.json": json.dumps(content, indent=2) + "\n"
        for name, content in dashboards.dashboards(found, series).items()
    }
    texts[RULES] = rules.as_yaml(series)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            write_text(folder / name, text)
    except OSError as error:
        raise unwritable(folder, error) from error
    return [folder / name for name in texts]
