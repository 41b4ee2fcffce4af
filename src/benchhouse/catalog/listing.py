"""List what is installed, without importing it each time.

Describing an experiment requires an import of its module, which may be slow, broken, or hang. It therefore happens in a
forked process, and the description is cached until one of its files changes.
"""

import functools
import json
import os
import re
import select
import signal
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchhouse.catalog.entries import ADO, EntryPointLine, ado_entries, entries, environment_stamp
from benchhouse.documents.problems import guess_hint
from benchhouse.processes.durable import write_whole
from benchhouse.processes.tree import die_with_parent
from benchhouse.schema.digests import digest
from benchhouse.schema.errors import BenchError, NotFoundError
from benchhouse.schema.progress import tell
from benchhouse.schema.version import __version__

if TYPE_CHECKING:
    from benchhouse.schema.experiment import Experiment
    from benchhouse.schema.trial import ExperimentRef

IMPORT_TIMEOUT_S = 30.0
_TELL_AFTER_S = 3.0
_OTHERS = 500  # descriptions that are kept for other processes


@dataclass(frozen=True)
class Listed:
    """One installed experiment, or an entry point that could not be imported (`broken` has the reason).

    It is not a pydantic model: only our own cache is read into it, and `bench list` finishes before pydantic is
    imported.
    """

    name: str
    version: str
    object: str
    distribution: str
    distribution_version: str
    description: str = ""
    component: str = "custom"
    services: list[str] = field(default_factory=list)
    metrics: list[dict[str, Any]] = field(default_factory=list)
    resources: dict[str, Any] = field(default_factory=dict)
    data: list[dict[str, Any]] = field(default_factory=list)
    deprecated: dict[str, Any] | None = None
    broken: str | None = None
    bridge: str = ""  # "ado": it is one of ado's
    inputs: list[dict[str, Any]] = field(default_factory=list)  # of one of ado's, as ado describes properties
    notes: list[str] = field(default_factory=list)  # parts of its declaration without effect here
    # requirements of the isolated environment, if only that has it
    environment: list[str] = field(default_factory=list)
    declaration: dict[str, Any] = field(default_factory=dict)  # then also: schemas of its inputs, digest of its code

    def code(self) -> "Experiment":
        """Return the experiment for planning. One of ado's is made from its description, as importing ado is slow."""
        if self.bridge:
            from benchhouse.catalog.ado import declare

            return declare(asdict(self))
        if self.declaration:
            from benchhouse.catalog.described_experiment import declare as declare_isolated

            return declare_isolated(asdict(self))
        from benchhouse.catalog.loading import load

        return load(self.ref())

    def code_digest(self) -> str:
        """Return the digest of its package's files, computed here or in the isolated environment."""
        from benchhouse.catalog.loading import code_digest

        return str(self.declaration.get("code_digest") or code_digest(self.ref()))

    def ref(self) -> "ExperimentRef":
        from benchhouse.schema.trial import ExperimentRef

        return ExperimentRef(**{name: getattr(self, name) for name in ExperimentRef.model_fields})


_held: ContextVar[list[Listed] | None] = ContextVar("_held", default=None)


@contextmanager
def listed_once(folder: Path) -> Iterator[list[Listed]]:
    """Reuse one result of `list_experiments` inside the context, for a command that plans hundreds of files."""
    token = _held.set(list_experiments(folder))
    try:
        yield _held.get() or []
    finally:
        _held.reset(token)


def list_experiments(folder: Path) -> list[Listed]:
    """Return all installed experiments, including deprecated and broken ones, sorted by name and version."""
    if (held := _held.get()) is not None:
        return held
    path = folder / f"experiments-{digest([__version__, sys.prefix])[:12]}.json"
    known = _read_cache(path)
    _stamp.cache_clear()
    environment_stamp.cache_clear()
    keys = {entry: _key(entry) for entry in (*entries("experiments"), *ado_entries())}
    missing = [entry for entry, key in keys.items() if key not in known or _have_changed(known[key]["files"])]
    if missing:
        if any(entry.group in ADO for entry in missing):  # ado alone takes seconds to load
            tell("looking at newly installed packages of ado, once ...")
        known |= {keys[entry]: record for entry, record in describe_apart(missing).items()}
        _write_cache(path, _worth_keeping(known, set(keys.values())))
    listed = [Listed(**item) for key in keys.values() for item in known[key]["items"]]
    # List each experiment of a package once, although several of its entry points may offer it.
    once = {(item.name, item.version, item.object, item.distribution): item for item in listed}.values()
    return sorted(once, key=lambda item: (item.name, version_key(item.version), item.distribution))


