"""Write, seal, and read trial folders. Whenever a process is killed, a folder is either whole or not sealed."""

import contextlib
import csv
import io
import os
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import ConfigDict, TypeAdapter

from benchhouse.evidence import older
from benchhouse.evidence.manifest import Manifest, describe_file, walk
from benchhouse.evidence.writing import now, write_fresh, write_text
from benchhouse.processes.durable import put_in_place, sync
from benchhouse.processes.owned_names import remove_tree
from benchhouse.schema.csv_text import csv_cells
from benchhouse.schema.layout import TrialFolder
from benchhouse.schema.measurement import Measurement, MetricsFile
from benchhouse.schema.secrets import REDACTED
from benchhouse.schema.trial import Meta, Outcome, TrialSpec

_PIECE_BYTES = 256 << 10
MOST_FILES = 100_000
MOST_BYTES = 200 * 10**9
_MOST_DEPTH = 100
_LOGS = ("trial.jsonl", "stdout.log", "stderr.log")
_PACKAGES = TypeAdapter(dict[str, str], config=ConfigDict(defer_build=True))
CSV_COLUMNS = (
    "trial_id", "run_id", "metric", "stat", "value", "unit", "direction", "n", "scope", "window",
    "error_bound", "valid",
)  # fmt: skip


def write_metrics_csv(path: Path, spec: TrialSpec, measurements: Iterable[Measurement]) -> None:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(CSV_COLUMNS)
    for row in measurements:
        bound = "" if row.error_bound is None else repr(row.error_bound)
        writer.writerow(
            csv_cells([spec.trial_id, spec.run_id, row.metric, row.stat, repr(row.value), row.unit,
                       row.direction or "", row.n, row.scope, row.window, bound, str(row.valid).lower()])
        )  # fmt: skip
    write_fresh(path, text.getvalue())


class LinkedFile:
    """A file that is the same in every trial folder that a process seals, and on disk only once.

    Each folder has it under its own name and in its manifest, as a hard link to that of the previous folder. If that
    one is gone, has changed, or can't be linked to (another file system, too many links), the folder gets its own copy.
    """

    def __init__(self) -> None:
        self._sealed: Path | None = None

    def write(self, path: Path, text: str) -> None:
        if self._sealed is not None:
            with contextlib.suppress(OSError, UnicodeDecodeError):
                os.link(self._sealed, path)
                if path.read_text(encoding="utf-8") == text:
                    return
        write_fresh(path, text)

    def sealed_in(self, path: Path) -> None:
        """Set the path of the sealed file that later ones are linked to."""
        self._sealed = path


@dataclass(frozen=True)
class Tidied:
    """The changes that `tidy` made, and why it removed everything that the experiment left; empty if it did not."""

    changed: list[str]
    refused: str = ""


