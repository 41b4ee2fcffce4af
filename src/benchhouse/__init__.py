"""Benchhouse: one benchmarking system for AI workloads.

`import benchhouse as bh; ws = bh.open(".")` is the way in for notebooks and programs;
`from benchhouse import experiment, Metric, Resources, Context` is all that an experiment package needs.
The names load on first use, so that importing the package costs nothing.
"""

from typing import TYPE_CHECKING, Any

from benchhouse.schema.version import __version__

if TYPE_CHECKING:
    from benchhouse.api.opening import open_workspace as open
    from benchhouse.api.run import Run
    from benchhouse.api.workspace import Workspace
    from benchhouse.documents.problems import Problem, ProblemsError
    from benchhouse.schema.errors import BenchError
    from benchhouse.schema.experiment import Context, Data, Deprecated, Experiment, Metric, experiment
    from benchhouse.schema.resources import Budget, Limits, Resources
    from benchhouse.schema.scenario import Scenario

_HOMES = {
    "BenchError": "benchhouse.schema.errors:BenchError",
    "Budget": "benchhouse.schema.resources:Budget",
    "Context": "benchhouse.schema.experiment:Context",
    "Data": "benchhouse.schema.experiment:Data",
    "Deprecated": "benchhouse.schema.experiment:Deprecated",
    "Experiment": "benchhouse.schema.experiment:Experiment",
    "Limits": "benchhouse.schema.resources:Limits",
    "Metric": "benchhouse.schema.experiment:Metric",
    "Problem": "benchhouse.documents.problems:Problem",
    "ProblemsError": "benchhouse.documents.problems:ProblemsError",
    "Resources": "benchhouse.schema.resources:Resources",
    "Run": "benchhouse.api.run:Run",
    "Scenario": "benchhouse.schema.scenario:Scenario",
    "Workspace": "benchhouse.api.workspace:Workspace",
    "experiment": "benchhouse.schema.experiment:experiment",
    "open": "benchhouse.api.opening:open_workspace",
}

__all__ = [
    "BenchError",
    "Budget",
    "Context",
    "Data",
    "Deprecated",
    "Experiment",
    "Limits",
    "Metric",
    "Problem",
    "ProblemsError",
    "Resources",
    "Run",
    "Scenario",
    "Workspace",
    "__version__",
    "experiment",
    "open",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        import importlib

        module, _, attribute = _HOMES[name].partition(":")
        return getattr(importlib.import_module(module), attribute)
    raise AttributeError(f"module 'benchhouse' has no attribute {name!r}")
