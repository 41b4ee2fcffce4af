"""The program around one rank, on any node: `python -I -S rank.py FOLDER COMMAND...`, or `rank.py --clock`.

It starts the command of the rank and writes its identity, its output with the time of each arrival, and how it ended.
It needs only the standard library. `launch.py` reads its files, which are complete at any moment.
"""

import contextlib
import ctypes
import json
import os
import resource
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ASK = "ask"
"""The file in the folder that is touched to make all ranks report where they hang."""
_LOOK_S = 1.0  # between two checks for that file
_ANSWER_S = 2.0  # time in which an aborted command must end
_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG
_BLOCK = 1 << 16
_SLURM = {
    "RANK": "SLURM_PROCID", "LOCAL_RANK": "SLURM_LOCALID", "WORLD_SIZE": "SLURM_NTASKS", "GROUP_RANK": "SLURM_NODEID",
}  # fmt: skip
_OF_A_TASK = ("SLURM_PROCID", "SLURM_LOCALID", "SLURM_NTASKS", "SLURM_NPROCS", "SLURM_NTASKS_PER_NODE")


def main(folder: Path, command: list[str]) -> int:
    order: dict[str, Any] = json.loads((folder / "order.json").read_text())
    _variables(order)
    who = _identity(order)
    name = f"rank-{who['rank']}.attempt-{who['attempt']}"
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_DIE_WITH_PARENT, signal.SIGKILL)  # otherwise a launcher that is killed leaves its ranks behind
    with contextlib.ExitStack() as stack:
        log = stack.enter_context(Path(order["logs"], f"{name}.log").open("wb", buffering=0))
        facts = stack.enter_context((folder / f"{name}.jsonl").open("wb", buffering=0))  # opened after its log
        times = stack.enter_context((folder / f"{name}.times").open("wb", buffering=0))

        def write(**items: Any) -> None:
            facts.write(json.dumps(items).encode() + b"\n")

        # A signal that ends the ranks goes to the whole process group, so the command receives it directly.
        signal.signal(signal.SIGTERM, lambda *_: write(told_to_end_s=time.monotonic()))
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        here = order["node"] == who["node"]
        cwd = order["cwd"] or (None if here else _empty_folder(folder, name))
        try:
            process = subprocess.Popen(
                command,
                cwd=cwd,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                preexec_fn=lambda: libc.prctl(_DIE_WITH_PARENT, signal.SIGKILL),
            )
        except OSError as error:
            write(**who, not_started=f"{error.filename or command[0]}: {error.strerror}")
            return 127
        write(**who, pid=process.pid, mono=time.monotonic(), utc=time.time())
        assert process.stdout is not None
        handle, oom_kills = os.pidfd_open(process.pid), _oom_kills()
        question = _Question(folder / ASK, process.pid, write)
        _pump(process.stdout.fileno(), handle, (log.fileno(), times.fileno()), question)
        ended_s = time.monotonic()
        waited_s, cpu_s = _scheduled(process.pid)
        code, oom_kills = process.wait(), _oom_kills() - oom_kills
        write(exit_code=code, ended_s=ended_s, cpu_s=cpu_s, waited_for_cpu_s=waited_s, oom_kills=oom_kills)
        question.let_others_answer()
    if code < 0:  # end the same way, for the process that started us
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if code != -signal.SIGKILL:
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    return code


def _empty_folder(folder: Path, name: str) -> Path:
    """Create the folder. The process that started the training removes it, whatever happens to this one."""
    path = folder / f"{name}.work"
    path.mkdir(exist_ok=True)
    return path


def _variables(order: dict[str, Any]) -> None:
    """Set the variables of torch if srun started this process, otherwise remove Slurm's; add those of the rank."""
    if "RANK" not in os.environ and "SLURM_PROCID" in os.environ:
        for name, slurm in _SLURM.items():
            os.environ[name] = os.environ[slurm]
    else:
        for name in _OF_A_TASK:
            os.environ.pop(name, None)
    os.environ.setdefault("LOCAL_WORLD_SIZE", str(order["ranks_per_node"]))
    numbers = {"rank": "RANK", "local_rank": "LOCAL_RANK", "world": "WORLD_SIZE", "node": "GROUP_RANK"}
    places = {place: os.environ.get(name, "0") for place, name in numbers.items()}
    for name, value in order["rank_environment"].items():
        for place, number in places.items():
            value = value.replace(f"{{{place}}}", number)
        os.environ[name] = value


