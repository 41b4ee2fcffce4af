"""Paths in the scenario itself: local packages, images and binds. Relative ones start in the scenario's folder."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchhouse.plan.scenario_file import ScenarioFile

_ARCHIVES = (".whl", ".tar.gz", ".zip")


def with_absolute_paths(file: ScenarioFile, folder: Path) -> ScenarioFile:
    """The scenario with these paths absolute: a worker may run anywhere."""
    scenario = file.scenario
    runtime, changed = scenario.runtime, dict[str, Any]()
    if any(map(is_local_package, runtime.requirements)):
        changed["requirements"] = [_package(item, folder) for item in runtime.requirements]
    if runtime.image:
        changed["image"] = _image(runtime.image, folder)
    updates: dict[str, Any] = {"runtime": runtime.model_copy(update=changed)} if changed else {}
    if container := scenario.artifacts.get("container"):
        updates["artifacts"] = scenario.artifacts | {"container": _image(container, folder)}
    if scenario.binds:
        updates["binds"] = [_bind(item, folder) for item in scenario.binds]
    return replace(file, scenario=scenario.model_copy(update=updates)) if updates else file


def is_local_package(requirement: str) -> bool:
    """Whether a requirement is a path, as pip tells them: by its beginning, a slash, or the ending of an archive."""
    if "://" in requirement or "@" in requirement:
        return False
    path = without_extras(requirement)
    return path.startswith((".", "~")) or "/" in path or path.endswith(_ARCHIVES)


def without_extras(requirement: str) -> str:
    """`./package[extra]` without what is in brackets."""
    return requirement.partition("[")[0].strip()


def _package(requirement: str, folder: Path) -> str:
    return _absolute(requirement, folder) if is_local_package(requirement) else requirement


def _image(name: str, folder: Path) -> str:
    """A file of an image; other names are of an engine or a registry."""
    return _absolute(name, folder) if name.endswith(".sif") and "://" not in name else name


def _bind(text: str, folder: Path) -> str:
    source, colon, rest = text.partition(":")
    return f"{_absolute(source, folder)}{colon}{rest}"


def _absolute(path: str, folder: Path) -> str:
    return os.path.normpath(folder / Path(path).expanduser())
