"""Tell Benchhouse numbers from inside any program: `emit({"loss": 0.3, "step": 12})`.

One file without dependencies, for Python 3.8 and newer: install `benchhouse-client`, or copy this file. Inside a trial
each call is a JSON line in the trial's folder, outside it does nothing. A call never raises, never waits and costs some
microseconds, so it may stay in the program; what could not be written is counted, and the trial says how many.
"""

import json
import os
import sys
import time

__all__ = ["emit", "reopen"]

VARIABLE = "BENCHHOUSE_EMIT"  # names the folder for the lines; "-" is stderr
MEMBERS, LINE_BYTES = 1000, 64 * 1024  # a larger record is not written: it would slow the program down
_RANKS = {
    "rank": ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK"),
    "world": ("WORLD_SIZE", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE"),
    "local_rank": ("LOCAL_RANK", "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK"),
    "attempt": ("TORCHELASTIC_RESTART_COUNT", "SLURM_RESTART_COUNT"),
}
_STDERR = 2
_file = _pid = None  # the descriptor, and the process that opened it
_lost = _reported = 0  # records that were not written, and how many of them a line has told
_torn = False  # the last line was cut short


def emit(record: dict) -> None:
    """Write one record with the time: numbers, text and lists by name; `rank` and `step` are names like any other.

    Threads, children after a fork and signal handlers may call it: each process has a file of its own and writes a line
    by one system call, so lines are whole, and a program that is killed loses none whose call has returned.
    """
    global _lost, _reported, _torn
    try:
        file = _file if _pid == os.getpid() else _open()
        if file is None:
            return
        if not isinstance(record, dict) or not 0 < len(record) <= MEMBERS:
            raise ValueError("not a record, or too large")
        # By the clock that nobody sets; the first line of the file says what it is in UTC.
        line = b'%b,"t":%.6f}\n' % (_encode(record).encode()[:-1], time.monotonic())
        if len(line) > LINE_BYTES:
            raise ValueError("too large")
        lost = _lost
        if _torn or lost != _reported:
            line = b'%b{"lost":%d}\n%b' % (b"\n" if _torn else b"", lost, line)
        if os.write(file, line) < len(line):
            _torn = True
            raise OSError("cut short")
        _reported, _torn = lost, False
    except Exception:  # noqa: BLE001 - nothing that goes wrong here may end the program that is measured
        _lost += 1


def _open() -> "int | None":
    """The file of this process, which begins with who writes it; None outside of a trial, or where it can't be made."""
    global _file, _pid, _lost, _reported, _torn
    folder, file = os.environ.get(VARIABLE), None
    if folder == "-":
        file = _STDERR
    elif folder:
        about = {
            "emit": 1,
            "pid": os.getpid(),
            "host": os.uname().nodename,
            "utc": time.time(),
            "mono": time.monotonic(),
        }
        for name, variables in _RANKS.items():
            for value in (os.environ.get(variable, "") for variable in variables):
                if value.isdigit():
                    about.setdefault(name, int(value))
        name = "%05d-%d-%s.jsonl" % (about.get("rank", 0), os.getpid(), os.urandom(4).hex())
        try:
            file = os.open(os.path.join(folder, name), os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
            os.write(file, _encode(about).encode() + b"\n")
        except OSError as error:
            sys.stderr.write("benchhouse_client: no record can be written: %s\n" % error)
    _file, _lost, _reported, _torn, _pid = file, 0, 0, False, os.getpid()
    return file


def reopen() -> None:
    """Forget the file: the next record opens one, in the folder that the variable names then."""
    global _file, _pid
    if _file not in (None, _STDERR) and _pid == os.getpid():
        os.close(_file)
    _file = _pid = None


def _plain(value: object) -> object:
    """Numbers of other libraries, such as a tensor with one element, as numbers; all else by its text."""
    try:
        return float(value)  # type: ignore[arg-type]
    except Exception:  # noqa: BLE001 - whatever a stranger's __float__ raises
        return str(value)


_encode = json.JSONEncoder(separators=(",", ":"), default=_plain).encode