def resolve(name: str, version: str | None, listed: Sequence[Listed]) -> Listed:
    """Return the one experiment of that name and version; without a version, the newest that is not deprecated."""
    matches = [item for item in listed if item.name == name]
    if not matches:
        hint = guess_hint(name, sorted({item.name for item in listed}))
        parts = name.split(".")  # broken experiments are listed by the name of their entry point
        for item in (item for item in listed if item.broken and item.name in parts):
            hint = f"'{item.name}' of {item.distribution} can't be loaded: {item.broken}; "
        raise NotFoundError(f"no experiment named '{name}' is installed", f"{hint}see: bench list experiments")
    if version is not None:
        offered = ", ".join(item.version for item in matches)
        matches = [item for item in matches if item.version == version]
        if not matches:
            raise NotFoundError(f"experiment '{name}' is not installed in version '{version}'", f"installed: {offered}")
    else:
        matches.sort(key=lambda item: (item.deprecated is None, version_key(item.version)))
        matches = [item for item in matches if item.version == matches[-1].version]
    if len(matches) > 1:
        message = f"experiment '{name}' version '{matches[0].version}' is claimed by {' and '.join(_owners(matches))}"
        raise BenchError(message, "uninstall one of them, or ask for a version that only one of them has")
    if matches[0].broken:
        others = sorted({item.version for item in listed if item.name == name and not item.broken})
        other = f", or ask for version {' or '.join(others)}" if others else ""
        hint = f"mend or reinstall its package, {_owners(matches)[0]}{other}"
        raise BenchError(f"experiment '{name}' can't be used: {matches[0].broken}", hint)
    return matches[0]


def _owners(claimants: Sequence[Listed]) -> list[str]:
    """Return the packages, with the place in the package if one package offers the experiment twice."""
    packages = [f"{item.distribution} {item.distribution_version}" for item in claimants]
    if len(set(packages)) == len(packages):
        return packages
    return [f"{package} ({item.object})" for package, item in zip(packages, claimants, strict=True)]


def serving(component: str, service: str, listed: Iterable[Listed]) -> list[str]:
    """Return the names of the experiments that declare to drive this component and service."""
    return sorted({item.name for item in listed if item.component == component and service in item.services})


def version_key(version: str) -> tuple[tuple[int, int | str], ...]:
    """Return a sort key for versions of any scheme: numbers by value, words by alphabet, `1.0rc1` before `1.0`."""
    parts = re.findall(r"\d+|[A-Za-z]+", version)
    rank = {"dev": -1, "post": 2}
    ranked = [(3, int(part)) if part.isdigit() else (rank.get(part, 0), part) for part in parts]
    return (*ranked, (1, ""))


def _describe(entry: EntryPointLine, whole: bool = False) -> dict[str, Any]:
    """Return what the cache keeps: the experiments behind one entry point, and the files they depend on."""
    from benchhouse.catalog.loading import load_entry

    is_ado = entry.group in ADO
    try:
        items = _describe_ado(entry) if is_ado else [_describe_one(entry, item, whole) for item in load_entry(entry)]
        if whole and is_ado:
            items = [item | {"declaration": _digest_of_code(item)} for item in items]
    except BaseException as error:  # noqa: BLE001 - a foreign module may raise anything, even SystemExit
        reason = f"{type(error).__name__}: {error}"
        if is_ado and isinstance(error, ModuleNotFoundError) and error.name == "ado":
            reason = "ado is not installed: pip install 'benchhouse[ado]'"
        # ado's are tried again only when a package or its module changes, because that imports all of ado.
        return {"items": [_broken(entry, reason)], "files": {}} | ({} if is_ado else {"retry": True})
    items = items or [_broken(entry, "it holds no experiment")]
    return {"items": items, "files": _files_of(entry.object.partition(":")[0])}


def _describe_ado(entry: EntryPointLine) -> list[dict[str, Any]]:
    from benchhouse.catalog.ado_experiments import describe

    common = _broken(entry, None)
    return [common | item | {"version": item["version"] or common["version"]} for item in describe(entry)]


def _digest_of_code(item: dict[str, Any]) -> dict[str, Any]:
    return {"code_digest": Listed(**item).code_digest()}


def _declaration(item: "Experiment") -> dict[str, Any]:
    """Return what a process that cannot import the experiment needs for planning, in addition to the listing."""
    from benchhouse.catalog.input_schemas import schema_of

    return {
        "target": schema_of(item.target_model),
        "workload": schema_of(item.workload_model),
        "takes_target": item.takes_target,
        "drivers": list(item.drivers),
        "dataset": item.dataset,
        "strict_metrics": item.strict_metrics,
    }


def _describe_one(entry: EntryPointLine, item: "Experiment", whole: bool) -> dict[str, Any]:
    described = _broken(entry, None) | {"name": item.name, "version": item.version, "description": item.description}
    try:
        _ = item.workload_model, item.target_model
    except Exception as error:  # noqa: BLE001 - foreign annotations may raise anything
        return described | {"broken": f"its inputs can't be understood: {type(error).__name__}: {error}"[:2000]}
    declaration = {"declaration": _digest_of_code(described) | _declaration(item)} if whole else {}
    return (
        described
        | declaration
        | {
            "component": item.component,
            "services": list(item.services),
            "metrics": [metric.model_dump() for metric in item.metrics],
            "resources": item.resources.model_dump(),
            "data": [data.model_dump() for data in item.data],
            "deprecated": item.deprecated.model_dump() if item.deprecated else None,
        }
    )


