"""What is installed, described without importing it each time.

Describing an experiment means importing its module, which may be slow, broken or hang. So it happens in a
forked process, once per version of the module's file, and the description is cached.
"""

import json
import os
import re
import select
import signal
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from pydantic import Field

from benchhouse.catalog.entries import Entry, entries
from benchhouse.schema.errors import BenchError
from benchhouse.schema.model import Model
from benchhouse.schema.problems import did_you_mean
from benchhouse.schema.trial import ExperimentRef

IMPORT_TIMEOUT_S = 30.0


class Listed(Model):
    """One installed experiment, or an entry point that could not be imported (`broken` says why)."""

    name: str
    version: str
    object: str
    distribution: str
    distribution_version: str
    description: str = ""
    component: str = "custom"
    services: list[str] = Field(default_factory=list)
    metrics: list[dict[str, Any]] = Field(default_factory=list)
    resources: dict[str, Any] = Field(default_factory=dict)
    data: list[dict[str, Any]] = Field(default_factory=list)
    deprecated: dict[str, Any] | None = None
    broken: str | None = None

    def ref(self) -> ExperimentRef:
        return ExperimentRef(
            name=self.name,
            version=self.version,
            object=self.object,
            distribution=self.distribution,
            distribution_version=self.distribution_version,
        )


def list_experiments(cache: Path) -> list[Listed]:
    """All installed experiments, deprecated and broken ones included, sorted by name and version."""
    known = _read_cache(cache / "experiments.json")
    keys = {entry: _key(entry) for entry in entries("experiments")}
    missing = [entry for entry, key in keys.items() if key not in known]
    if missing:
        described = _describe_apart(missing)
        known |= {keys[entry]: items for entry, items in described.items()}
        _write_cache(cache / "experiments.json", {key: known[key] for key in keys.values()})
    listed = [Listed.model_validate(item) for key in keys.values() for item in known[key]]
    return sorted(listed, key=lambda item: (item.name, version_key(item.version), item.distribution))


def resolve(name: str, version: str | None, listed: Sequence[Listed]) -> Listed:
    """The one experiment of that name and version; without a version, the newest that is not deprecated."""
    matches = [item for item in listed if item.name == name]
    if not matches:
        guess = did_you_mean(name, sorted({item.name for item in listed}))
        hint = f"did you mean '{guess}'? " if guess else ""
        raise BenchError(f"no experiment named '{name}' is installed", f"{hint}see: bench list experiments")
    if version is not None:
        offered = ", ".join(item.version for item in matches)
        matches = [item for item in matches if item.version == version]
        if not matches:
            raise BenchError(f"experiment '{name}' is not installed in version '{version}'", f"installed: {offered}")
    else:
        matches.sort(key=lambda item: (item.deprecated is None, version_key(item.version)))
        matches = [item for item in matches if item.version == matches[-1].version]
    if len(matches) > 1:
        owners = " and ".join(f"{item.distribution} {item.distribution_version}" for item in matches)
        raise BenchError(
            f"experiment '{name}' version '{matches[0].version}' is claimed by {owners}",
            "uninstall one of them, or ask for a version that only one of them has",
        )
    if matches[0].broken:
        raise BenchError(
            f"experiment '{name}' can't be imported:\n{matches[0].broken}", "mend or reinstall its package"
        )
    return matches[0]


def serving(component: str, service: str, listed: Iterable[Listed]) -> list[str]:
    """Names of the experiments that say they drive this component and service."""
    return sorted({item.name for item in listed if item.component == component and service in item.services})


def version_key(version: str) -> tuple[tuple[int, int | str], ...]:
    """An order for versions of any scheme: numbers by value, words by alphabet."""
    parts = re.findall(r"\d+|[A-Za-z]+", version)
    return tuple((1, int(part)) if part.isdigit() else (0, part) for part in parts)


