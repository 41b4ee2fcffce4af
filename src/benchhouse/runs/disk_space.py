"""Whether the results of a plan fit where they will lie: guessed from earlier trials, held against room and quotas."""

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from benchhouse.evidence.folder import read_manifest
from benchhouse.evidence.manifest import Manifest
from benchhouse.runs.preparation import Prepared
from benchhouse.schema.errors import BenchError, Exit
from benchhouse.schema.layout import TrialFolder, WorkspaceFolder
from benchhouse.schema.quantities import show_bytes
from benchhouse.sites.storage import Room, rooms

_BLOCK = 4096
_SAMPLE = 32
_LEAST = (40 << 10, 10)  # bytes and files of the emptiest trial there can be
_SMALL = (32 << 20, 2000)  # a run below both is not worth asking the filesystem for


@dataclass(frozen=True)
class Need:
    """What a number of trials will take, on disk: likely, and at least."""

    trials: int
    size: int
    files: int
    least_size: int
    least_files: int
    basis: str

    def text(self) -> str:
        return f"about {show_bytes(self.size)} in {self.files:,} files"


def needed(workspace: WorkspaceFolder, prepared: Prepared, trials: int) -> Need:
    """From trials of this scenario, else of this experiment; else the least that any trial takes."""
    sizes = [_size_of(folder) for folder in islice(_earlier(workspace, prepared), _SAMPLE)]
    if sizes:
        size, files = (sum(item[at] for item in sizes) / len(sizes) for at in (0, 1))
        least = min(item[0] for item in sizes), min(item[1] for item in sizes)
        basis = f"as {len(sizes)} earlier trials" if len(sizes) > 1 else "as one earlier trial"
    else:
        (size, files), least, basis = _LEAST, _LEAST, "at least: there is no earlier trial here"
    return Need(trials, round(size * trials), round(files * trials), least[0] * trials, least[1] * trials, basis)


def _earlier(workspace: WorkspaceFolder, prepared: Prepared) -> Iterator[Manifest]:
    scenario, experiment = prepared.plan.scenario.scenario, prepared.plan.experiment.name
    own = list(islice(_sealed(workspace.results / scenario), _SAMPLE))
    if own:
        yield from (manifest for _, manifest in own)
        return
    for home in _folders(workspace.results):
        folder = next(_sealed(home), None)  # a scenario has one experiment: one folder tells whether it is this one
        if folder and _experiment(folder[0]) == experiment:
            yield from (manifest for _, manifest in islice(_sealed(home), _SAMPLE))


def _sealed(home: Path) -> Iterator[tuple[TrialFolder, Manifest]]:
    for path in _folders(home):
        folder = TrialFolder(path)
        try:
            yield folder, read_manifest(folder)
        except (OSError, ValueError):
            continue  # unfinished, or damaged: `bench verify` tells


def _folders(path: Path) -> Iterator[Path]:
    try:
        with os.scandir(path) as entries:
            yield from (Path(entry.path) for entry in entries if entry.name[0] != "." and entry.is_dir())
    except OSError:
        return


def _experiment(folder: TrialFolder) -> str:
    try:
        return str(json.loads(folder.spec.read_bytes())["experiment"]["name"])
    except (OSError, ValueError, KeyError, TypeError):
        return ""


def _size_of(manifest: Manifest) -> tuple[int, int]:
    """Bytes and files on disk: whole blocks, the folders, and the manifest itself."""
    folders = {parent for name in manifest.files for parent in Path(name).parents}
    blocks = sum(-(-entry.bytes // _BLOCK) for entry in manifest.files.values())
    return (blocks + len(folders) + 1) * _BLOCK, len(manifest.files) + len(folders) + 1


def is_small(need: Need) -> bool:
    return need.size < _SMALL[0] and need.files < _SMALL[1]


def tightest(need: Need, found: list[Room]) -> Room:
    """The one that is filled first."""

    def share(room: Room) -> float:
        size = need.size / max(room.size, 1) if room.size is not None else 0.0
        return max(size, need.files / max(room.files, 1) if room.files is not None else 0.0)

    return max(found, key=share)


def check_room(workspace: WorkspaceFolder, prepared: Prepared, trials: int) -> str:
    """Raises BenchError where the trials can't fit even if each is as small as the smallest; else a warning or ''."""
    need = needed(workspace, prepared, trials)
    if is_small(need):
        return ""
    found = rooms(workspace.results, prepared.site)
    for room in found:
        if _over(need.least_size, room.size) or _over(need.least_files, room.files):
            raise BenchError(
                f"the results can't fit: {trials:,} trials need {need.text()} ({need.basis}); "
                f"there is room for {_left(room)} ({room.basis})",
                "make room (bench logs prune), choose another folder (bench -C DIR), or plan fewer trials",
                Exit.TRIAL_FAILED,
            )
    room = tightest(need, found)
    if _over(need.size, room.size) or _over(need.files, room.files):
        return f"the results may not fit: {need.text()} ({need.basis}), room for {_left(room)} ({room.basis})"
    return ""


def _over(need: int, most: int | None) -> bool:
    return most is not None and need > most


def _left(room: Room) -> str:
    size = show_bytes(room.size) if room.size is not None else ""
    files = f"{room.files:,} files" if room.files is not None else ""
    return " and ".join(filter(None, (size, files)))


def room_text(workspace: WorkspaceFolder, prepared: Prepared) -> str:
    """For people: what the results will take, and what is left for them now."""
    need = needed(workspace, prepared, prepared.plan.trial_count)
    room = tightest(need, rooms(workspace.results, prepared.site))
    return f"{need.text()} ({need.basis}); {_left(room)} left ({room.basis})"
