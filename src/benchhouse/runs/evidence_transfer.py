"""Evidence in a store that outlives the workspace: push, pull, and verify, on S3 or in a folder, in one layout."""

import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from benchhouse.evidence import deposits, store
from benchhouse.evidence.folder import list_sealed
from benchhouse.evidence.store import Carried, DiskShelf, ObjectStore, Pointer
from benchhouse.http.s3_bucket import S3Refused, open_bucket
from benchhouse.runs.s3_object_store import S3Shelf
from benchhouse.schema.errors import BenchError, NotFoundError
from benchhouse.schema.layout import TrialFolder, WorkspaceFolder

if TYPE_CHECKING:
    from benchhouse.evidence.verify import Damage

LARGEST_FETCH = 256 << 20
"""Most bytes of a trial that is fetched on demand, to be displayed."""

Report = Callable[[Carried], None]
Sealed = list[tuple[str | None, TrialFolder]]


def push(
    workspace: WorkspaceFolder, address: str, runs: Sequence[str], *, endpoint: str = "", create: bool = False,
    dry_run: bool = False, report: Report | None = None,
) -> list[Carried]:  # fmt: skip
    """Put the sealed folders of these runs (all, if none are named) into the store."""
    sealed = _sealed(workspace, runs)
    if not sealed:
        raise BenchError("there is no sealed trial to push", "See: bench status")
    with _opened(address, endpoint, create=create and not dry_run) as shelf:
        carried = _reported(store.push(shelf, [folder for _, folder in sealed], dry_run=dry_run), report)
    if not dry_run:
        _note_deposits(workspace, shelf, sealed, carried)
    return carried


def _note_deposits(workspace: WorkspaceFolder, shelf: ObjectStore, sealed: Sealed, carried: Sequence[Carried]) -> None:
    """Record the runs that are in the store as a whole, and add that to their lineage."""
    from benchhouse.warehouse.ingest import refresh

    home = shelf.name if "://" in shelf.name else Path(shelf.name).as_uri()
    refused = {item.folder for item in carried if item.what == "refused"}
    lacking = {run_id for run_id, folder in sealed if f"{folder.path.parent.name}/{folder.path.name}" in refused}
    whole = sorted({run_id for run_id, _ in sealed if run_id} - lacking)
    refresh(workspace, deposits.note(workspace, "store", {run_id: f"{home}/trials/{run_id}" for run_id in whole}))


def push_folders(
    workspace: WorkspaceFolder, address: str, endpoint: str, folders: Iterable[TrialFolder], report: Report
) -> None:
    """Put these sealed folders into the store."""
    with _opened(address, endpoint) as shelf:
        carried = _reported(store.push(shelf, folders), report)
    _note_deposits(workspace, shelf, _sealed(workspace, ()), carried)


def pull(
    workspace: WorkspaceFolder, address: str, runs: Sequence[str], *, endpoint: str = "", dry_run: bool = False,
    report: Report | None = None,
) -> list[Carried]:  # fmt: skip
    """Fetch the folders of these runs (all, if none are named) and collect them; an unreadable one has the reason."""
    from benchhouse.warehouse.ingest import collect

    with _opened(address, endpoint) as shelf:
        wanted = _wanted(shelf, runs)
        carried = _reported(store.pull(shelf, workspace.results, wanted, dry_run=dry_run), report)
    if not dry_run:
        new: dict[str, list[Path]] = {}
        for item in carried:
            if item.what == "new" and ".attempt-" not in item.folder:
                new.setdefault(item.run_id, []).append(workspace.results / item.folder)
        unread = [line for run_id, folders in new.items() for line in collect(workspace, run_id, folders).unread]
        carried = [_with_reason(item, f"{workspace.results / item.folder}: ", unread) for item in carried]
    return carried


