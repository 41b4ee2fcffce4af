"""The cage that holds a trial to its limits, with cgroup v2, cgroup v1, or rlimits, depending on the machine."""

import contextlib
import errno
import math
import os
import re
import resource
import signal
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from benchhouse.processes.owned_names import is_left_behind, owned_name, sweep_scratch
from benchhouse.processes.process_identity import LEFTOVERS
from benchhouse.processes.tree import alive, send, tree_cpu_s

if TYPE_CHECKING:
    from benchhouse.schema.resources import Limits

_PERIOD_US = 100_000
_PIECE_BYTES = 16 << 10
_WORKER_LEAF = "benchhouse-worker"


def _read(path: str) -> str:
    """Return the file's text; empty if unreadable. Paths are strings: as objects they take a tenth of a short trial."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        content = b""
        while piece := os.read(handle, _PIECE_BYTES):
            content += piece
        return content.decode("utf-8", "surrogateescape")
    except OSError:
        return ""
    finally:
        os.close(handle)


def _write(path: str, text: str) -> None:
    """Write once to a control file, which must exist already because the kernel creates it."""
    fd = os.open(path, os.O_WRONLY)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)


def _counters(path: str) -> dict[str, int]:
    pairs = (line.split() for line in _read(path).splitlines())
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdigit()}


def _number(path: str) -> int | None:
    text = _read(path).strip()
    return int(text) if text.isdigit() else None


def _seconds(count: int | None, per_s: float) -> float | None:
    return None if count is None else count / per_s


class _Mount(NamedTuple):
    is_v2: bool
    root: str
    point: Path
    options: frozenset[str]

    def carries(self, controllers: set[str]) -> bool:
        return (not self.is_v2 and controllers <= self.options) if controllers else self.is_v2

    def folder_of(self, path: str) -> Path | None:
        """Return the folder of a cgroup; None if it is outside of the part of the hierarchy that a container mounts."""
        inside = os.path.relpath(path, self.root)
        return None if inside.startswith("..") else self.point / inside


@dataclass(frozen=True)
class CgroupFS:
    """The cgroups of the calling process: its folder in each v1 hierarchy, and in the v2 hierarchy."""

    v1: Mapping[str, Path] = field(default_factory=dict)
    v2: Path | None = None

    @classmethod
    def detect(cls, proc: Path = Path("/proc")) -> "CgroupFS":
        mounts: list[_Mount] = []
        for line in _read(f"{proc}/self/mountinfo").splitlines():
            left, _, right = line.partition(" - ")
            kind, _, options = right.split(maxsplit=2)
            if kind in ("cgroup", "cgroup2"):
                root, point = (_unescape(text) for text in left.split()[3:5])
                mounts.append(_Mount(kind == "cgroup2", root, Path(point), frozenset(options.split(","))))
        v1: dict[str, Path] = {}
        v2: Path | None = None
        for line in _read(f"{proc}/self/cgroup").splitlines():
            _, names, path = line.split(":", 2)
            controllers = set(names.split(",")) if names else set()
            for mount in mounts:
                folder = mount.folder_of(path) if mount.carries(controllers) else None
                if folder is None or not folder.is_dir():
                    continue
                if controllers:
                    v1 |= dict.fromkeys(controllers, folder)
                else:
                    v2 = folder
        return cls(v1, v2)

    def make(self, folder: Path) -> None:
        folder.mkdir()

    def homes(self) -> list[Path]:
        """Return the folders below which this process creates its cages."""
        return [*dict.fromkeys([*self.v1.values(), *([self.v2_home] if self.v2_home else [])])]

    @cached_property
    def v2_home(self) -> Path | None:
        """This process's v2 cgroup, or its parent if that cgroup is only the leaf that holds the worker."""
        if self.v2 is None or (self.v2.name != _WORKER_LEAF and not _delegated(self.v2.parent)):
            return self.v2
        return self.v2.parent


@lru_cache(maxsize=1)
def _here(memberships: str) -> CgroupFS:
    """Return the worker's cgroups, cached between trials; the mounts are read again if the worker was moved."""
    return CgroupFS.detect()


