"""Make an experiment from its description alone, to plan where its package cannot be imported."""

from collections.abc import Mapping
from typing import Any

from benchhouse.catalog.input_schemas import model_of
from benchhouse.schema.errors import BenchError
from benchhouse.schema.experiment import Data, Deprecated, Experiment, Metric
from benchhouse.schema.resources import Resources


def declare(described: Mapping[str, Any]) -> Experiment:
    """Return an experiment with the inputs, metrics, and resources of a `Listed` as a dict; it cannot be called."""
    about, name, deprecated = described["declaration"], described["name"], described["deprecated"]

    def run(workload: Any, target: Any = None) -> None:
        raise BenchError(f"{name} is only described here")

    def run_without_target(workload: Any) -> None:
        run(workload)

    function = run if about["takes_target"] else run_without_target
    title = "".join(part.title() for part in name.replace("-", ".").replace("_", ".").split("."))
    hints = {"workload": model_of(about["workload"], f"{title}Workload")}
    function.__annotations__ = hints | {"target": model_of(about["target"], f"{title}Target") or Any}
    return Experiment(
        name=name,
        version=described["version"],
        function=function,
        metrics=tuple(Metric.model_validate(item) for item in described["metrics"]),
        resources=Resources.model_validate(described["resources"]),
        deprecated=Deprecated.model_validate(deprecated) if deprecated else None,
        data=tuple(Data.model_validate(item) for item in described["data"]),
        component=described["component"],
        services=tuple(described["services"]),
        drivers=tuple(about["drivers"]),
        dataset=about["dataset"],
        strict_metrics=about["strict_metrics"],
        description=described["description"],
    )