def _describe(entry: Entry) -> list[dict[str, Any]]:
    from benchhouse.catalog.loading import load_entry

    base = {
        "object": entry.object,
        "distribution": entry.distribution,
        "distribution_version": entry.distribution_version,
    }
    try:
        found = load_entry(entry)
    except BaseException as error:  # noqa: BLE001 - a stranger's module may raise anything, SystemExit too
        return [_broken(entry, f"{type(error).__name__}: {error}")]
    return [
        base
        | {
            "name": item.name,
            "version": item.version,
            "description": item.description,
            "component": item.component,
            "services": list(item.services),
            "metrics": [metric.model_dump() for metric in item.metrics],
            "resources": item.resources.model_dump(),
            "data": [data.model_dump() for data in item.data],
            "deprecated": item.deprecated.model_dump() if item.deprecated else None,
        }
        for item in found
    ] or [_broken(entry, "it holds no experiment")]


def _broken(entry: Entry, reason: str) -> dict[str, Any]:
    name, _, version = entry.name.partition("@")
    return {
        "name": name,
        "version": version or entry.distribution_version,
        "object": entry.object,
        "distribution": entry.distribution,
        "distribution_version": entry.distribution_version,
        "broken": reason[:2000],
    }


def _describe_apart(missing: Sequence[Entry]) -> dict[Entry, list[dict[str, Any]]]:
    """Describe in a forked process; one that dies or hangs costs only the entry it was at."""
    described: dict[Entry, list[dict[str, Any]]] = {}
    todo = list(missing)
    while todo:
        lines, reason = _fork_and_describe(todo)
        for entry, line in zip(todo, lines, strict=False):
            described[entry] = json.loads(line)
        todo = todo[len(lines) :]
        if todo:
            described[todo[0]] = [_broken(todo[0], reason)]
            todo = todo[1:]
    return described


def _fork_and_describe(todo: Sequence[Entry]) -> tuple[list[bytes], str]:
    reader, writer = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        silence = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(silence, descriptor)
        for entry in todo:
            os.write(writer, json.dumps(_describe(entry)).encode() + b"\n")
        os._exit(0)
    os.close(writer)
    buffer, reason = b"", "its import ended the process"
    deadline = time.monotonic() + IMPORT_TIMEOUT_S
    while True:
        ready, _, _ = select.select([reader], [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            reason = f"its import did not finish within {IMPORT_TIMEOUT_S:.0f} s"
            os.kill(pid, signal.SIGKILL)
            break
        chunk = os.read(reader, 1 << 16)
        if not chunk:
            break
        buffer += chunk
        deadline = time.monotonic() + IMPORT_TIMEOUT_S
    os.close(reader)
    os.waitpid(pid, 0)
    complete, _, _ = buffer.rpartition(b"\n")
    return complete.split(b"\n") if complete else [], reason


def _key(entry: Entry) -> str:
    """Changes whenever the description may: another version, interpreter or module file."""
    stamp = ""
    if path := _module_file(entry.object.partition(":")[0]):
        status = path.stat()
        stamp = f"{path}:{status.st_mtime_ns}:{status.st_size}"
    return f"{entry.distribution}=={entry.distribution_version}|{entry.name}={entry.object}|{sys.executable}|{stamp}"


def _module_file(module: str) -> Path | None:
    """The file of a module, found by looking: importing a package just to find its file would defeat the cache."""
    relative = module.replace(".", "/")
    for folder in sys.path:
        for candidate in (f"{relative}.py", f"{relative}/__init__.py"):
            path = Path(folder or ".", candidate)
            if path.is_file():
                return path
    return None


def _read_cache(path: Path) -> dict[str, Any]:
    try:
        loaded = json.loads(path.read_bytes())
        return loaded if isinstance(loaded, dict) else {}
    except (OSError, ValueError):
        return {}


def _write_cache(path: Path, content: dict[str, Any]) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
        temporary.write_text(json.dumps(content))
        temporary.replace(path)
    except OSError:
        return  # a read-only home only costs time