def fetch(workspace: WorkspaceFolder, address: str, endpoint: str, run_id: str, trial: str, manifest: str) -> None:
    """Fetch the folder of one trial, whose manifest has this digest. Tables that name it already have its numbers."""
    with _opened(address, endpoint) as shelf:
        wanted = [item for item in store.pointers(shelf, [run_id]) if (item.folder, item.manifest) == (trial, manifest)]
        if not wanted:
            hint = "whoever made it puts it there: bench warehouse share"
            raise NotFoundError(f"the evidence of trial {trial} is not here, and not in {shelf.name}", hint)
        (planned,) = store.pull(shelf, workspace.results, wanted, dry_run=True)
        if planned.size > LARGEST_FETCH:
            raise BenchError(
                f"the evidence of trial {trial} has {planned.size / 2**20:,.0f} MiB, more than is fetched by itself",
                f"bench evidence pull {shelf.name} --run {run_id}",
            )
        (carried,) = store.pull(shelf, workspace.results, wanted)
    if carried.what == "refused" and not TrialFolder(workspace.results / carried.folder).sealed:
        raise BenchError(f"the evidence of trial {trial} did not come from {shelf.name}: {carried.reason}")


def _with_reason(carried: Carried, start: str, unread: Sequence[str]) -> Carried:
    reason = next((line.removeprefix(start) for line in unread if line.startswith(start)), None)
    return carried if reason is None else carried.model_copy(update={"reason": reason})


def last_run(address: str, scenario: str, *, other_than: str, endpoint: str = "") -> str | None:
    """Return the newest run of a scenario in a store except `other_than`; None if there is none."""
    if "://" not in address and not Path(address).expanduser().is_dir():
        return None
    with _opened(address, endpoint) as shelf:
        runs = {item.run_id for item in store.pointers(shelf) if item.scenario == scenario}
    return max(runs - {other_than}, default=None)


def verify(address: str, runs: Sequence[str], *, endpoint: str = "") -> tuple[int, int, "list[Damage]"]:
    """Hash every object of the store, or of these runs. Return the number of trials, the bytes read, and the damage."""
    with _opened(address, endpoint) as shelf:
        checked = list(store.check(shelf, _wanted(shelf, runs)))
    return len(checked), sum(size for _, size, _ in checked), [item for _, _, damage in checked for item in damage]


def _wanted(shelf: ObjectStore, runs: Sequence[str]) -> list[Pointer]:
    pointers = store.pointers(shelf, runs or None)
    known = {pointer.run_id for pointer in pointers}
    if missing := [run for run in runs if run not in known]:
        raise BenchError(f"{shelf.name}: has nothing of run {', '.join(missing)}", "Without --run, all that is there.")
    if not pointers:
        raise BenchError(f"{shelf.name}: there is no evidence", f"Put some there: bench evidence push {shelf.name}")
    return pointers


def _sealed(workspace: WorkspaceFolder, runs: Sequence[str]) -> Sealed:
    """Return sealed folders, including set-aside attempts, with the run that their manifest names."""
    from benchhouse.runs.selection import find_run

    folders: Sealed = []
    for folder in map(TrialFolder, list_sealed(workspace.results)):
        try:
            run_id = str(json.loads(folder.manifest.read_bytes())["run_id"])
        except (OSError, ValueError, KeyError, TypeError):
            run_id = None  # its check reports the fault
        folders.append((run_id, folder))
    here = {run_id for run_id, _ in folders}
    wanted = {run if run in here else find_run(workspace, run) for run in runs}
    return [(run_id, folder) for run_id, folder in folders if not wanted or run_id in wanted]


def _reported(carried: Iterator[Carried], report: Report | None) -> list[Carried]:
    done = []
    for item in carried:
        done.append(item)
        if report:
            report(item)
    return done


@contextmanager
def _opened(address: str, endpoint: str, *, create: bool = False) -> Iterator[ObjectStore]:
    """Yield the store at `s3://bucket/prefix`, or in a folder."""
    if "://" not in address:
        yield DiskShelf(Path(address).expanduser().resolve())
        return
    bucket, prefix = open_bucket(address, endpoint, os.environ)
    with closing(S3Shelf(bucket, address.rstrip("/"), prefix)) as shelf:
        try:
            shelf.make_sure(create)
        except S3Refused as refused:
            hint = "Make it: bench evidence push ... --create" if refused.kind == "http_404" else "Is --endpoint right?"
            raise BenchError(f"bucket {bucket.where}: {refused.message}", hint) from refused
        yield shelf
