"""The few calls to Slurm, each with a time limit. They parse text, because Slurm's JSON differs between versions."""

import os
import re
import subprocess
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchhouse.schema.errors import BenchError

ENDED = {"BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED",
         "REVOKED", "TIMEOUT"}  # fmt: skip
WAITING = {"PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "RESV_DEL_HOLD", "SPECIAL_EXIT"}
_UNREACHABLE = re.compile(r"unable to contact|connection refused|timed out|temporarily|unreachable", re.IGNORECASE)
_LONGEST_S = 60.0


class UnreachableError(BenchError):
    """Slurm's controller does not answer now, but may later."""


@dataclass(frozen=True)
class TaskState:
    """What Slurm reports about one array task."""

    state: str
    reason: str = ""
    nodes: str = ""

    def ended(self, job: str) -> str:
        return f"job {job} ended as {self.state}{f' on {self.nodes}' if self.nodes else ''}"


def submit(script: Path) -> str:
    """Submit a script and return the job's id. Raise UnreachableError if it is unknown whether Slurm accepted it."""
    return _call(["sbatch", "--parsable", str(script)]).strip().splitlines()[-1].partition(";")[0]


def check_script(script_text: str) -> None:
    """Raise BenchError if Slurm would refuse such a job."""
    _call(["sbatch", "--test-only"], script_text)


def states(names: Iterable[str]) -> dict[str, TaskState]:
    """Return the tasks of the jobs with these names that Slurm's controller still knows, by `JOB_INDEX`."""
    options = ["--noheader", "--array", "--states=all", f"--name={','.join(names)}", "--format=%i|%T|%r|%N"]
    tasks = {}
    for line in _call(["squeue", *options]).splitlines():
        task, state, rest = line.split("|", 2)
        reason, _, nodes = rest.rpartition("|")
        tasks[task] = TaskState(state, "" if reason == "None" else reason, nodes)
    return tasks


def find(name: str) -> str:
    """Return the id of the job with this name from the controller or the accounting; empty if neither knows it."""
    for task in states([name]):
        return task.partition("_")[0]
    for line in _accounting(["--name", name, "--starttime", "now-30days", "--format=JobID"]):
        return line.partition("_")[0]
    return ""


def recorded(tasks: Collection[str]) -> dict[str, TaskState]:
    """Return the tasks that the controller has forgotten, from the accounting; empty without accounting.

    Tasks of an array that never began share one row there, `JOB_[0-5]`.
    """
    jobs = sorted({task.partition("_")[0] for task in tasks})
    rows: dict[str, TaskState] = {}
    for line in _accounting(["--jobs", ",".join(jobs), "--format=JobID,State,ExitCode,NodeList"]):
        name, state, code, nodes = (*line.split("|"), "", "", "")[:4]
        reason = f"exit code {code}" if code != "0:0" else ""
        rows[name.partition("_[")[0]] = TaskState(state.split()[0] if state else "", reason, nodes)
    return {task: known for task in tasks if (known := rows.get(task) or rows.get(task.partition("_")[0]))}


def cancel(tasks: Sequence[str]) -> None:
    for start in range(0, len(tasks), 500):  # command lines have a length limit
        _call(["scancel", "--quiet", *tasks[start : start + 500]], may_fail=True)


def largest_array() -> int:
    """Return the largest number of tasks per array in this cluster's configuration, or Slurm's own default."""
    config = "\n".join(_lines(["scontrol", "show", "config"]))
    size = re.search(r"MaxArraySize\s*=\s*(\d+)", config)
    return max(1, int(size[1])) if size else 1001


def _accounting(arguments: Sequence[str]) -> list[str]:
    """Return lines of the accounting; empty without accounting, as on many clusters."""
    return _lines(["sacct", "--allocations", "--noheader", "--parsable2", *arguments])


def _lines(command: Sequence[str]) -> list[str]:
    """Return the lines that a command prints; empty if it fails."""
    try:
        return _call(command).splitlines()
    except BenchError:
        return []


def _call(command: Sequence[str], given: str | None = None, *, may_fail: bool = False) -> str:
    try:
        done = subprocess.run(
            command, input=given, capture_output=True, text=True, check=False, timeout=_LONGEST_S, env=_environment()
        )
    except FileNotFoundError as error:
        raise BenchError(
            f"there is no {command[0]} on this machine", "run on a login node of the cluster, or use --executor local"
        ) from error
    except subprocess.TimeoutExpired as error:
        raise UnreachableError(f"{command[0]} did not answer within {_LONGEST_S:g} s") from error
    if done.returncode == 0 or may_fail:
        return done.stdout
    message = done.stderr.strip() or done.stdout.strip() or f"exit code {done.returncode}"
    last = message.splitlines()[-1]
    if _UNREACHABLE.search(message):
        raise UnreachableError(f"Slurm does not answer: {last}")
    raise BenchError(f"{command[0]} refused: {last.removeprefix(f'{command[0]}: ')}", _hint(message.lower()))


def _hint(text: str) -> str:
    """Return what to do about the most common refusals."""
    if "configuration source" in text or "configuration file" in text:
        return "its commands are here, but no cluster: run on a login node, set SLURM_CONF, or use --executor local"
    if "partition" in text:
        partitions = sorted({line.strip("* ") for line in _lines(["sinfo", "--noheader", "--format=%R"])})
        return f"this cluster has: {', '.join(partitions)}" if partitions else "see: sinfo"
    if "account" in text or "qos" in text:
        return "see which are yours: sacctmgr show assoc user=$USER format=account,qos"
    if "node configuration" in text or "memory" in text or "cpu count" in text:
        return "no node has that much: ask for less under resources:, or name another partition; see: sinfo -Nl"
    if "array" in text or "limit" in text:
        return "put several trials into a task, slurm: {pack: N}, or lower max_array or max_jobs in the site profile"
    return "see: bench plan SCENARIO --executor slurm --dry-run"


def _environment() -> dict[str, str]:
    """Return the environment without variables through which users change the output or requests of these programs."""
    dropped = ("SQUEUE_", "SBATCH_", "SACCT_", "SINFO_", "SLURM_TIME_FORMAT")
    return {name: value for name, value in os.environ.items() if not name.startswith(dropped)}
