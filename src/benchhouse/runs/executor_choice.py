"""The executor and the runtime of a scenario: by the command line, or otherwise its file, its site, or its own keys."""

import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace

from benchhouse.documents.problems import Problem
from benchhouse.plan.scenario_file import ScenarioFile
from benchhouse.plan.unused_fields import SLURM_WORDS
from benchhouse.schema.site import Site


@dataclass(frozen=True)
class Where:
    """Command-line options for place and contract of a run; they override scenario and site."""

    executor: str | None = None
    runtime: str | None = None
    site: str | None = None
    contract: str | os.PathLike[str] | None = None
    read_only: bool = False
    """Plan for a client that may only read: environments are not made or entered."""


@dataclass(frozen=True)
class Placed:
    """A scenario with its executor and its runtime."""

    file: ScenarioFile
    notes: Sequence[str]
    only_slurm: str
    """Keys that imply Slurm if nothing else names an executor; empty if an executor is chosen."""


def place(file: ScenarioFile, where: Where, site: Site) -> Placed:
    """Choose executor and runtime. By default a partition implies Slurm, and a .sif image of a job Apptainer."""
    scenario, runtime = file.scenario, file.scenario.runtime
    given, notes = scenario.model_fields_set, list[str]()
    executor = where.executor or ("executor" not in given and site.executor) or scenario.executor
    words = ", ".join(name for name in SLURM_WORDS if getattr(scenario, name))
    only_slurm = "" if where.executor or "executor" in given or site.executor else words
    if only_slurm:
        executor = "slurm"
        notes.append(f"{only_slurm}: runs on Slurm{'' if _has_slurm() else ', and there is no sbatch here'}")
    has_kind = "runtime" in given and "kind" in runtime.model_fields_set
    kind = where.runtime or (None if has_kind else site.runtime)
    image = runtime.image or scenario.artifacts.container or ""
    if not kind and not has_kind and executor != "local" and image.endswith(".sif"):
        kind = "apptainer"
        notes.append(f"jobs run in {image}, by Apptainer; outside of it: --runtime process")
    if kind:
        runtime = runtime.model_copy(update={"kind": kind})
    placed = replace(file, scenario=scenario.model_copy(update={"executor": executor, "runtime": runtime}))
    return Placed(placed, notes, only_slurm)


def no_scheduler(file: ScenarioFile, only_slurm: str) -> list[Problem]:
    """Return a problem if a scenario names a partition, no other executor is chosen, and there is no Slurm here."""
    if not only_slurm or _has_slurm():
        return []
    first = only_slurm.partition(",")[0]
    message = f"{only_slurm}: this asks for Slurm, and there is no sbatch on this machine"
    expected = (
        "a login node of the cluster; to run it here, without: --executor local, or `executor: local` in site.yaml"
    )
    return [file.document.problem((first,), message, expected, key=True)]


def _has_slurm() -> bool:
    return shutil.which("sbatch") is not None