def _unescape(text: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), text)


def _delegated(folder: Path) -> bool:
    """Whether systemd delegated this cgroup, which it marks with an attribute."""
    for name in ("user.delegate", "trusted.delegate"):
        with contextlib.suppress(OSError):
            if os.getxattr(folder, name) == b"1":
                return True
    return False


class Cage:
    """The limits of one trial: `build` in the worker, `enter` in the forked child; then `usage`, `over_cpu`, `kill`,
    `remove`."""

    def __init__(self, limits: "Limits") -> None:
        self.limits = limits
        self.enforced: dict[str, str] = {}
        self.not_enforced: list[str] = []  # limits that nothing on this machine can enforce, and why
        """For each requested limit: what enforces it, or "none (reason)"."""
        self.folders: dict[str, Path] = {}  # "v2" and v1 controllers -> this cage's folder there
        self._v2_controllers: set[str] = set()
        self._reasons: dict[str, str] = {}
        self._rlimits: dict[int, tuple[int, int]] = {resource.RLIMIT_CORE: (0, 0)}
        self._cores: set[int] = set()
        self._cpu_before_s = 0.0
        self._around: tuple[tuple[Path | None, str], ...] = ()
        self._oom_kills_before = 0
        self._counted_before: dict[str, float | int | None] = {}

    @classmethod
    def build(cls, name: str, limits: "Limits", fs: CgroupFS | None = None) -> "Cage":
        """Build the cage. Never raises if permissions are missing: `enforced` shows what could not be created."""
        cage = cls(limits)
        cage._cpu_before_s = tree_cpu_s()
        fs = fs or _here(_read("/proc/self/cgroup"))
        cage._around = ((fs.v1.get("memory"), "memory.oom_control"), (fs.v2, "memory.events"))
        cage._oom_kills_before = cage._oom_kills_around()
        cage._make_folders(owned_name(name), fs)
        if limits.wall is not None:
            cage.enforced["wall"] = "worker timer"
        if limits.cpu is not None:
            cage._limit_cpu_seconds(limits.cpu)
        if limits.memory is not None:
            cage._limit_memory(limits.memory)
        if limits.cpus is not None:
            cage._limit_cpus(limits.cpus)
        # RLIMIT_NPROC is not a fallback: it counts all of the user's processes, and none of root's
        if limits.processes is not None:
            pids_max = ("pids.max", str(limits.processes))
            how = cage._try("pids", pids_max, pids_max)
            cage.enforced["pids"] = how or f"none ({cage._reason('pids')})"
            if how is None:
                cage.not_enforced.append(f"processes: {limits.processes} ({cage._reason('pids')})")
        return cage

    # -- building ------------------------------------------------------------------------------------------------

    def _make_folders(self, name: str, fs: CgroupFS) -> None:
        wanted = {"memory"}  # to read its peak, even without a limit
        wanted |= {"cpu"} if self.limits.cpus is not None else set()
        wanted |= {"pids"} if self.limits.processes is not None else set()
        if fs.v2_home is not None:
            self._make_v2(fs, fs.v2_home, name, wanted)
        missing = wanted - self._v2_controllers
        if "v2" not in self.folders:
            missing |= {"cpuacct", "freezer"}
        for controller in sorted(missing):
            if controller not in fs.v1:
                self._reasons.setdefault(controller, f"no {controller} cgroup here")
                continue
            folder = fs.v1[controller] / name
            try:
                if folder not in self.folders.values():  # cpu and cpuacct are often one hierarchy
                    fs.make(folder)
                self.folders[controller] = folder
            except OSError as error:
                self._reasons[controller] = f"v1 {controller} cgroup: {error.strerror}"

    def _make_v2(self, fs: CgroupFS, home: Path, name: str, wanted: set[str]) -> None:
        # The child can move only if its user may write the membership of the common ancestor.
        if not os.access(home / "cgroup.procs", os.W_OK):
            self._reasons |= dict.fromkeys(wanted, "the v2 cgroup is not delegated to this user")
            return
        for controller in sorted(wanted & set(_read(f"{home}/cgroup.controllers").split())):
            try:
                _enable(home, controller)
                self._v2_controllers.add(controller)
            except OSError as error:
                why = "other processes live in it" if error.errno == errno.EBUSY else error.strerror
                self._reasons[controller] = f"{controller} can't be switched on below the v2 cgroup: {why}"
        try:
            fs.make(home / name)
        except OSError as error:
            self._v2_controllers.clear()
            self._reasons |= dict.fromkeys(wanted, f"v2 cgroup: {error.strerror}")
            return
        self.folders["v2"] = home / name

    def _try(self, controller: str, v2: tuple[str, str], v1: tuple[str, str]) -> str | None:
        """Write the limit to the controller's cgroup. Return which file holds it; None, with a reason recorded, on
        failure."""
        in_v2 = controller in self._v2_controllers
        folder = self.folders.get("v2" if in_v2 else controller)
        if folder is None:
            return None
        file, value = v2 if in_v2 else v1
        try:
            _write(f"{folder}/{file}", value)
        except OSError as error:
            self._reasons[controller] = f"{file}: {error.strerror}"
            return None
        return f"cgroup {'v2' if in_v2 else 'v1'} {file}"

    def _reason(self, controller: str) -> str:
        return self._reasons.get(controller, "no cgroup")

    def _limit_cpu_seconds(self, cpu_s: float) -> None:
        # Only the backstop: it does not cover the tree, and an experiment can outlive the child that the limit killed.
        soft = math.ceil(cpu_s) + 1
        self._rlimits[resource.RLIMIT_CPU] = (soft, soft + 1)
        source = "cgroup v2 cpu.stat" if "v2" in self.folders else "cgroup v1 cpuacct.usage"
        if self._cgroup_cpu_s() is None:
            source = "/proc"
        self.enforced["cpu_s"] = f"RLIMIT_CPU + tree accounting ({source})"

    def _limit_memory(self, size: int) -> None:
        how = self._try("memory", ("memory.max", str(size)), ("memory.limit_in_bytes", str(size)))
        if how is None:
            self._rlimits[resource.RLIMIT_AS] = (size, size)
            self.enforced["memory"] = f"RLIMIT_AS, each process by itself ({self._reason('memory')})"
            return
        swap = ("v2", "memory.swap.max", "0") if "v2" in how else ("memory", "memory.memsw.limit_in_bytes", str(size))
        try:
            _write(f"{self.folders[swap[0]]}/{swap[1]}", swap[2])
            self.enforced["memory"] = f"{how} (swap included)"
        except OSError:
            self.enforced["memory"] = f"{how} (swap not limited)"

    def _limit_cpus(self, cpus: float) -> None:
        quota = max(1000, round(cpus * _PERIOD_US))
        how = self._try("cpu", ("cpu.max", f"{quota} {_PERIOD_US}"), ("cpu.cfs_quota_us", str(quota)))
        if how is None:
            # Neighboring workers start at different cores, so that they don't all crowd onto the first.
            have = sorted(os.sched_getaffinity(0))
            first = os.getpid() % len(have)
            count = min(len(have), max(1, math.ceil(cpus)))
            self._cores = set((have + have)[first : first + count])
            cores = ",".join(map(str, sorted(self._cores)))
            how = f"sched_setaffinity to cores {cores} ({self._reason('cpu')})"
        self.enforced["cpus"] = how

    # -- the child -----------------------------------------------------------------------------------------------

    def enter(self) -> None:
        """Enter the cage in the forked child, before the experiment. On OSError the limits don't hold: do not
        continue."""
        for folder in dict.fromkeys(self.folders.values()):
            _write(f"{folder}/cgroup.procs", str(os.getpid()))
        if self._cores:
            os.sched_setaffinity(0, self._cores)
        for kind, (soft, hard) in self._rlimits.items():
            ceiling = resource.getrlimit(kind)[1]
            if ceiling != resource.RLIM_INFINITY:
                soft, hard = min(soft, ceiling), min(hard, ceiling)
            resource.setrlimit(kind, (soft, hard))

    # -- the worker ----------------------------------------------------------------------------------------------

    def _cgroup_cpu_s(self) -> float | None:
        if "v2" in self.folders:
            return _seconds(_counters(f"{self.folders['v2']}/cpu.stat").get("usage_usec"), 1e6)
        return _seconds(_number(f"{self.folders['cpuacct']}/cpuacct.usage"), 1e9) if "cpuacct" in self.folders else None

    def over_cpu(self, limit_s: float) -> bool:
        """Whether the tree, running processes included, exceeded this CPU time; reads one file or walks /proc."""
        used_s = self._cgroup_cpu_s()
        return (tree_cpu_s() - self._cpu_before_s if used_s is None else used_s) > limit_s

    def count_anew(self) -> None:
        """Restart the counters of `usage` and `oom_kills`; the memory peak still covers the whole lifetime."""
        self._counted_before = self._usage() | {"peak_memory_bytes": 0}
        self._oom_kills_before = self._oom_kills_around()

    def usage(self) -> dict[str, float | int | None]:
        """Return what the cgroups counted, None if none did. Memory includes page cache; call this before `remove`."""
        used, before = self._usage(), self._counted_before
        return {key: value - (before.get(key) or 0) if value is not None else None for key, value in used.items()}

    def _usage(self) -> dict[str, float | int | None]:
        peak: int | None = None
        cpu_s = throttled_s = None
        if (v2 := self.folders.get("v2")) is not None:
            stat = _counters(f"{v2}/cpu.stat")
            cpu_s, throttled_s = _seconds(stat.get("usage_usec"), 1e6), _seconds(stat.get("throttled_usec"), 1e6)
            peak = _number(f"{v2}/memory.peak")
        if "cpuacct" in self.folders:
            cpu_s = self._cgroup_cpu_s()
        if (memory := self.folders.get("memory")) is not None:
            peak = _number(f"{memory}/memory.max_usage_in_bytes")
        if (cpu := self.folders.get("cpu")) is not None:
            throttled_s = _seconds(_counters(f"{cpu}/cpu.stat").get("throttled_time"), 1e9)
        oom_kills = self._oom_kills_inside()
        return {"peak_memory_bytes": peak, "oom_kills": oom_kills, "cpu_s": cpu_s, "throttled_s": throttled_s}

    def oom_kills(self) -> int:
        """Return the OOM kills in the cage, or if unknown in the cgroups around it, where a batch system limits its
        jobs."""
        counted = self._oom_kills_inside()
        if counted is None:
            return self._oom_kills_around() - self._oom_kills_before
        return counted - int(self._counted_before.get("oom_kills") or 0)

    def _oom_kills_inside(self) -> int | None:
        if (memory := self.folders.get("memory")) is not None:
            return _counters(f"{memory}/memory.oom_control").get("oom_kill")
        v2 = self.folders.get("v2")
        return _counters(f"{v2}/memory.events").get("oom_kill") if v2 is not None else None

    def _oom_kills_around(self) -> int:
        files = [f"{folder}/{name}" for folder, name in self._around if folder]
        return sum(_counters(file).get("oom_kill", 0) for file in files)

    def kill(self, give_up_s: float = 5.0) -> bool:
        """Send SIGKILL to all members until none is left. Return False if some outlive `give_up_s`. Nothing is
        reaped."""
        return _kill_members(list(dict.fromkeys(self.folders.values())), give_up_s)

    def remove(self) -> None:
        """Remove the cage's folders if they are empty. Idempotent, never raises."""
        for folder in set(self.folders.values()):
            _remove_folder(folder)


