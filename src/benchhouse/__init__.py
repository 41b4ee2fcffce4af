"""Benchhouse: one benchmarking system for AI workloads.

`from benchhouse import experiment, Metric, Resources, Context` is all that an experiment package needs;
the names load on first use, so that importing the package costs nothing.
"""

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from benchhouse.schema.errors import BenchError
    from benchhouse.schema.experiment import Context, Data, Deprecated, Experiment, Metric, experiment
    from benchhouse.schema.resources import Resources

_HOMES = {
    "BenchError": "benchhouse.schema.errors",
    "Context": "benchhouse.schema.experiment",
    "Data": "benchhouse.schema.experiment",
    "Deprecated": "benchhouse.schema.experiment",
    "Experiment": "benchhouse.schema.experiment",
    "Metric": "benchhouse.schema.experiment",
    "Resources": "benchhouse.schema.resources",
    "experiment": "benchhouse.schema.experiment",
}

__all__ = [
    "BenchError",
    "Context",
    "Data",
    "Deprecated",
    "Experiment",
    "Metric",
    "Resources",
    "__version__",
    "experiment",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        import importlib

        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'benchhouse' has no attribute {name!r}")
