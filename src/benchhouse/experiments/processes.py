"""Run one program and measure wall time, CPU time, and peak memory, with nothing between the clock and the program."""

import contextlib
import fcntl
import os
import select
import signal
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter_ns
from typing import IO, Any

# A process group and not a session: the kernel may schedule each session as its own group (autogroup), which makes a
# program slower or faster than the same one started by a shell or by hyperfine.
# Python ignores these signals; a program must not inherit that.
_RESTORED = [signal.SIGPIPE, signal.SIGXFSZ]
_SET_CHILD_SUBREAPER, _GET_CHILD_SUBREAPER = 36, 37
# Waits until the shell is gone, which might otherwise reap it. 5: the stdin of a background job is /dev/null.
_DETACH = 'exec 5<&0; { read _ <&4 && exec "$@" 3>&- 4<&- 5<&-; } <&5 & echo $! >&3'


@dataclass(frozen=True, slots=True)
class ProgramSpec:
    """A program to start: path, arguments, environment, and targets of its streams (`posix_spawn` file actions)."""

    path: str
    argv: list[str]
    environment: Mapping[bytes, bytes]
    streams: Sequence[tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class Finished:
    """How one execution ended. A negative exit code is the signal that ended it."""

    wall_ns: int
    exit_code: int
    timed_out: bool
    user_s: float
    system_s: float
    maxrss_kib: int


class CannotStart(Exception):  # noqa: N818 - an outcome that the caller names
    """The kernel refused to execute the file."""


class Streams:
    """Files for a program's stdin, stdout, and stderr: opened once, rewound for every execution."""

    def __init__(self, folder: Path, stdin: str) -> None:
        self.folder, self.given = folder, stdin

    def __enter__(self) -> "Streams":
        with contextlib.ExitStack() as stack:
            self.null = os.open(os.devnull, os.O_RDWR)
            stack.callback(os.close, self.null)
            self.stdout, self.stderr = self._scratch(stack), self._scratch(stack)
            self.stdin = self._scratch(stack) if self.given else None
            if self.stdin:
                self.stdin.write(self.given.encode())
            self._opened = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()

    def actions(self, keep_stdout: bool) -> list[tuple[Any, ...]]:
        stdin = self.stdin.fileno() if self.stdin else self.null
        stdout = self.stdout.fileno() if keep_stdout else self.null
        sources = (stdin, stdout, self.stderr.fileno())
        return [(os.POSIX_SPAWN_DUP2, source, descriptor) for descriptor, source in enumerate(sources)]

    def rewind(self) -> None:
        for stream in (self.stdout, self.stderr):
            if stream.seek(0, os.SEEK_END):
                stream.seek(0)
                stream.truncate()
        if self.stdin:
            self.stdin.seek(0)

    def read(self, limit: int) -> tuple[bytes, bytes]:
        """Return the last `limit` bytes of stdout and of stderr."""
        return _tail(self.stdout, limit), _tail(self.stderr, limit)

    def first_complaint(self) -> str:
        """Return the first line of stderr that is not blank; empty if there is none."""
        lines = os.pread(self.stderr.fileno(), 64 * 1024, 0).decode(errors="replace").splitlines()
        return next((line.strip() for line in lines if line.strip()), "")

    def _scratch(self, stack: contextlib.ExitStack) -> IO[bytes]:
        return stack.enter_context(tempfile.TemporaryFile(dir=self.folder, buffering=0))


def run(program: ProgramSpec, timeout_s: float | None = None) -> Finished:
    """Start a program, wait for it, and measure. It leads its own process group, which is killed as a whole at the
    timeout. `maxrss_kib` is at least `peak_rss_kib`: the kernel counts the child between vfork and exec, with our
    memory."""
    path, argv, environment, streams = program.path, program.argv, program.environment, program.streams
    started = perf_counter_ns()
    try:
        pid = os.posix_spawn(path, argv, environment, file_actions=streams, setpgroup=0, setsigdef=_RESTORED)
    except OSError as error:
        raise CannotStart(f"{program.path} can't be started: {error.strerror}") from error
    return _await(pid, pid, started, timeout_s)


def run_small(program: ProgramSpec, timeout_s: float | None = None) -> Finished | None:
    """Do the same through a small shell that hands over its child, so that `maxrss_kib` is the program's own; the wall
    time is not. Return None if this process cannot adopt orphans, or the shell cannot fork."""
    with _adopting_orphans() as adopting:
        if not adopting:
            return None
        with contextlib.ExitStack() as stack:
            answer, pid_out = _pipe(stack)
            gate, go = _pipe(stack)
            argv = ["sh", "-c", _DETACH, "sh", program.path, *program.argv[1:]]
            streams = [*program.streams, (os.POSIX_SPAWN_DUP2, pid_out, 3), (os.POSIX_SPAWN_DUP2, gate, 4)]
            environment = program.environment
            shell = os.posix_spawn("/bin/sh", argv, environment, file_actions=streams, setpgroup=0, setsigdef=_RESTORED)
            os.waitpid(shell, 0)
            os.set_blocking(answer, False)
            try:
                pid = int(os.read(answer, 32))
            except BlockingIOError:  # the shell could not fork
                return None
            started = perf_counter_ns()
            os.write(go, b"\n")
            return _await(pid, shell, started, timeout_s)


def peak_rss_kib() -> int:
    """Return the peak resident memory of this process: the lowest value that `run` can measure."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next((int(line.split()[1]) for line in lines if line.startswith("VmHWM:")), 0)


def _tail(stream: IO[bytes], limit: int) -> bytes:
    size = stream.seek(0, os.SEEK_END)
    return os.pread(stream.fileno(), limit, max(0, size - limit)) if size else b""


def _await(pid: int, group: int, started: int, timeout_s: float | None) -> Finished:
    try:
        timed_out = timeout_s is not None and not _ends_within(pid, timeout_s)
        if timed_out:
            _kill(group)
        _, status, usage = os.wait4(pid, 0)
    except BaseException:
        # An interrupted wait must not leave the program behind: it is not in our process group.
        _kill(group)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, 0)
        raise
    wall_ns = perf_counter_ns() - started
    exit_code = os.waitstatus_to_exitcode(status)
    return Finished(wall_ns, exit_code, timed_out, usage.ru_utime, usage.ru_stime, usage.ru_maxrss)


def _pipe(stack: contextlib.ExitStack) -> tuple[int, int]:
    """Return both ends, numbered above those that a shell's redirections can name, and closed with the stack."""
    ends = []
    for low in os.pipe():
        ends.append(fcntl.fcntl(low, fcntl.F_DUPFD_CLOEXEC, 10))
        os.close(low)
        stack.callback(os.close, ends[-1])
    return ends[0], ends[1]


def _ends_within(pid: int, timeout_s: float) -> bool:
    descriptor = os.pidfd_open(pid)
    try:
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        return bool(poll.poll(timeout_s * 1000))
    finally:
        os.close(descriptor)


def _kill(group: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)


@contextlib.contextmanager
def _adopting_orphans() -> Iterator[bool]:
    import ctypes

    prctl, before, zero = ctypes.CDLL(None).prctl, ctypes.c_int(), ctypes.c_ulong(0)
    unknown = prctl(_GET_CHILD_SUBREAPER, ctypes.byref(before), 0, 0, 0)
    if unknown or prctl(_SET_CHILD_SUBREAPER, ctypes.c_ulong(1), zero, zero, zero):
        yield False
        return
    try:
        yield True
    finally:
        prctl(_SET_CHILD_SUBREAPER, ctypes.c_ulong(before.value), zero, zero, zero)