def _enable(home: Path, controller: str) -> None:
    if controller in _read(f"{home}/cgroup.subtree_control").split():
        return
    try:
        _write(f"{home}/cgroup.subtree_control", f"+{controller}")
    except OSError as error:
        # A v2 cgroup has either processes or controllers for its children. If the worker is alone, it moves to a leaf.
        if error.errno != errno.EBUSY or _members(home, deep=False) != {os.getpid()}:
            raise
        (home / _WORKER_LEAF).mkdir(exist_ok=True)
        _write(f"{home}/{_WORKER_LEAF}/cgroup.procs", str(os.getpid()))
        _write(f"{home}/cgroup.subtree_control", f"+{controller}")


def _has_folders(folder: Path) -> bool:
    """Whether the cgroup has subfolders: the link count is two plus one per folder, and listing would cost far more."""
    try:
        return os.stat(folder).st_nlink != 2  # noqa: PTH116
    except OSError:
        return False


def _inner(folder: Path) -> Iterator[Path]:
    """Yield the folder and the ones that an experiment created in it, innermost first."""
    for path, _, _ in os.walk(folder, topdown=False):
        yield Path(path)


def _members(folder: Path, *, deep: bool = True) -> set[int]:
    places = _inner(folder) if deep and _has_folders(folder) else [folder]
    return {int(pid) for place in places for pid in _read(f"{place}/cgroup.procs").split() if pid.isdigit()} - {0}


