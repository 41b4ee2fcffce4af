"""The place of a process that outlives its command: on this machine, or as a batch job with its own resources."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import TypeAdapter, ValidationError

from benchhouse.catalog.entries import plug
from benchhouse.schema.errors import BenchError
from benchhouse.schema.protocols import Assignment, Executor, ServiceLauncher
from benchhouse.schema.resources import Resources
from benchhouse.schema.scenario import Scenario
from benchhouse.schema.site import Site, Word

_OF_JOBS = {
    "time_s": "a time limit",
    "resources": "resources of its own",
    "partition": "a partition",
    "account": "an account",
    "qos": "a quality of service",
    "node": "a node to be chosen",
}


@dataclass(frozen=True)
class Placement:
    """Where to run: as a process of this machine, or as a job of an executor, on any of its nodes."""

    executor: str | None = None
    """Such as `slurm`; None: this machine."""
    site: str | None = None
    """Site profile, by name or file; None: the one in use here."""
    time_s: float | None = None
    """Time limit of the batch job in seconds."""
    resources: Mapping[str, Any] = field(default_factory=dict)
    """Resources of the batch job, overriding the recipe: `nodes`, `cpus`, `gpus`, `memory`."""
    partition: str | None = None
    """Partition of the batch system; the site's if not given."""
    account: str | None = None
    qos: str | None = None
    node: str | None = None
    """The node that the batch job must run on; any node if not given."""

    def keepers(self, site: Site) -> ServiceLauncher | None:
        """Return the launcher of jobs; None for processes of this machine. Raises BenchError if options are set that
        only a job can have."""
        keepers = None
        if self.executor:
            options = {name: value for name in ("partition", "account", "qos") if (value := getattr(self, name))}
            try:
                scenario = Scenario.model_validate({"scenario": "kept"} | options)
                TypeAdapter(Word).validate_python(self.node or "any")
            except ValidationError as error:
                problem = error.errors()[0]
                option = (*problem["loc"], "node")[0]
                raise BenchError(f"--{option}: {problem['msg'].removeprefix('Value error, ')}") from error
            keepers = keepers_of(self.executor, Assignment(scenario=scenario, site=site))
        if keepers is None and (given := next((what for name, what in _OF_JOBS.items() if getattr(self, name)), None)):
            raise BenchError(f"only a batch job has {given}", "give --executor slurm, or leave it out")
        return keepers

    def asked(self, defaults: Resources | None) -> Resources | None:
        """Return the resources of the job: `self.resources`, and the recipe's defaults for the others."""
        if not self.resources:
            return defaults
        return (defaults or Resources()).model_copy(update=dict(self.resources))


def keepers_of(executor: str, assignment: Assignment) -> ServiceLauncher | None:
    """Return the executor's launcher of servers; None if its servers are processes of this machine."""
    chosen: Executor = plug("executors", executor)(assignment)
    keepers = chosen.keepers
    chosen.close()
    return keepers
