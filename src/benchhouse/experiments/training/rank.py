"""The program around one rank, on whichever node: `python -I -S rank.py FOLDER COMMAND...`, or `rank.py --clock`.

It starts the rank's command, writes down who it is, keeps what it prints with the moment of each arrival, and how it
ended. It needs the standard library alone; `launch.py` reads what it wrote, which is whole at any moment.
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
import tempfile
import time
from pathlib import Path
from typing import Any

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
    libc.prctl(_DIE_WITH_PARENT, signal.SIGKILL)  # else a launcher that is killed leaves its ranks behind
    with contextlib.ExitStack() as stack:
        facts = stack.enter_context((folder / f"{name}.jsonl").open("wb", buffering=0))
        log = stack.enter_context(Path(order["logs"], f"{name}.log").open("wb", buffering=0))
        times = stack.enter_context((folder / f"{name}.times").open("wb", buffering=0))

        def write(**items: Any) -> None:
            facts.write(json.dumps(items).encode() + b"\n")

        # Whoever ends the ranks tells the whole group of processes, so that the command hears it by itself.
        signal.signal(signal.SIGTERM, lambda *_: write(told_to_end_s=time.monotonic()))
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        here = order["node"] == who["node"]
        cwd = order["cwd"] or (None if here else stack.enter_context(tempfile.TemporaryDirectory()))
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
        handle = os.pidfd_open(process.pid)
        _pump(process.stdout.fileno(), handle, log.fileno(), times.fileno())
        ended_s = time.monotonic()
        waited_s, cpu_s = _scheduled(process.pid)
        code = process.wait()
        write(exit_code=code, ended_s=ended_s, cpu_s=cpu_s, waited_for_cpu_s=waited_s)
    if code < 0:  # for whoever started us, in the same way
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if code != -signal.SIGKILL:
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    return code


def _variables(order: dict[str, Any]) -> None:
    """Of torch where srun started us; none of a Slurm task where the launcher is another one."""
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
    device = visible[local % len(visible)] if visible else str(local) if Path("/dev/nvidiactl").exists() else None
    return {
        "rank": rank,
        "local_rank": local,
        "attempt": int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")),
        "node": own_node(),
        "cores": cores,
        "device": device,
    }


def own_node() -> str:
    return os.environ.get("SLURMD_NODENAME") or os.uname().nodename


def _pump(output: int, ended: int, log: int, times: int) -> None:
    """What is printed, until the command ends; a child of it may hold the other end, so then nothing is waited for."""
    poll, reads = select.poll(), True
    os.set_blocking(output, False)
    poll.register(output, select.POLLIN)
    poll.register(ended, select.POLLIN)
    while True:
        over = ended in {handle for handle, _ in poll.poll()}
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


def _write(file: int, data: bytes) -> None:
    """A disk that is full loses the log, never the rank."""
    with contextlib.suppress(OSError):
        os.write(file, data)


def _scheduled(pid: int) -> tuple[float | None, float | None]:
    """Seconds that its first thread waited for a core, and had one."""
    try:
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        had, waited, _ = Path(f"/proc/{pid}/schedstat").read_text().split()
    except (OSError, ValueError):
        return None, None
    return int(waited) / 1e9, int(had) / 1e9


def answer_clock() -> int:
    """Both clocks of this node, for every line of standard input."""
    for _ in sys.stdin.buffer:
        os.write(1, b"%.9f %.9f\n" % (time.monotonic(), time.time()))
    return 0


if __name__ == "__main__":
    sys.exit(answer_clock() if sys.argv[1] == "--clock" else main(Path(sys.argv[1]), sys.argv[2:]))
