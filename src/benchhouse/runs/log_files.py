"""Logs as files: a tarball of a run's logs, and the removal of old ones."""

import gzip
import hashlib
import io
import os
import shutil
import tarfile
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import IO, Any

from benchhouse.evidence.writing import replacing
from benchhouse.runs.ledger import Ledger, RunEvent, list_runs
from benchhouse.runs.logs import LogFolder, RunLogs, Selection, TrialLogs, component_of, selected_lines
from benchhouse.schema.components import ORCHESTRATOR, SLURM, WORKER
from benchhouse.schema.errors import BenchError, unwritable
from benchhouse.schema.layout import RunFolder, WorkspaceFolder
from benchhouse.schema.logs import LogsManifest, PackedFile, PrunedLogs
from benchhouse.schema.secrets import redact_keys
from benchhouse.sites import places

_IN_MEMORY_BYTES = 16 << 20


@dataclass
class _Tarball:
    """A tarball whose bytes depend on the content alone: no owner, and one time for all files."""

    tar: tarfile.TarFile
    top: str
    time_s: int
    files: list[PackedFile] = field(default_factory=list)

    def add(self, path: str, lines: Iterable[bytes], **about: Any) -> None:
        """Add a file of these lines, unless there are none. It is copied first, because a log may grow meanwhile."""
        with tempfile.SpooledTemporaryFile(_IN_MEMORY_BYTES) as copy:
            digest, count = hashlib.sha256(), 0
            for line in lines:
                copy.write(line)
                digest.update(line)
                count += line.endswith(b"\n")
            if size := copy.tell():
                self._put(path, copy, size)
                packed = PackedFile(path=path, size=size, lines=count, sha256=digest.hexdigest(), **about)
                self.files.append(packed)

    def finish(self, manifest: LogsManifest) -> None:
        data = manifest.model_dump_json(indent=2).encode() + b"\n"
        self._put("manifest.json", io.BytesIO(data), len(data))

    def _put(self, path: str, content: IO[bytes], size: int) -> None:
        entry = tarfile.TarInfo(f"{self.top}/{path}")
        entry.size, entry.mtime, entry.mode = size, self.time_s, 0o644
        content.seek(0)
        self.tar.addfile(entry, content)


def pack(workspace: WorkspaceFolder, run_id: str, selection: Selection, output: Path) -> LogsManifest:
    """Write the selected logs to `output`, a .tar.gz, whole or not at all, and return its manifest."""
    logs = RunLogs(workspace, run_id)
    folders = logs.check(selection)
    record = Ledger(workspace.run(run_id)).record
    created_s = int(datetime.fromisoformat(record.created).timestamp())
    try:
        with (
            replacing(output) as temporary,
            temporary.open("wb") as file,
            gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0) as packed,
            tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar,
        ):
            tarball = _Tarball(tar, f"{run_id}-logs", created_s)
            untimed = [name for folder in folders for name in _pack_folder(tarball, folder, selection)]
            untimed += _pack_run(tarball, workspace.run(run_id), selection)
            manifest = LogsManifest(
                run_id=run_id,
                scenario=record.scenario,
                components=list(selection.components),
                trials=list(selection.trials),
                since=selection.since or None,
                until=selection.until or None,
                files=tarball.files,
                left_out=[f"{name}: its lines have no times" for name in untimed],
            )
            if not manifest.files:
                raise BenchError(f"run {run_id} has no logs that match", f"see: bench logs tail {run_id}")
            tarball.finish(manifest)
    except OSError as error:
        raise unwritable(output, error, f"bench logs get {run_id}") from error
    return manifest


def _pack_folder(tarball: _Tarball, folder: LogFolder, selection: Selection) -> list[str]:
    """Pack one folder. Return the files that are left out because a selection by time does not fit them."""
    untimed = []
    top, about = f"services/{folder.place().parent.name}", {}
    if isinstance(folder, TrialLogs):
        top = f"trials/{folder.trial_id}.{folder.attempt}"
        about = {"trial_id": folder.trial_id, "attempt": folder.attempt, "sealed": folder.folder().sealed}
    for name in folder.names():
        path = f"{top}/{name}"
        component = component_of(name)
        if component and not selection.takes_component(component):
            continue
        if component and selection.has_times():
            untimed.append(path)
        elif (file := folder.open(name)) is not None:
            with file:
                lines = file if component else (line for line in file if _is_selected(line, selection))
                tarball.add(path, lines, **about)
    return untimed


def _is_selected(line: bytes, selection: Selection) -> bool:
    return line.endswith(b"\n") and bool(selected_lines(line, selection))


