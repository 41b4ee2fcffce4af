"""Pass the dataset of a scenario to the input of its experiment that takes one."""

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

from benchhouse.documents.document import Loc
from benchhouse.documents.problems import Problem, ProblemsError
from benchhouse.plan.scenario_file import ScenarioFile
from benchhouse.schema.artifacts import DatasetFile
from benchhouse.schema.digests import file_digest
from benchhouse.schema.experiment import Experiment
from benchhouse.schema.input_paths import owner_of
from benchhouse.schema.quoting import describe, quote

_LOC: Loc = ("artifacts", "dataset")


def with_dataset(file: ScenarioFile, code: Experiment | None, folder: Path) -> ScenarioFile:
    """Return the scenario as if its workload named the dataset, with its digest: other data make another point.

    A file that does not exist here has no digest: it can be planned for, but not run. Raises ProblemsError if the
    experiment takes no dataset, the digest differs from the stated one, or the workload contradicts the dataset.
    """
    dataset = file.scenario.artifacts.dataset
    if dataset is None or code is None:
        return file
    if not code.dataset:
        message, expected = f"{code.name} takes no dataset", "leave it out; what it takes: bench show " + code.name
        raise ProblemsError([file.document.problem(_LOC, message, expected, key=True)])
    dataset = _known(file, dataset, folder)
    scenario = file.scenario
    *outer, name = code.dataset.split(".")
    owner = owner_of(code.workload_model, tuple(code.dataset.split(".")))
    fields = owner.model_fields if owner else {}
    said: dict[str, Any] = {name: dataset.path}
    if "sha256" in fields and dataset.sha256:
        said["sha256"] = dataset.sha256
    if "kind" in fields:
        said["kind"] = get_args(fields["kind"].annotation)[0]
    workload = _joined(file, scenario.workload, outer, said)
    artifacts = scenario.artifacts.model_copy(update={"dataset": dataset})
    return replace(file, scenario=scenario.model_copy(update={"workload": workload, "artifacts": artifacts}))


def missing_dataset(file: ScenarioFile, folder: Path) -> list[Problem]:
    """Return the problem that the dataset does not exist; empty if it exists or the scenario has none."""
    dataset = file.scenario.artifacts.dataset
    if dataset is None or (path := folder / Path(dataset.path).expanduser()).exists():
        return []
    return [file.document.problem(_LOC, f"the dataset {path} does not exist", "the path of a file")]


def _known(file: ScenarioFile, dataset: DatasetFile, folder: Path) -> DatasetFile:
    path = folder / Path(dataset.path).expanduser()
    if "://" in dataset.path:
        message, expected = "a dataset is a file", "its path; download it first"
        raise ProblemsError([file.document.problem(_LOC, message, expected)])
    try:
        sha256 = file_digest(path)
    except FileNotFoundError:
        return dataset
    except OSError as error:
        message = f"the dataset {path} can't be read: {error.strerror}"
        raise ProblemsError([file.document.problem(_LOC, message, "the path of a file")]) from error
    if dataset.sha256 not in ("", sha256):
        message = f"{path} has sha256 {sha256}: it is not the file that was meant, or it has changed since"
        raise ProblemsError([file.document.problem((*_LOC, "sha256"), message)])
    return dataset.model_copy(update={"sha256": sha256})


def _joined(file: ScenarioFile, workload: Mapping[str, Any], outer: list[str], said: dict[str, Any]) -> dict[str, Any]:
    """Return the workload with the dataset's inputs added; raise ProblemsError if the workload contradicts them."""
    if not outer:
        return {**workload, **_agreed(file, ("workload",), workload, said)}
    head, *rest = outer
    given = workload.get(head, {})
    if not isinstance(given, dict):
        message = f"{quote(head)} is {describe(given)}, and artifacts.dataset says where it comes from"
        raise ProblemsError([file.document.problem(("workload", head), message, "one of them")])
    inner = _joined(file, given, rest, said) if rest else {**given, **_agreed(file, ("workload", head), given, said)}
    return {**workload, head: inner}


def _agreed(file: ScenarioFile, loc: Loc, given: Mapping[str, Any], said: dict[str, Any]) -> dict[str, Any]:
    problems: list[Problem] = []
    for key in said.keys() & given.keys():
        if not _same(given[key], said[key]):
            message = f"{quote(key)} is {describe(given[key])}, and artifacts.dataset makes it {describe(said[key])}"
            problems.append(file.document.problem((*loc, key), message, "one of them"))
    if problems:
        raise ProblemsError(problems)
    return said


def _same(given: Any, said: Any) -> bool:
    """Return whether two values are equal; different spellings of one path are."""
    return given == said or (isinstance(given, str) and os.path.normpath(given) == os.path.normpath(said))