def _kill_members(folders: list[Path], give_up_s: float) -> bool:
    until = time.monotonic() + give_up_s
    while True:
        living = {pid for folder in folders for pid in _members(folder) if alive(pid, None)} - {os.getpid()}
        if not living:
            return True
        if time.monotonic() > until:
            return False
        for folder in folders:
            with contextlib.suppress(OSError):
                _write(f"{folder}/cgroup.kill", "1")  # v2 since Linux 5.14
        _freeze(folders, frozen=True)  # no process can fork while the list is read and its members are killed
        for pid in {pid for folder in folders for pid in _members(folder)}:
            send(pid, None, signal.SIGKILL)
        _freeze(folders, frozen=False)  # in v1, killed processes only die after they are thawed
        time.sleep(0.001)


def _freeze(folders: list[Path], *, frozen: bool) -> None:
    for folder in folders:
        with contextlib.suppress(OSError):
            _write(f"{folder}/cgroup.freeze", str(int(frozen)))
        with contextlib.suppress(OSError):
            _write(f"{folder}/freezer.state", "FROZEN" if frozen else "THAWED")
            for _ in range(50 if frozen else 0):
                if _read(f"{folder}/freezer.state").strip() == "FROZEN":
                    break
                time.sleep(0.001)


def _remove_folder(folder: Path) -> None:
    with contextlib.suppress(OSError):
        os.rmdir(folder)  # noqa: PTH106 - nearly always this is all
        return
    for attempt in range(20):
        with contextlib.suppress(OSError):
            for inner in _inner(folder):
                inner.rmdir()
        if not folder.exists() or _members(folder):
            return
        time.sleep(0.001 * attempt)  # the last member may still be exiting


def sweep_leftovers() -> None:
    """Kill and remove the cages, and remove the scratch folders, of workers that were killed."""
    sweep_cages(LEFTOVERS)
    sweep_scratch(LEFTOVERS)


def sweep_cages(prefix: str, fs: CgroupFS | None = None) -> None:
    """Kill and remove cages whose names start with `prefix` and whose worker is gone.

    This searches below the caller's own cgroups, where `build` puts cages, and in a Slurm job also below those of other
    jobs. Cages of another pid namespace are left alone.
    """
    fs = fs or CgroupFS.detect()
    left: dict[str, list[Path]] = {}
    for home in {place for own in fs.homes() for place in _neighbours(own)}:
        with contextlib.suppress(OSError):
            for entry in home.iterdir():
                if is_left_behind(entry.name, prefix):
                    left.setdefault(entry.name, []).append(entry)
    for folders in left.values():
        _kill_members(folders, give_up_s=2.0)
        for folder in folders:
            _remove_folder(folder)


def _neighbours(home: Path) -> Iterator[Path]:
    yield home
    if above := next((folder for folder in home.parents if folder.name.startswith("slurm")), None):
        for folder, _, _ in os.walk(above):
            yield Path(folder)