def tidy(folder: Path, most_files: int = MOST_FILES, most_bytes: int = MOST_BYTES) -> Tidied:
    """Make a folder fit to be sealed, whatever the experiment left in it.

    Links, pipes, sockets, and devices are removed: they hold no evidence, and reading a pipe may never end. Names that
    are not UTF-8 are changed, because a manifest can't contain them. Files that the owner may not read are made
    readable. If the experiment left more than `most_files` or `most_bytes`, or replaced the folder, everything in it
    except the logs is removed, so that the time and memory to seal a folder stay bounded.
    """
    # A folder that is missing is not made again: the run may have withdrawn it from a worker that it gave up.
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        folder.unlink()
        folder.mkdir()
        return Tidied([], "it replaced its trial folder; a trial may only change files in it")
    changed: list[str] = []
    if refused := _tidy(folder, changed, most_files, most_bytes):
        _remove_all_but_logs(folder, most_bytes // 4)
    return Tidied(changed, refused)


def _remove_all_but_logs(folder: Path, most_bytes: int) -> None:
    """Keep only the captured logs, each up to a size, because the experiment may have written there, too."""
    logs = TrialFolder(folder).logs
    if logs.is_dir():
        for entry in os.scandir(logs):
            if entry.name in _LOGS and entry.is_file(follow_symlinks=False) and entry.stat().st_size <= most_bytes:
                os.rename(entry.path, folder.with_name(f"{folder.name}.{entry.name}"))  # noqa: PTH104
    for entry in list(os.scandir(folder)):
        remove_tree(Path(entry.path)) if entry.is_dir(follow_symlinks=False) else os.unlink(entry.path)  # noqa: PTH108
    logs.mkdir()
    for name in _LOGS:
        with contextlib.suppress(FileNotFoundError):
            folder.with_name(f"{folder.name}.{name}").rename(logs / name)


def _tidy(folder: Path, changed: list[str], most_files: int, most_bytes: int) -> str:
    """Return why the content of the folder is refused as a whole; empty if it is not."""
    trial = TrialFolder(folder)
    never_folders = {
        os.fspath(path)
        for path in (
            trial.spec, trial.effective_config, trial.meta, trial.metrics, trial.metrics_csv, trial.packages,
            trial.raw_evidence, trial.manifest, trial.services, trial.samples, trial.histograms,
        )
    }  # fmt: skip
    written_later = os.fspath(trial.telemetry)
    files = size = 0
    waiting = [(os.fspath(folder), 0)]
    while waiting:
        inside, depth = waiting.pop()
        if depth > _MOST_DEPTH:
            return f"it left folders nested deeper than {_MOST_DEPTH}; pack them into an archive"
        entries = []
        with os.scandir(inside) as found:
            for entry in found:
                files += 1
                if files > most_files:
                    limit = f"{most_files:,} files, the limit"
                    return f"it left more than {limit}; raise limits.files, or pack them into an archive"
                entries.append(entry)
        for entry in entries:
            is_folder, is_file = entry.is_dir(follow_symlinks=False), entry.is_file(follow_symlinks=False)
            if not is_folder and not is_file:
                os.unlink(entry.path)  # noqa: PTH108 - see `walk`
                changed.append(f"{_shown(entry, folder)} (not a plain file, removed)")
                continue
            if entry.path == written_later or (is_folder and entry.path in never_folders):
                remove_tree(Path(entry.path)) if is_folder else os.unlink(entry.path)  # noqa: PTH108
                changed.append(f"{entry.name} (the name of a file of the trial itself, removed)")
                continue
            path = entry.path
            size += entry.stat(follow_symlinks=False).st_size
            if is_file and size > most_bytes:
                limit = f"{most_bytes:,} bytes, the limit"
                return f"it left more than {limit} (holes included); raise limits.disk, or remove what is not evidence"
            if not entry.name.isascii() and (name := _as_utf8(entry.name)) != entry.name:
                path = os.fspath(Path(path).rename(Path(path).with_name(name)))
                changed.append(f"{_shown(entry, folder)} (renamed: its name was not UTF-8)")
            wanted = 0o700 if is_folder else 0o400
            mode = os.stat(path).st_mode & 0o777  # noqa: PTH116
            if mode & wanted != wanted:
                os.chmod(path, mode | wanted)  # noqa: PTH101
            if is_folder:
                waiting.append((path, depth + 1))
    return ""


def _as_utf8(name: str) -> str:
    return name.encode("utf-8", "backslashreplace").decode()


def _shown(entry: "os.DirEntry[str]", folder: Path) -> str:
    return _as_utf8(Path(entry.path).relative_to(folder).as_posix())


def blank_secrets(places: Iterable[Path], values: Sequence[str]) -> list[str]:
    """Replace these values in files and in those below folders before sealing. Return the names of changed files.

    Only plain bytes are found: what an experiment compresses or encrypts is its own responsibility.
    """
    secrets = [value.encode("utf-8", "surrogateescape") for value in values]
    changed = []
    paths = [path for place in places for path in (place, *sorted(place.rglob("*")))] if secrets else []
    for path in paths:
        if path.is_file() and not path.is_symlink() and _holds(path, secrets):
            blanked = path.with_name(f".{path.name}.blanked")  # the experiment may have made its file read-only
            _write_blanked(path, blanked, secrets)
            blanked.replace(path)
            changed.append(path.name)
    return changed


def _write_blanked(path: Path, blanked: Path, secrets: Sequence[bytes]) -> None:
    """Copy a file in pieces, with each secret replaced."""
    overlap, before = max(map(len, secrets)) - 1, b""
    with path.open("rb") as file, blanked.open("wb") as out:
        while piece := file.read(_PIECE_BYTES):
            piece = before + piece
            for secret in secrets:
                piece = piece.replace(secret, REDACTED.encode())
            cut = max(len(piece) - overlap, 0)
            out.write(piece[:cut])
            before = piece[cut:]
        out.write(before)


def _holds(path: Path, secrets: Sequence[bytes]) -> bool:
    """Return whether a file holds a secret. Read in pieces: pages of a mapped file count as memory of the trial."""
    overlap, before = max(map(len, secrets)) - 1, b""
    with path.open("rb") as file:
        while piece := file.read(_PIECE_BYTES):
            piece = before + piece
            if any(secret in piece for secret in secrets):
                return True
            before = piece[max(len(piece) - overlap, 0) :]
    return False


def seal(folder: TrialFolder, spec: TrialSpec, outcome: Outcome) -> Path:
    """Write the manifest, move the folder to its final place, and return that place.

    Every file is on disk before the manifest is, and the manifest before the rename: even a power failure leaves a
    whole folder or an unsealed one.
    """
    root = os.fspath(folder.path)
    files, folders = walk(root)
    names = sorted(name for name in files if name != folder.manifest.name)
    entries = {name: describe_file(f"{root}/{name}", sync=True) for name in names}
    for name in folders:
        sync(f"{root}/{name}")
    manifest = Manifest(
        trial_id=spec.trial_id, run_id=spec.run_id, scenario=spec.scenario, outcome=outcome, sealed=now(), files=entries
    ).signed_off()
    write_text(folder.manifest, manifest.text())
    put_in_place(root, spec.final)
    return Path(spec.final)


def withdraw(folder: Path) -> Path | None:
    """Take an unfinished folder away from its worker. Return its new place, or None if there is no folder.

    A worker that was given up may still run, and sealing is a rename, too: one of the two comes too late. Removing
    files in place could instead leave a sealed folder that lacks some.
    """
    taken = folder.with_name(f".{folder.name}.{secrets.token_hex(4)}")
    try:
        return folder.rename(taken)
    except FileNotFoundError:
        return None


def discard(folder: Path) -> None:
    """Remove an unfinished folder if possible; one that is sealed in the meantime stays whole."""
    with contextlib.suppress(OSError):
        if taken := withdraw(folder):
            remove_tree(taken)


def read_spec(folder: TrialFolder) -> TrialSpec:
    return older.read(TrialSpec, folder.spec.read_bytes())


def read_meta(folder: TrialFolder) -> Meta:
    return older.read(Meta, folder.meta.read_bytes())


def read_packages(folder: TrialFolder, meta: Meta) -> dict[str, str]:
    """Return installed distributions and their versions, by name."""
    return packages_of(folder.packages.read_bytes()) if folder.packages.is_file() else meta.packages


def packages_of(content: bytes) -> dict[str, str]:
    """Return the contents of packages.json. Raise ValueError."""
    return _PACKAGES.validate_json(content)


def read_metrics(folder: TrialFolder) -> MetricsFile:
    return older.read(MetricsFile, folder.metrics.read_bytes())


def read_manifest(folder: TrialFolder) -> Manifest:
    return older.read(Manifest, folder.manifest.read_bytes())


def list_sealed(results: Path, scenario: str = "") -> list[Path]:
    """Return every sealed folder below results/, set-aside attempts included, of all scenarios or of one.

    Raise OSError if a folder can't be read: `glob` would treat it as empty.
    """
    homes = [results / scenario] if scenario else list_folder(results)
    return sorted(path for home in homes for path in list_folder(home) if TrialFolder(path).sealed)


def list_folder(folder: Path) -> list[Path]:
    """Return the visible contents of a folder; empty if there is no such folder."""
    try:
        return [path for path in folder.iterdir() if not path.name.startswith(".")]
    except (FileNotFoundError, NotADirectoryError):
        return []


def sealed_outcome(folder: TrialFolder) -> Outcome | None:
    """Return the outcome of a sealed trial, or None if the folder is not sealed."""
    try:
        return read_manifest(folder).outcome
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None
