"""Make relative paths of packages, images, and binds absolute, and find what an isolated environment lacks."""

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
    """Return the scenario with paths made absolute from `folder`, because a worker may run anywhere."""
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
    """Return whether a requirement is a path by pip's rules: by its first character, a slash, or an archive suffix."""
    if "://" in requirement or "@" in requirement:
        return False
    path = _without_extras(requirement)
    return path.startswith((".", "~")) or "/" in path or path.endswith(_ARCHIVES)


def _without_extras(requirement: str) -> str:
    """Return `./package` for `./package[extra]`."""
    return requirement.partition("[")[0].strip()


def _image(name: str, folder: Path) -> str:
    """Return an image file with an absolute path; names of an engine or a registry are unchanged."""
    return _absolute(name, folder) if name.endswith(".sif") and "://" not in name else name


def _bind(text: str, folder: Path) -> str:
    source, colon, rest = text.partition(":")
    return f"{_absolute(source, folder)}{colon}{rest}"


def _absolute(path: str, folder: Path) -> str:
    return os.path.normpath(folder / Path(path).expanduser())


def missing_packages(file: ScenarioFile) -> list[Problem]:
    """Return a problem for each requirement that is a path and does not exist."""
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
    """Return a problem if the isolated environment would lack the experiment's own package."""
    runtime = file.scenario.runtime
    if runtime.kind != "venv" or not experiment.object:
        return []
    from benchhouse.catalog.provided_packages import brings, source_of  # imports the files of a nexus: 20 ms

    name, module = experiment.distribution, experiment.object.partition(":")[0].partition(".")[0]
    if name.lower() == "benchhouse" or brings(runtime.requirements, name, module) is not False:
        return []
    message = f"the isolated environment would not have the package '{name}', which provides {experiment.name}"
    expected = f"add it: requirements: [{', '.join([*runtime.requirements, source_of(name)])}]"
    return [file.document.problem(("runtime", "requirements"), message, expected)]
