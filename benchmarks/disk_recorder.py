"""Every change that a command and its children make below a folder, in order, and the folder after a power cut.

`disk_calls.c`, a library for LD_PRELOAD, writes a log entry for each change. `Disk` replays the entries up to a cut:

- The content of a file is guaranteed up to the last fsync or fdatasync of this file.
- The entries of a folder are guaranteed up to the last fsync of this folder. The fsync of a new file does not guarantee
  its entry. A rename between two folders is one step, guaranteed by the fsync of either folder.
- All other changes are lost. With `dice`, a part of them survives: the first unsynced changes of each folder, and of
  each file either none, all, the first writes with the last one torn, or its length with zeros for its content. The
  real file systems ext4 and XFS can leave each of these.

Changes through a shared mapping can't be recorded; only the shared index of SQLite (`-shm`) has one, and SQLite makes
it again. `unseen` compares the replay of the whole log with the real folder, so that a change that bypasses
the library is reported.
"""

import ctypes
import hashlib
import shutil
import struct
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

_SOURCE = Path(__file__).with_name("disk_calls.c")
_ENTRY = struct.Struct("<Ic3xIIIIQqq")
_SECTOR_BYTES = 512
SPACE, SYNC = 0, 1


class _Control(ctypes.Structure):
    """`struct control` of disk_calls.c."""

    _fields_ = (
        ("lock", ctypes.c_byte * 40),
        ("counts", ctypes.c_int64 * 2),
        ("fail_at", ctypes.c_int64 * 2),
        ("fail_count", ctypes.c_int64),
        ("error", ctypes.c_int64),
    )


def why_not() -> str:
    """Why calls can't be recorded here; empty if they can."""
    return "" if shutil.which("gcc") else "gcc is not installed: apt-get install gcc"


@dataclass(frozen=True)
class Call:
    """One change. `kind` is the letter that disk_calls.c gives to it."""

    kind: str
    pid: int
    path: str
    other: str
    inode: int
    offset: int
    length: int
    data: bytes


class Recorder:
    """Runs commands whose changes below `folder` are recorded, or whose n-th change fails."""

    def __init__(self, folder: Path, home: Path) -> None:
        self.folder, self._home = folder.resolve(), home.resolve()
        self._home.mkdir(exist_ok=True)
        self._library = self._home / "disk_calls.so"
        if not self._library.exists():
            command = ["gcc", "-O2", "-shared", "-fPIC", "-o", str(self._library), str(_SOURCE), "-lpthread"]
            subprocess.run(command, check=True)
        self.log, self._shared = self._home / "calls.log", self._home / "control"

    def environment(self, fail_at: int = 0, kind: int = SPACE, fail_count: int = 1, error: int = 0) -> dict[str, str]:
        """Start a new log; returns the variables that a command needs to be recorded.

        The `fail_at`-th call that needs space (or that syncs, by `kind`), counted from 1 over all processes, fails
        with `error`, and so do the following ones up to `fail_count`.
        """
        control = _Control()
        _initialize_lock(control)
        control.fail_at[kind], control.fail_count, control.error = fail_at, fail_count, error
        self._shared.write_bytes(bytes(control))
        self.log.write_bytes(b"")
        return {
            "LD_PRELOAD": str(self._library),
            "BENCH_DISK_ROOT": str(self.folder),
            "BENCH_DISK_LOG": str(self.log),
            "BENCH_DISK_CONTROL": str(self._shared),
        }

    def counts(self) -> tuple[int, int]:
        """How many calls needed space, and how many synced, since the last `environment`."""
        control = _Control.from_buffer_copy(self._shared.read_bytes())
        return control.counts[SPACE], control.counts[SYNC]

    def calls(self) -> list[Call]:
        """The changes since the last `environment`, in their order."""
        return list(_read(self.log.read_bytes()))


def _initialize_lock(control: _Control) -> None:
    """A mutex that processes share and that survives the death of its owner."""
    library = ctypes.CDLL(None)
    attributes = (ctypes.c_byte * 64)()
    library.pthread_mutexattr_init(attributes)
    library.pthread_mutexattr_setpshared(attributes, 1)
    library.pthread_mutexattr_setrobust(attributes, 1)
    library.pthread_mutex_init(ctypes.byref(control), attributes)


def _read(log: bytes) -> Iterator[Call]:
    at = 0
    while at < len(log):
        size, kind, pid, path_size, other_size, _, inode, offset, length = _ENTRY.unpack_from(log, at)
        path_at = at + _ENTRY.size
        other_at = path_at + path_size
        path, other = log[path_at:other_at].decode(), log[other_at : other_at + other_size].decode()
        data = log[other_at + other_size : at + size]
        yield Call(kind.decode(), pid, path, other, inode, offset, length, data)
        at += size


