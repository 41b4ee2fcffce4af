"""The catalog: experiments, benchmarks, and targets, and the schemas of the files that name them."""

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, get_args

from benchhouse.api.verb_group import VerbGroup
from benchhouse.nexus import experiments
from benchhouse.schema.errors import NotFoundError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pydantic import BaseModel

    from benchhouse.catalog.inputs import InputKey as InputKey
    from benchhouse.nexus.benchmarks import LastRun as LastRun
    from benchhouse.nexus.benchmarks import ListedBenchmark as ListedBenchmark
    from benchhouse.nexus.experiments import BenchmarkDetails as BenchmarkDetails
    from benchhouse.nexus.experiments import ExperimentDetails as ExperimentDetails
    from benchhouse.nexus.experiments import ListedExperiment as ListedExperiment

FileFormat = Literal["scenario", "benchmark", "recipe", "site", "trial", "metrics", "meta", "manifest", "telemetry"]
FILE_FORMATS: tuple[str, ...] = get_args(FileFormat)

_TARGETS = """
SELECT target_name AS target, experiment, count(*) AS trials, max(run_id) AS last_run
FROM trial_fact GROUP BY 1, 2 ORDER BY 1, 2
"""


@dataclass(frozen=True)
class MeasuredTarget:
    """A target that has trials in the tables of the workspace."""

    target: str
    experiment: str
    trials: int
    last_run: str
    """The id of the newest run that has trials of this target."""


class Catalog(VerbGroup):
    """Installed experiments, registered benchmarks, and measured targets."""

    def experiments(
        self, *, nexus: "str | Path | None" = None, installed_only: bool = False, requirements: "Sequence[str]" = ()
    ) -> "list[ListedExperiment]":
        """Return the installed experiments, including deprecated and broken ones, and those that a nexus registers.

        `nexus` is a folder with packages/; by default it is the nearest one at or above the workspace. An isolated
        environment is made for each of `requirements`, and the experiments of such environments are listed too.
        """
        if requirements:
            experiments.look_into(self._folder, requirements)
        if installed_only:
            return [experiments.ListedExperiment(**vars(item)) for item in experiments.installed()]
        return experiments.list_with_registered(self._folder, nexus)

    def benchmarks(
        self,
        *,
        package: str | None = None,
        model: str | None = None,
        experiment: str | None = None,
        nexus: "str | Path | None" = None,
    ) -> "list[ListedBenchmark]":
        """Return the registered benchmarks of benchmarks/ in the workspace, of installed packages, and of a nexus.

        `package`, `model`, and `experiment` select those that belong to it. Files that can't be read are listed too.
        """
        from benchhouse.nexus.benchmarks import registered

        return registered(self._folder, nexus, package, model, experiment)

    def targets(self) -> list[MeasuredTarget]:
        """Return the targets that were measured in this workspace."""
        from benchhouse.warehouse.query import Warehouse, own

        with Warehouse.open(self._folder) as warehouse:
            return [MeasuredTarget(**row) for row in warehouse.query(own(_TARGETS)).dicts()]

    def show(self, name: str, version: str | None = None) -> "ExperimentDetails":
        """Return the inputs, metrics, data, and resources of an experiment, by default of its newest version.

        `name` may also be a registered benchmark: the answer is then what it fixes, and the experiment behind it.
        """
        return experiments.describe(self._folder, name, version)

    def is_listed(self, name: str) -> bool:
        """Return whether an experiment or a registered benchmark has exactly this name."""
        return experiments.is_listed(self._folder, name)

    def json_schema(self, file_format: FileFormat) -> dict[str, Any]:
        """Return the JSON Schema of a file format, for an editor that checks as you type."""
        models = _models()
        if file_format not in models:
            raise NotFoundError(f"no file format '{file_format}'", f"one of {', '.join(models)}")
        return {"$schema": "https://json-schema.org/draft/2020-12/schema", **_schema(models[file_format])}

    def importers(self) -> dict[str, str]:
        """Return the kinds of files of other tools that can be imported, each with a description."""
        from benchhouse.runs.imports import importers

        return {kind: importer.about for kind, importer in importers().items()}

    def exporters(self) -> dict[str, str]:
        """Return the formats of other tools that results can be exported to, each with a description."""
        from benchhouse.api.exporting import exporters

        return {kind: exporter.about for kind, exporter in exporters().items()}

    def plugs(self, group: Literal["executors", "runtimes"]) -> list[str]:
        """Return the names of the installed executors or runtimes."""
        from benchhouse.catalog.entries import entries

        return sorted({entry.name for entry in entries(group)})


@cache
def _schema(model: "type[BaseModel]") -> dict[str, Any]:
    return model.model_json_schema(by_alias=True)


def _models() -> "dict[str, type[BaseModel]]":
    from benchhouse.evidence.manifest import Manifest
    from benchhouse.schema.measurement import MetricsFile
    from benchhouse.schema.recipe import Recipe
    from benchhouse.schema.scenario import Benchmark, Scenario
    from benchhouse.schema.site import Site
    from benchhouse.schema.telemetry import TelemetrySummary
    from benchhouse.schema.trial import Meta, TrialSpec

    return {
        "scenario": Scenario,
        "benchmark": Benchmark,
        "recipe": Recipe,
        "site": Site,
        "trial": TrialSpec,
        "metrics": MetricsFile,
        "meta": Meta,
        "manifest": Manifest,
        "telemetry": TelemetrySummary,
    }