def _broken(entry: EntryPointLine, reason: str | None) -> dict[str, Any]:
    name, _, version = entry.name.partition("@")
    return {
        "name": name,
        "version": version or entry.distribution_version,
        "object": entry.object,
        "distribution": entry.distribution,
        "distribution_version": entry.distribution_version,
        "broken": reason[:2000] if reason else None,
        "bridge": "ado" if entry.group in ADO else "",
    }


def describe_apart(missing: Sequence[EntryPointLine], whole: bool = False) -> dict[EntryPointLine, dict[str, Any]]:
    """Describe entries in a forked process; a crash or hang affects only the current entry.

    `whole` adds everything that a process needs if it cannot import the experiments.
    """
    described: dict[EntryPointLine, dict[str, Any]] = {}
    todo = list(missing)
    while todo:
        lines, reason = _fork_and_describe(todo, whole)
        for entry, line in zip(todo, lines, strict=False):
            described[entry] = json.loads(line)
        todo = todo[len(lines) :]
        if todo:
            described[todo[0]] = {"items": [_broken(todo[0], reason)], "files": {}}
            todo = todo[1:]
    return described


def _fork_and_describe(todo: Sequence[EntryPointLine], whole: bool) -> tuple[list[bytes], str]:
    """Return one line per described entry, and why the others could not be described."""
    reader, writer = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        try:
            # otherwise an import that hangs, or a full pipe, would keep the process waiting forever
            die_with_parent(signal.SIGKILL, parent)
            os.close(reader)
            silence = os.open(os.devnull, os.O_RDWR)
            for descriptor in (0, 1, 2):
                os.dup2(silence, descriptor)
            sys.stdout = sys.stderr = open(silence, "w", closefd=False)  # noqa: SIM115 - the streams need not be descriptors 1 and 2
            for entry in todo:
                os.write(writer, json.dumps(_describe(entry, whole)).encode() + b"\n")
        finally:  # a fork must not return to the caller's code or run its atexit handlers, which are the parent's
            os._exit(0)
    os.close(writer)
    buffer, reason = b"", "its import ended the process"
    deadline = time.monotonic() + IMPORT_TIMEOUT_S
    while True:
        ready, _, _ = select.select([reader], [], [], min(_TELL_AFTER_S, IMPORT_TIMEOUT_S))
        if not ready:
            at = todo[min(buffer.count(b"\n"), len(todo) - 1)]
            tell(f"still importing '{at.name}' of {at.distribution}; given up after {IMPORT_TIMEOUT_S:g} s ...")
            ready, _, _ = select.select([reader], [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            reason = f"its import did not finish within {IMPORT_TIMEOUT_S:g} s"
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
    again = "; it is not tried again before its file changes or the cache is removed"
    return complete.split(b"\n") if complete else [], reason + again


def _files_of(module: str) -> dict[str, str]:
    """Return the loaded files of the module's package with their stamps: editing any may change the description."""
    top = module.partition(".")[0]
    loaded = [item for name, item in sys.modules.items() if name == top or name.startswith(f"{top}.")]
    paths = {path for item in loaded if isinstance(path := getattr(item, "__file__", None), str)}
    return {path: _stamp(path) for path in sorted(paths)}


def _have_changed(files: dict[str, str]) -> bool:
    return any(_stamp(path) != stamp for path, stamp in files.items())


@functools.cache
def _stamp(path: str) -> str:
    try:
        status = os.stat(path)  # noqa: PTH116 - called often, and Path takes three times as long
    except OSError:
        return ""
    return f"{status.st_mtime_ns}:{status.st_size}"


def _key(entry: EntryPointLine) -> str:
    """Return a key that changes whenever the description may: with the version, interpreter, or module file."""
    path = _module_file(entry.object.partition(":")[0])
    stamp = f"{path}:{_stamp(path)}" if path else ""
    known = f"{entry.distribution}=={entry.distribution_version}|{entry.name}={entry.object}|{sys.executable}|{stamp}"
    return f"{known}|{entry.group}|{environment_stamp()}" if entry.group in ADO else known


def _module_file(module: str) -> str | None:
    """Return the file of a module without importing it, because importing a package would defeat the cache."""
    relative = module.replace(".", "/")
    for folder in sys.path:
        for candidate in (f"{relative}/__init__.py", f"{relative}.py"):
            path = f"{folder or '.'}/{candidate}"
            if _stamp(path):
                return path
    return None


def _worth_keeping(known: dict[str, Any], current: set[str]) -> dict[str, Any]:
    """Return current descriptions, and the latest of other processes: ado, which calls this too, has another path.

    An import that raises is dropped, because it may succeed later and is cheap to retry; one that hangs is kept.
    """
    others = [key for key, record in known.items() if key not in current and isinstance(record, dict)]
    kept = [*others[-_OTHERS:], *current]
    return {key: known[key] for key in kept if not known[key].get("retry")}


def _read_cache(path: Path) -> dict[str, Any]:
    try:
        loaded = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return loaded if isinstance(loaded, dict) else {}


def _write_cache(path: Path, content: dict[str, Any]) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, json.dumps(content), durable=False)  # a file that a power cut emptied is written again
    except OSError:
        return  # a read-only home only costs time
