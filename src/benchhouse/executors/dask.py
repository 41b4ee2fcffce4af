"""Run trials on a Dask cluster: the run's own on this machine, or an existing one. See docs/design/dask-spark.md."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchhouse.documents.problems import ProblemsError
from benchhouse.documents.validation_errors import validated
from benchhouse.documents.yaml_reader import load_yaml
from benchhouse.executors.remote_cluster import OWN, ClusterExecutor
from benchhouse.schema.clusters import DaskSecurity, DaskSettings
from benchhouse.schema.protocols import Assignment


class DaskExecutor(ClusterExecutor):
    """An executor whose slots are Dask tasks, each on a worker that has room for it."""

    title = "Dask"
    engine = "benchhouse.executors.dask_engine"
    library = "distributed"
    has_gangs = True

    def __init__(self, assignment: Assignment) -> None:
        dask = assignment.scenario.dask if assignment.scenario else DaskSettings()
        site = assignment.site.dask
        address = dask.address or site.address or os.environ.get("DASK_SCHEDULER_ADDRESS") or OWN
        super().__init__(assignment, address, dask.patience or site.patience, dask.resources)
        self.security = dask.security or site.security

    def settings(self) -> Mapping[str, Any]:
        return {"address": self.address, "security": read_security(self.security) if self.security else None}


def read_security(path: str) -> dict[str, str]:
    """Return the certificates that a security file names. Raise every mistake in it with its place."""
    document = load_yaml(Path(path))
    files = validated(document, DaskSecurity).model_dump(mode="json")
    missing = [
        document.problem((key,), f"{key}: there is no file {value}")
        for key, value in files.items()
        if not os.access(value, os.R_OK)
    ]
    if missing:
        raise ProblemsError(missing)
    return files
