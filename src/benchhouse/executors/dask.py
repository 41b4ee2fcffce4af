"""Jobs on a Dask cluster: one of the run's own on this machine, or one that is there. See docs/design/dask-spark.md."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from benchhouse.documents.misfits import from_pydantic
from benchhouse.documents.problems import ProblemsError
from benchhouse.documents.yaml_reader import load_yaml
from benchhouse.executors.cluster_engine import Ask
from benchhouse.executors.remote_cluster import OWN, ClusterExecutor
from benchhouse.schema.clusters import DaskSecurity, DaskSettings
from benchhouse.schema.protocols import Assignment
from benchhouse.schema.resources import Resources


class DaskExecutor(ClusterExecutor):
    """A slot is one Dask task, on a worker that has room for it."""

    title = "Dask"
    engine = "benchhouse.executors.dask_engine"
    library = "distributed"

    def __init__(self, assignment: Assignment) -> None:
        self.dask = assignment.scenario.dask if assignment.scenario else DaskSettings()
        site = assignment.site.dask
        address = self.dask.address or site.address or os.environ.get("DASK_SCHEDULER_ADDRESS") or OWN
        super().__init__(assignment, address, self.dask.patience or site.patience)
        self.security = self.dask.security or site.security

    def settings(self) -> Mapping[str, Any]:
        return {"address": self.address, "security": read_security(self.security) if self.security else None}

    def ask(self, resources: Resources) -> Ask:
        return super().ask(resources).model_copy(update={"custom": self.dask.resources})


def read_security(path: str) -> dict[str, str]:
    """The certificates that a security file names; every mistake in it is raised with its place."""
    document = load_yaml(Path(path))
    try:
        files = DaskSecurity.model_validate(document.data).model_dump(mode="json")
    except ValidationError as error:
        raise ProblemsError(from_pydantic(error, document, DaskSecurity)) from error
    missing = [
        document.problem((key,), f"{key}: there is no file {value}")
        for key, value in files.items()
        if not os.access(value, os.R_OK)
    ]
    if missing:
        raise ProblemsError(missing)
    return files
