"""The conditions besides the plan that a measurement depends on."""

import os
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchhouse.plan.expand import Plan
from benchhouse.runs.ledger import Ledger
from benchhouse.runs.prepared_run import PreparedRun
from benchhouse.runs.server_images import used_images
from benchhouse.schema.digests import digest, file_digest
from benchhouse.schema.layout import WorkspaceFolder
from benchhouse.schema.resources import RuntimeSettings

_LONGEST_TEXT = 10_000
_LONGEST_PATH = 250
_LARGEST_READ = 256 << 20


def conditions(prepared: PreparedRun) -> dict[str, str]:
    """Return the digests of the conditions by name. Trials with different ones must not be averaged."""
    scenario = prepared.plan.scenario
    # New fields count only if set, so that a run of an earlier version can be resumed.
    asked = [
        {key: value for key, value in item.model_dump().items() if key not in ("ntasks", "gres") or value is not None}
        for item in prepared.plan.all_resources
    ]
    image, runtimes = prepared.image_digest(), [_told(spec) for spec in prepared.plan.runtimes]
    servers = used_images(prepared.plan.services)
    return (
        {
            "experiment code": prepared.code_digest,
            "environment": digest(dict(scenario.environment)),
            "runtime": digest(runtimes if len(runtimes) > 1 else runtimes[0]),
            "resources": digest(asked if len(asked) > 1 else asked[0]),
            "contract": prepared.contract.digest if prepared.contract else "",
        }
        | ({"image": image} if image else {})
        | ({"server image": digest(servers)} if servers else {})
    )


def named_files(workspace: WorkspaceFolder, prepared: PreparedRun) -> dict[str, str]:
    """Return the digests of the local programs and files that a scenario names, by `file PATH`.

    A text of the scenario counts as a path if a file of that name is in the folder of the scenario, in the workspace,
    or at that absolute path; so do the words of `shell`, and the program of `argv` even if only PATH has it. In a
    folder that is named, only local Python packages are read. Files of more than 256 MiB count by size and time of
    change.
    """
    texts = {text for plan in prepared.plan.plans for text in _texts(_named_in(plan))}
    folders = list(dict.fromkeys([prepared.plan.folder, *_working_folders(prepared), workspace.root.absolute()]))
    found: dict[str, str] = {}
    for text in sorted(texts):
        for path in _files_of(text, folders):
            place = path.relative_to(workspace.root) if path.is_relative_to(workspace.root) else path
            found[f"file {place}"] = _file_state(path)
    return found


def _named_in(plan: Plan) -> list[Any]:
    scenario = plan.scenario
    varied = [row for block in plan.space.blocks for row in block.rows]
    services = [service.model_dump(mode="json") for service in plan.services.values()]
    runtime = [*scenario.runtime.requirements, *scenario.runtime.environments, scenario.runtime.python]
    return [plan.target, plan.parameters, varied, services, dict(scenario.environment), runtime, scenario.binds]


def _working_folders(prepared: PreparedRun) -> list[Path]:
    named = [plan.parameters.get("cwd") for plan in prepared.plan.plans]
    return [prepared.plan.folder / name for name in named if isinstance(name, str) and name]


def _texts(value: Any, key: str = "") -> Iterator[str]:
    """Yield all texts in nested data, and the words of those that are a command line."""
    if isinstance(value, dict):
        for name, item in value.items():
            yield from _texts(item, str(name))
    elif isinstance(value, list | tuple):
        if key == "argv" and value and isinstance(value[0], str) and (program := shutil.which(value[0])):
            yield program
        for item in value:
            yield from _texts(item, key if key == "shell" else "")
    elif isinstance(value, str) and 0 < len(value) < _LONGEST_TEXT and "\0" not in value:
        yield value
        try:
            yield from shlex.split(value) if " " in value else ()
        except ValueError:  # unbalanced quotes: it is not a command line
            return


def _files_of(text: str, folders: list[Path]) -> Iterator[Path]:
    """Yield the files that a text names, or that are in a local package that it names."""
    if len(os.fsencode(text)) > _LONGEST_PATH:
        return
    for folder in folders:
        path = Path(os.path.normpath(folder / text))
        if path.is_file():
            yield path
        elif (path / "pyproject.toml").is_file() or (path / "setup.py").is_file():
            for below, names, files in os.walk(path):
                names[:] = [name for name in names if name not in (".git", "__pycache__", ".venv")]
                yield from (Path(below, name) for name in files)


def _file_state(path: Path) -> str:
    try:
        status = path.stat()
        if status.st_size > _LARGEST_READ:
            return f"{status.st_size} bytes, changed {status.st_mtime_ns}"
        return file_digest(path)
    except OSError as error:
        return f"can't be read: {error.strerror}"


def _told(runtime: RuntimeSettings) -> dict[str, Any]:
    """Return the settings without empty new keys, so that runs from before those keys can be resumed."""
    silent = {name for name in ("shared", "environments") if not getattr(runtime, name)}
    return runtime.model_dump(exclude=silent)


def changed_conditions(ledger: Ledger, prepared: PreparedRun) -> list[str]:
    before = ledger.record.conditions
    return [name for name, value in conditions(prepared).items() if before.get(name, value) != value]
