"""Check whether a file of numbers follows the common schema of metrics.json, whatever program wrote it."""

from pathlib import Path
from typing import Any

from pydantic import ValidationError

from benchhouse.documents.problems import ProblemsError
from benchhouse.documents.validation_errors import from_pydantic
from benchhouse.documents.yaml_reader import load_yaml
from benchhouse.schema.measurement import CommonMetrics, MetricsFile


def check_metrics(path: Path) -> int | None:
    """Return the number of measurements in the file; None if it is not a file of metrics. Raise ProblemsError."""
    if path.suffix != ".json":
        return None
    document = load_yaml(path)  # JSON is YAML
    data: Any = document.data
    if not isinstance(data, dict) or "trial_id" not in data or not {"throughput", "latency_ms"} & data.keys():
        return None
    model = MetricsFile if "benchhouse" in data else CommonMetrics
    try:
        read = model.model_validate(data)
    except ValidationError as error:
        raise ProblemsError(from_pydantic(error, document, model)) from error
    return len(read.benchhouse.measurements) if isinstance(read, MetricsFile) else 0
