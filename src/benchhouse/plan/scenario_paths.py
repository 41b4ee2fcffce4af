"""Packages, images and binds of a scenario: relative paths made absolute, and what an isolated environment lacks."""

import os
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

from benchhouse.documents.problems import MOST_PROBLEMS, Problem
from benchhouse.plan.scenario_file import ScenarioFile
from benchhouse.schema.trial import ExperimentRef

_ARCHIVES = (".whl", ".tar.gz", ".zip")


def with_absolute_paths(file: ScenarioFile, folder: Path) -> ScenarioFile:
    """The scenario with its paths absolute, starting in `folder`: a worker may run anywhere."""
    scenario = file.scenario
    runtime, changed = scenario.runtime, dict[str, Any]()
    if any(map(_is_local_package, runtime.requirements)):
        changed["requirements"] = _requirements(runtime.requirements, folder)
    if runtime.environments:
        changed["environments"] = [_requirements(own, folder) for own in runtime.environments]
    if runtime.image:
        changed["image"] = _image(runtime.image, folder)
    updates: dict[str, Any] = {"runtime": runtime.model_copy(update=changed)} if changed else {}
    if container := scenario.artifacts.container:
        updates["artifacts"] = scenario.artifacts.model_copy(update={"container": _image(container, folder)})
    if scenario.binds:
        updates["binds"] = [_bind(item, folder) for item in scenario.binds]
    return replace(file, scenario=scenario.model_copy(update=updates)) if updates else file


def _requirements(items: list[str], folder: Path) -> list[str]:
    return [_absolute(item, folder) if _is_local_package(item) else item for item in items]


def _is_local_package(requirement: str) -> bool:
    """Whether a requirement is a path, as pip tells them: by its beginning, a slash, or the ending of an archive."""
    if "://" in requirement or "@" in requirement:
        return False
    path = _without_extras(requirement)
    return path.startswith((".", "~")) or "/" in path or path.endswith(_ARCHIVES)


def _without_extras(requirement: str) -> str:
    """`./package[extra]` without what is in brackets."""
    return requirement.partition("[")[0].strip()


def _image(name: str, folder: Path) -> str:
    """A file of an image; other names are of an engine or a registry."""
    return _absolute(name, folder) if name.endswith(".sif") and "://" not in name else name


def _bind(text: str, folder: Path) -> str:
    source, colon, rest = text.partition(":")
    return f"{_absolute(source, folder)}{colon}{rest}"


def _absolute(path: str, folder: Path) -> str:
    return os.path.normpath(folder / Path(path).expanduser())


def missing_packages(file: ScenarioFile) -> list[Problem]:
    """Requirements that are files or folders and are not there."""
    runtime = file.scenario.runtime
    if runtime.kind != "venv":
        return []
    lists: list[tuple[tuple[str | int, ...], list[str]]] = [(("requirements",), runtime.requirements)]
    lists += [(("environments", number), own) for number, own in enumerate(runtime.environments)]
    problems = (
        file.document.problem(("runtime", *loc, at), f"there is no file or folder {_without_extras(item)}")
        for loc, items in lists
        for at, item in enumerate(items)
        if _is_local_package(item) and not Path(_without_extras(item)).exists()
    )
    return list(islice(problems, MOST_PROBLEMS))


def package_problems(file: ScenarioFile, experiment: ExperimentRef) -> list[Problem]:
    """The experiment's own package where nothing brings it to the isolated environment."""
    runtime = file.scenario.runtime
    if runtime.kind != "venv" or not experiment.object:
        return []
    from benchhouse.catalog.provided_packages import brings, source_of  # brings the files of a nexus: 20 ms

    name, module = experiment.distribution, experiment.object.partition(":")[0].partition(".")[0]
    if name.lower() == "benchhouse" or brings(runtime.requirements, name, module) is not False:
        return []
    message = f"the isolated environment would not have the package '{name}', which provides {experiment.name}"
    expected = f"add it: requirements: [{', '.join([*runtime.requirements, source_of(name)])}]"
    return [file.document.problem(("runtime", "requirements"), message, expected)]
