"""Export results for other tools: `bench export`."""

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from benchhouse.catalog.entries import entries, load_object, plug
from benchhouse.evidence.writing import now, replacing
from benchhouse.processes.durable import put_in_place, sync_tree
from benchhouse.processes.owned_names import sweep_temporaries, temporary_name
from benchhouse.schema.errors import BenchError, Exit, unwritable
from benchhouse.schema.exported import (
    DocumentExporter,
    ExportedRun,
    Exporter,
    FolderExporter,
    PacketExporter,
    StoreExporter,
)

if TYPE_CHECKING:
    from benchhouse.api.workspace import Workspace

GROUP = "exporters"
MARK = "benchhouse.json"
"""File in an exported folder that records what was exported, and marks the folder as replaceable."""


@dataclass(frozen=True)
class Export:
    """The result of `bench export`."""

    kind: str
    subject: str
    """The run, or the claim of the packet."""
    where: str
    """File, folder, or store; empty if the result is only in `text`."""
    text: str
    """The document, if no file was named."""
    points: int
    known: int
    """Number of points that the store already had."""
    left_out: tuple[str, ...]
    """Anything that is not a valid value or has no place in the format."""


@dataclass(frozen=True)
class Published:
    """Facts that only the publisher of a packet knows."""

    licence: str = ""
    url: str = ""


def exporters() -> dict[str, Exporter]:
    """Return all installed exporters, by kind."""
    return {entry.name: load_object(entry.object) for entry in entries(GROUP)}


def export(
    workspace: "Workspace", subject: str, kind: str, output: str | None, published: Published, *, force: bool
) -> Export:
    """Export a run or packet. Raises if there is nothing to export, or if the output exists and may not be replaced."""
    exporter: Exporter = plug(GROUP, kind)
    if isinstance(exporter, PacketExporter):
        return _export_packet(exporter, Path(subject), kind, output, published, force=force)
    if published != Published():
        raise BenchError(f"--licence and --url are told of a packet; {kind} is of a run", "leave them out")
    run = _gather(workspace, subject)
    made = Export(kind, run.run_id, "", "", len(run.points), 0, run.left_out)
    if isinstance(exporter, DocumentExporter):
        document = exporter.render(run)
        return _deliver(made, document.text, document.left_out, output, force=force)
    if isinstance(exporter, StoreExporter):
        sent = exporter.send(run, output or "")
        left_out = (*made.left_out, *sent.left_out)
        return replace(made, where=sent.where, points=sent.made, known=sent.known, left_out=left_out)
    return _export_folder(exporter, run, made, output, force=force)


def _gather(workspace: "Workspace", subject: str) -> ExportedRun:
    from benchhouse.results.exported_run import gather

    (run_id,) = workspace.collected(subject)
    run = gather(workspace.folder, run_id)
    if run is None:
        raise BenchError(f"run {run_id} has no trial in the tables", f"see: bench status {run_id}", Exit.TRIAL_FAILED)
    if not run.points:
        why = "; ".join(run.left_out)
        raise BenchError(f"run {run_id} has no good number: {why}", f"see: bench status {run_id}", Exit.TRIAL_FAILED)
    return run


def _export_folder(
    exporter: FolderExporter, run: ExportedRun, made: Export, output: str | None, *, force: bool
) -> Export:
    folder = Path(output or f"{made.kind}-{run.run_id}")
    _refuse_existing(folder, folder.is_dir() and (folder / MARK).is_file(), force=force)
    mark = {"kind": made.kind, "run_id": run.run_id, "benchhouse": run.benchhouse}
    left_out = list[str]()

    def fill(temporary: Path) -> None:
        left_out.extend(exporter.write(run, temporary))
        (temporary / MARK).write_text(json.dumps(mark) + "\n", encoding="utf-8")

    try:
        _put_folder(folder, fill)
    except OSError as error:
        raise unwritable(folder, error) from error
    return replace(made, where=str(folder), left_out=(*made.left_out, *left_out))


def _put_folder(folder: Path, fill: Callable[[Path], None]) -> None:
    """Fill a folder under a temporary name, sync it, and rename it, so that it is never incomplete. The replaced
    folder is removed last."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    sweep_temporaries(folder.parent)
    temporary = folder.with_name(temporary_name(folder.name))
    older = folder.with_name(temporary_name(f"{folder.name}.older"))
    try:
        temporary.mkdir()
        fill(temporary)
        sync_tree(temporary)
        if folder.exists():
            folder.rename(older)
        try:
            put_in_place(temporary, folder)
        except OSError:
            if older.exists():
                older.rename(folder)
            raise
    finally:
        for path in (temporary, older):
            shutil.rmtree(path, ignore_errors=True)


def _export_packet(
    exporter: PacketExporter, path: Path, kind: str, output: str | None, published: Published, *, force: bool
) -> Export:
    from benchhouse.claims.exported_packet import describe

    packet = describe(path, published.licence, published.url, now())
    document = exporter.render(packet)
    made = Export(kind, packet.claim.id, "", "", 1, 0, ())
    return _deliver(made, document.text, document.left_out, output, force=force)


def _deliver(made: Export, text: str, left_out: tuple[str, ...], output: str | None, *, force: bool) -> Export:
    made = replace(made, left_out=(*made.left_out, *left_out))
    if output is None:
        return replace(made, text=text)
    path = Path(output)
    _refuse_existing(path, path.is_file(), force=force)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        sweep_temporaries(path.parent)
        with replacing(path) as temporary:
            temporary.write_text(text, encoding="utf-8")
    except OSError as error:
        raise unwritable(path, error) from error
    return replace(made, where=str(path))


def _refuse_existing(path: Path, replaceable: bool, *, force: bool) -> None:
    if not os.path.lexists(path) or (force and replaceable):
        return
    if not replaceable:
        raise BenchError(f"{path} is there, and no earlier export", "give another name, or remove it yourself")
    raise BenchError(f"{path} is there already", "give another name, or replace it: --force")