def _identity(order: dict[str, Any]) -> dict[str, Any]:
    rank, local = int(os.environ["RANK"]), int(os.environ["LOCAL_RANK"])
    cores = sorted(os.sched_getaffinity(0))
    if order["affinity"] == "cores" and (each := len(cores) // order["ranks_per_node"]):
        cores = cores[local * each : (local + 1) * each]
        os.sched_setaffinity(0, cores)
    visible = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
    return {
        "rank": rank,
        "local_rank": local,
        "attempt": int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")),
        "node": node_of_rank(),
        "cores": cores,
        "device": device_of(local, visible or [path.name[6:] for path in _cards()]),
    }


def _cards() -> list[Path]:
    return sorted(Path("/dev").glob("nvidia[0-9]*"), key=lambda path: int(path.name[6:]))


def device_of(local: int, visible: list[str]) -> str | None:
    """Return the card that a rank uses by convention, or the only one; None if that cannot be determined."""
    if len(visible) == 1:
        return visible[0]
    return visible[local] if local < len(visible) else None


def node_of_rank() -> str:
    return os.environ.get("BENCHHOUSE_NODE") or os.environ.get("SLURMD_NODENAME") or os.uname().nodename


class _Question:
    """Finds where the command hangs: aborts it, upon which Python prints its stacks, then kills it if needed."""

    def __init__(self, path: Path, pid: int, write: Callable[..., None]) -> None:
        self._path, self._pid, self._write = path, pid, write
        self._touched = self._touched_ns()  # time of a request in an earlier attempt
        self._asked_s, self._look_at_s = 0.0, time.monotonic() + _LOOK_S

    def look(self) -> None:
        now_s = time.monotonic()
        if now_s < self._look_at_s:
            return
        self._look_at_s = now_s + _LOOK_S
        if self._asked_s and now_s > self._asked_s + _ANSWER_S:
            os.kill(self._pid, signal.SIGKILL)
        elif not self._asked_s and self._touched_ns() != self._touched:
            self._asked_s, pid = now_s, _python_of(self._pid)
            self._write(told_to_end_s=now_s, asked_s=now_s, state=_state(pid))
            with contextlib.suppress(OSError):
                _, most = resource.prlimit(pid, resource.RLIMIT_CORE)
                resource.prlimit(pid, resource.RLIMIT_CORE, (0, most))
                os.kill(pid, signal.SIGABRT)

    def let_others_answer(self) -> None:
        """Wait: the process that started us may end the other ranks as soon as we end."""
        if self._asked_s:
            time.sleep(max(0.0, self._asked_s + _LOOK_S + _ANSWER_S - time.monotonic()))

    def _touched_ns(self) -> int:
        try:
            return self._path.stat().st_mtime_ns
        except OSError:
            return 0


def _python_of(pid: int) -> int:
    """Return the Python process of the command, which a script may have started; the command if that is unclear."""
    at = pid
    with contextlib.suppress(OSError, ValueError):
        while "python" not in str(Path(f"/proc/{at}/exe").readlink()):
            (child,) = Path(f"/proc/{at}/task/{at}/children").read_text().split()
            at = int(child)
        return at
    return pid


def _state(pid: int) -> str:
    """Return the letter of its state in /proc, such as T for a stopped process; empty if it cannot be read."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return ""


def _pump(output: int, ended: int, files: tuple[int, int], question: _Question) -> None:
    """Copy the output until the command ends. Do not wait longer: a child process may still hold the other end."""
    (log, times), poll, reads = files, select.poll(), True
    os.set_blocking(output, False)
    poll.register(output, select.POLLIN)
    poll.register(ended, select.POLLIN)
    while True:
        over = ended in {handle for handle, _ in poll.poll(_LOOK_S * 1e3)}
        while reads:
            try:
                block = os.read(output, _BLOCK)
            except BlockingIOError:
                break
            _write(log, block)
            _write(times, b"%.6f %d\n" % (time.monotonic(), len(block)))
            if not block:
                poll.unregister(output)
                reads = False
        if over:
            return
        question.look()


def _write(file: int, data: bytes) -> None:
    """Write to a log. A full disk loses the log but never the rank."""
    with contextlib.suppress(OSError):
        os.write(file, data)


def _scheduled(pid: int) -> tuple[float | None, float | None]:
    """Return the seconds that its first thread waited for a core and had one; None for both if unknown."""
    try:
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        had, waited, _ = Path(f"/proc/{pid}/schedstat").read_text().split()
    except (OSError, ValueError):
        return None, None
    return int(waited) / 1e9, int(had) / 1e9


def _oom_kills() -> int:
    """Return how many processes of our cgroup the kernel has killed for lack of memory."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        mount, name = ("", "memory.events") if not controllers else ("memory", "memory.oom_control")
        if controllers in ("", "memory"):
            for folder in (Path("/sys/fs/cgroup", mount, path.lstrip("/")), Path("/sys/fs/cgroup", mount)):
                with contextlib.suppress(OSError, ValueError):
                    counts = dict(item.split() for item in (folder / name).read_text().splitlines())
                    if "oom_kill" in counts:
                        return int(counts["oom_kill"])
    return 0


def answer_clock() -> int:
    """Print both clocks of this node for every line of standard input."""
    for _ in sys.stdin.buffer:
        os.write(1, b"%.9f %.9f\n" % (time.monotonic(), time.time()))
    return 0


if __name__ == "__main__":
    sys.exit(answer_clock() if sys.argv[1] == "--clock" else main(Path(sys.argv[1]), sys.argv[2:]))