def _pack_run(tarball: _Tarball, run: RunFolder, selection: Selection) -> list[str]:
    """Pack the ledger's events, and the output of orchestrator and workers: not evidence, and redacted only here."""
    printed = [(run.path / "orchestrator.log", "orchestrator.log", ORCHESTRATOR)]
    printed += [(path, f"worker_logs/{path.name}", WORKER) for path in sorted(run.worker_logs.glob("*.log"))]
    printed += [(path, f"jobs/{path.name}", SLURM) for path in sorted(run.job_logs.glob(f"{run.job_name}*"))]
    untimed = []
    for path, name, component in printed:
        whole_run = component == ORCHESTRATOR or (component == SLURM and not selection.trials)
        if not selection.takes_component(component) or not (whole_run or selection.takes_trial(path.name)):
            continue
        if path.is_file() and selection.has_times():
            untimed.append(name)
        elif path.is_file():
            text = redact_keys(path.read_bytes().decode("utf-8", "surrogateescape"))
            tarball.add(name, text.encode("utf-8", "surrogateescape").splitlines(keepends=True))
    if selection.takes_component(ORCHESTRATOR) and run.events.is_file():
        with run.events.open("rb") as file:
            tarball.add("events.jsonl", (line for line in file if _is_selected_event(line, selection)))
    return untimed


def _is_selected_event(line: bytes, selection: Selection) -> bool:
    try:
        event = RunEvent.model_validate_json(line)
    except ValueError:
        return False
    return selection.takes_time(event.time) and (event.trial_id is None or selection.takes_trial(event.trial_id))


def prune(workspace: WorkspaceFolder, older_than_s: float, *, dry_run: bool = False) -> PrunedLogs:
    """Remove old logs of workers, orchestrators, Slurm, servers, and monitors. Logs of trials are evidence and stay."""
    before_s = time.time() - older_than_s
    old = [path for path in _prunable(workspace) if max(item.lstat().st_mtime for item in _files(path)) < before_s]
    in_use = _open_files(workspace.state) if old else set()
    gone = [path for path in old if not any(place == path or path in place.parents for place in in_use)]
    files = [item for path in gone for item in _files(path) if item.is_file() and not item.is_symlink()]
    size = sum(item.lstat().st_size for item in files)
    for path in gone if not dry_run else []:
        try:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        except OSError as error:
            raise unwritable(path, error) from error
    return PrunedLogs(removed=[str(path.relative_to(workspace.root)) for path in gone], size=size, dry_run=dry_run)


def _prunable(workspace: WorkspaceFolder) -> Iterator[Path]:
    for run_id in list_runs(workspace):
        run = workspace.run(run_id)
        if Ledger(run).owner() is None:
            yield from sorted(run.worker_logs.glob("*.log"))
            yield from run.path.glob("orchestrator.log")
            yield from sorted(run.services.glob("*/logs"))
            if _is_over(Ledger(run)):
                yield from sorted(run.job_logs.glob(f"{run.job_name}*"))
    yield from sorted(workspace.services.glob("*/logs"))
    yield from sorted(path for path in (workspace.state / "monitors").glob("*") if path.is_dir())


def _is_over(ledger: Ledger) -> bool:
    """Return whether no job of the run can be in a queue: on a cluster, a run has no owner process on this machine."""
    last = ""
    for event in ledger.events():
        last = event.event if event.event in ("started", "resumed", "finished", "interrupted") else last
    return last in ("finished", "interrupted")


def log_retention_s(workspace: WorkspaceFolder) -> float:
    """Return how long the site keeps logs, in seconds. Raise BenchError if it does not set that."""
    site = places.site(workspace)
    if site.keep_logs is None:
        hint = "give --older-than 30d, or write keep_logs: 30d into site.yaml"
        raise BenchError(f"site '{site.site}' does not say how long logs are kept", hint)
    return site.keep_logs


def _files(path: Path) -> list[Path]:
    return [path, *path.rglob("*")] if path.is_dir() and not path.is_symlink() else [path]


def _open_files(below: Path) -> set[Path]:
    """Return the files below a folder that a visible process has open: a quiet service may not write for weeks."""
    from benchhouse.processes.tree import all_pids

    paths: set[Path] = set()
    home = below.resolve()
    for pid in all_pids():
        try:
            links = [Path(f"/proc/{pid}/fd/{name}").readlink() for name in os.listdir(f"/proc/{pid}/fd")]  # noqa: PTH208
        except OSError:
            continue
        paths |= {below / link.relative_to(home) for link in links if home in link.parents}
    return paths
