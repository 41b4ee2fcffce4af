"""A run that is ready to start: its plan, folders, executor, and the fields that its trials share."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from pydantic_core import to_jsonable_python

from benchhouse.plan.expand import Plan, PlannedTrial
from benchhouse.runs.ledger import Ledger
from benchhouse.runs.service_control import Attached
from benchhouse.schema.layout import WorkspaceFolder
from benchhouse.schema.protocols import Executor
from benchhouse.schema.resources import RuntimeSettings
from benchhouse.schema.trial import Attempt


@dataclass
class ActiveTrial:
    """A trial that the executor has, or that waits for a retry."""

    planned: PlannedTrial
    trial_id: str
    attempt: int = 1
    previous: list[Attempt] = field(default_factory=list)
    retries: int = 0
    """Number of retries by this session; a resumed run starts at zero."""
    not_before: float = 0.0


@dataclass(frozen=True)
class RunSetup:
    """A run with everything that its trials need."""

    workspace: WorkspaceFolder
    plan: Plan
    ledger: Ledger
    executor: Executor
    python: Callable[[RuntimeSettings], tuple[str, ...]]
    """Returns the command of the interpreter that starts workers in a runtime."""
    frame: dict[str, Any]
    """Fields of every trial in addition to those of the plan."""
    attached: Attached
    """Services that live as long as the run."""

    @cached_property
    def trial_frame(self) -> dict[str, Any]:
        """The fields that all trials of this run share."""
        plan, scenario = self.plan, self.plan.scenario
        return {
            "run_id": self.ledger.folder.run_id,
            "scenario": scenario.scenario,
            "experiment": plan.experiment,
            "component": plan.component,
            "axes": plan.axes,
            "resources": plan.resources,
            "limits": plan.limits,
            "executor": scenario.executor,
            "runtime": scenario.runtime,
            "partition": scenario.partition,
            "account": scenario.account,
            "qos": scenario.qos,
            "artifacts": scenario.artifacts.model_dump(exclude_defaults=True),
            "binds": scenario.binds,
            "environment": scenario.environment,
            "logs": scenario.logs,
            "monitors": scenario.monitors,
            "scaling": scenario.scaling,
            "services": self.attached.for_trials(),
        } | self.frame

    @cached_property
    def shared_frame(self) -> dict[str, Any]:
        """The shared fields as JSON, for tasks that make the folders of their trials themselves."""
        return dict(to_jsonable_python(self.trial_frame, by_alias=True))