@dataclass
class _Object:
    """A file, folder or symbolic link, and the index of the last sync of it before the cut."""

    kind: str
    mode: int = 0o644
    content: bytearray = field(default_factory=bytearray)
    target: str = ""
    entries: "dict[str, _Object]" = field(default_factory=dict)
    synced: int = -1


@dataclass(frozen=True)
class _Step:
    """A change with the objects that it is about; `item` is put into `folder` as `name`, or its content changes."""

    index: int
    call: Call
    item: "_Object | None"
    source: "_Object | None" = None  # the folder that loses the entry `source_name`
    source_name: str = ""
    folder: "_Object | None" = None
    name: str = ""


class Disk:
    """The files below a folder as they are before any call of a log; `at` returns how they are after a cut."""

    def __init__(self, folder: Path) -> None:
        self._folder = str(folder.resolve())
        self._start = _load(Path(self._folder), {})

    def restore(self, calls: Sequence[Call], dice: Random | None = None) -> str:
        """Put the folder on the real disk into the state after a power cut that follows `calls`; a digest of it."""
        top = self._replay(calls, dice)
        path = Path(self._folder)
        shutil.rmtree(path, ignore_errors=True)
        _store(top, path)
        return _digest(top)

    def everything(self, calls: Sequence[Call]) -> dict[str, bytes]:
        """The content of each file, by its path, if every call has its full effect."""
        last = Call("S", 0, self._folder, "", 0, 0, 0, b"")
        return dict(_contents(self._replay([*calls, last], None), ""))

    def _replay(self, calls: Sequence[Call], dice: Random | None) -> _Object:
        top, steps, objects = self._resolve(calls)
        _Survivors(steps, objects, dice).apply()
        return top

    def _resolve(self, calls: Sequence[Call]) -> tuple[_Object, list[_Step], list[_Object]]:
        """Which objects each call is about, and which syncs hold; the objects still are as at the start."""
        by_inode: dict[int, _Object] = {}
        top = _copy(self._start, by_inode)
        objects = list(by_inode.values())
        now: dict[int, dict[str, _Object]] = {id(item): dict(item.entries) for item in objects}
        steps: list[_Step] = []

        def find(path: str) -> tuple[_Object, str]:
            *parents, name = path.removeprefix(self._folder).strip("/").split("/")
            folder = top
            for part in parents:
                folder = now[id(folder)][part]
            return folder, name

        def add(call: Call, item: _Object) -> _Object:
            objects.append(item)
            by_inode[call.inode] = item
            now[id(item)] = {}
            return item

        for index, call in enumerate(calls):
            match call.kind:
                case "C" | "M" | "Y":
                    folder, name = find(call.path)
                    kind = {"C": "file", "M": "folder", "Y": "link"}[call.kind]
                    item = add(call, _Object(kind, call.length & 0o7777, target=call.other))
                    now[id(folder)][name] = item
                    steps.append(_Step(index, call, item, folder=folder, name=name))
                case "W" | "T":
                    if call.inode in by_inode:
                        steps.append(_Step(index, call, by_inode[call.inode]))
                case "R":
                    source, source_name = find(call.path) if call.path else (None, "")
                    target, name = find(call.other) if call.other else (None, "")
                    moved = now[id(source)].pop(source_name, None) if source else add(call, _Object("file"))
                    if target is not None and moved is not None:
                        now[id(target)][name] = moved
                    steps.append(_Step(index, call, moved, source, source_name, target, name))
                case "L":
                    target, name = find(call.other)
                    linked = by_inode.get(call.inode) or add(call, _Object("file"))
                    now[id(target)][name] = linked
                    steps.append(_Step(index, call, linked, folder=target, name=name))
                case "U":
                    source, source_name = find(call.path)
                    now[id(source)].pop(source_name, None)
                    steps.append(_Step(index, call, None, source, source_name))
                case "F":
                    if call.path == self._folder:
                        top.synced = index
                    elif call.inode in by_inode:
                        by_inode[call.inode].synced = index
                case "S":
                    for each in objects:
                        each.synced = index
        return top, steps, objects


