"""Jobs on a Dask cluster: one of the run's own on this machine, or one that is there. See docs/design/dask-spark.md."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from benchhouse.documents.misfits import from_pydantic
from benchhouse.documents.problems import ProblemsError
from benchhouse.documents.yaml_reader import load_yaml
from benchhouse.executors.cluster_engine import Ask, Node
from benchhouse.executors.remote_cluster import FarExecutor
from benchhouse.schema.clusters import DaskSecurity, DaskSettings
from benchhouse.schema.errors import BenchError
from benchhouse.schema.protocols import Assignment
from benchhouse.schema.resources import Resources

OWN = "local"


class DaskExecutor(FarExecutor):
    """A slot is one Dask task, on a worker that has room for it."""

    title = "Dask"
    engine = "benchhouse.executors.dask_engine"
    library = "distributed"

    def __init__(self, assignment: Assignment) -> None:
        super().__init__(assignment)
        self.dask: DaskSettings = assignment.scenario.dask if assignment.scenario else DaskSettings()
        site = assignment.site.dask
        self.address = self.dask.address or site.address or os.environ.get("DASK_SCHEDULER_ADDRESS") or OWN
        self.security = self.dask.security or site.security

    def settings(self) -> Mapping[str, Any]:
        return {"address": self.address, "security": read_security(self.security) if self.security else None}

    def ask(self, resources: Resources) -> Ask:
        return super().ask(resources).model_copy(update={"custom": self.dask.resources})

    def patience_s(self) -> float | None:
        return self.dask.patience or self.assignment.site.dask.patience

    def nodes(self) -> Sequence[Node]:
        return super().nodes() if self.address != OWN else [this_machine()]

    def _where(self) -> str:
        return "a cluster of its own" if self.address == OWN else self.address


def this_machine() -> Node:
    """What a cluster of our own will have; asked without starting one."""
    from benchhouse.executors.local import machine

    have = machine()
    return Node(name=os.uname().nodename, cpus=have.cpus, gpus=have.gpus, memory=have.memory)


def read_security(path: str) -> dict[str, str]:
    """The certificates that a security file names; every mistake in it is raised with its place."""
    document = load_yaml(Path(path))
    try:
        found = DaskSecurity.model_validate(document.data)
    except ValidationError as error:
        raise ProblemsError(from_pydantic(error, document, DaskSecurity)) from error
    missing = [
        document.problem((key,), f"{key}: there is no file {value}")
        for key, value in found.model_dump().items()
        if not os.access(value, os.R_OK)
    ]
    if missing:
        raise ProblemsError(missing)
    return {key: str(value) for key, value in found.model_dump().items()}


def no_dask() -> BenchError:
    return BenchError("Dask is not installed here", "pip install 'benchhouse[dask]'")
