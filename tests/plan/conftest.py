"""Plans made of a text and a function, without an installed package."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, Field, model_validator

from benchhouse.catalog.benchmarks import Registered
from benchhouse.documents.validation_errors import validated
from benchhouse.documents.yaml_reader import load_yaml
from benchhouse.plan.expand import Plan, make_plan
from benchhouse.plan.scenario_file import parse_scenario
from benchhouse.schema.experiment import Experiment, experiment
from benchhouse.schema.quantities import Seconds
from benchhouse.schema.scenario import Benchmark
from benchhouse.schema.trial import ExperimentRef


class Machine(BaseModel, extra="forbid"):
    name: str = "here"
    cores: int = Field(1, ge=1)


class Sorting(BaseModel, extra="forbid"):
    size: int = 10
    algorithm: str = "quick"
    pivots: list[int] = Field(default_factory=list)
    share: float = 1.0
    pause: Seconds = 0.0
    both: bool = True

    @model_validator(mode="after")
    def _no_quick_giants(self) -> "Sorting":
        if self.algorithm == "quick" and self.size > 1000:
            raise ValueError("quick sorts at most 1000")
        return self


@experiment("sort", version="1.0")
def sort(target: Machine, workload: Sorting) -> None:
    """Sort numbers."""


@pytest.fixture
def plan_of(tmp_path: Path) -> Callable[..., Plan]:
    def make(
        text: str,
        code: Experiment | None = sort,
        benchmark: str | None = None,
        path: str = "s.yaml",
        environ: Mapping[str, str] | None = None,
    ) -> Plan:
        registered = None
        if benchmark is not None:
            (tmp_path / "b.yaml").write_text(benchmark)
            document = load_yaml(tmp_path / "b.yaml")
            registered = Registered(validated(document, Benchmark), document, "workspace")
        name, version = (code.name, code.version) if code else ("a/b", "")
        ref = ExperimentRef(name=name, version=version, object="m:f", distribution="d", distribution_version="1")
        return make_plan(parse_scenario("scenario: s\n" + text, path, environ or {}), code, ref, registered)

    return make


@pytest.fixture
def points_of(plan_of: Callable[..., Plan]) -> Callable[..., list[dict[str, Any]]]:
    return lambda text, **more: list(plan_of(text, **more).space.points())