class _Survivors:
    """Applies the steps that outlive the cut."""

    def __init__(self, steps: Sequence[_Step], objects: Sequence[_Object], dice: Random | None) -> None:
        self._steps, self._dice = steps, dice
        self._cut_off: set[int] = set()  # folders and files of which no later unsynced change survives
        self._fate = {id(item): dice.choice(("none", "all", "torn", "zeros")) for item in objects} if dice else {}

    def apply(self) -> None:
        for step in self._steps:
            folders = [item for item in (step.source, step.folder) if item is not None]
            if folders:
                if any(item.synced > step.index for item in folders) or self._survives(folders):
                    _move(step)
            elif step.item is not None:
                if step.item.synced > step.index:
                    _change(step.item, step.call, step.call.data)
                elif self._dice:
                    self._change_unsynced(step.item, step.call, self._dice)

    def _survives(self, folders: Sequence[_Object]) -> bool:
        """Whether a change of entries that was not synced survives; the first that is lost takes the later ones."""
        if self._dice is None:
            return False
        if self._cut_off.isdisjoint(map(id, folders)) and self._dice.random() < 0.7:
            return True
        self._cut_off.update(map(id, folders))
        return False

    def _change_unsynced(self, item: _Object, call: Call, dice: Random) -> None:
        match self._fate.get(id(item), "none"):
            case "all":
                _change(item, call, call.data)
            case "zeros":
                _change(item, call, bytes(len(call.data)) if call.offset >= len(item.content) else b"")
            case "torn" if id(item) not in self._cut_off:
                if dice.random() < 0.4:
                    self._cut_off.add(id(item))
                    if call.kind == "W":
                        most = len(call.data) // _SECTOR_BYTES
                        _change(item, call, call.data[: dice.randint(0, most) * _SECTOR_BYTES])
                else:
                    _change(item, call, call.data)


def _move(step: _Step) -> None:
    if step.source is not None:
        step.source.entries.pop(step.source_name, None)
    if step.folder is not None and step.item is not None:
        step.folder.entries[step.name] = step.item


def _change(item: _Object, call: Call, data: bytes) -> None:
    if call.kind == "T":
        item.content = item.content[: call.length].ljust(call.length, b"\0")
    elif data:
        if len(item.content) < call.offset:
            item.content = item.content.ljust(call.offset, b"\0")
        item.content[call.offset : call.offset + len(data)] = data


def _load(path: Path, by_inode: dict[int, _Object]) -> _Object:
    about = path.lstat()
    if about.st_ino in by_inode:
        return by_inode[about.st_ino]
    if path.is_symlink():
        item = _Object("link", target=str(path.readlink()))
    elif path.is_dir():
        item = _Object("folder", about.st_mode & 0o7777)
        item.entries = {child.name: _load(child, by_inode) for child in path.iterdir()}
    else:
        item = _Object("file", about.st_mode & 0o7777, bytearray(path.read_bytes()))
    by_inode[about.st_ino] = item
    item.synced = about.st_ino  # only until `_copy` has read it
    return item


def _copy(item: _Object, by_inode: dict[int, _Object]) -> _Object:
    inode = item.synced
    if inode not in by_inode:
        made = by_inode[inode] = _Object(item.kind, item.mode, bytearray(item.content), item.target)
        made.entries = {name: _copy(child, by_inode) for name, child in item.entries.items()}
    return by_inode[inode]


def _store(item: _Object, path: Path) -> None:
    stored: dict[int, Path] = {}

    def put(item: _Object, path: Path) -> None:
        if item.kind == "folder":
            path.mkdir()
            for name, child in item.entries.items():
                put(child, path / name)
            path.chmod(item.mode)
        elif item.kind == "link":
            path.symlink_to(item.target)
        elif id(item) in stored:
            path.hardlink_to(stored[id(item)])
        else:
            stored[id(item)] = path
            path.write_bytes(item.content)
            path.chmod(item.mode)

    put(item, path)


def _digest(item: _Object) -> str:
    """Equal for two folders with equal names, content and modes."""
    parts = [item.kind, str(item.mode), hashlib.sha256(item.content).hexdigest(), item.target]
    parts += [f"{name!r} {_digest(child)}" for name, child in sorted(item.entries.items())]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def _contents(item: _Object, path: str) -> Iterator[tuple[str, bytes]]:
    if item.kind == "file":
        yield path, bytes(item.content)
    for name, child in item.entries.items():
        yield from _contents(child, f"{path}/{name}".lstrip("/"))


def unseen(disk: Disk, calls: Sequence[Call], folder: Path) -> list[str]:
    """Files that differ between a replay of all calls and the real folder; those with a shared mapping are left out."""
    expected = disk.everything(calls)
    real = {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and not path.is_symlink()
    }
    left_out = {call.path for call in calls if call.kind == "P"}
    return sorted(
        name
        for name in expected.keys() | real.keys()
        if expected.get(name) != real.get(name) and f"{folder}/{name}" not in left_out
    )
