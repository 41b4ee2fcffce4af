"""Processes that answer other people's queries within limits. A query that exceeds one is ended by killing its process.

DuckDB can't be interrupted while it plans a query, and its memory limit does not include texts and lists. The limits of
the operating system cover both.
"""

import atexit
import contextlib
import json
import os
import select
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchhouse.processes.owned_names import sweep_temporaries, temporary_name
from benchhouse.processes.python_command import python_command
from benchhouse.schema.errors import BenchError, BusyError
from benchhouse.schema.query import QueryLimits
from benchhouse.warehouse.query_deadline import while_wanted

_START_S = 30.0
_CHUNK = 1 << 16
_ENVIRONMENT = ("LD_LIBRARY_PATH", "PYTHONHOME", "PYTHONPATH", "TZ")
_LESS = "ask for less: WHERE, LIMIT, fewer columns or joins"


@dataclass(frozen=True)
class ReadableFiles:
    """The files that a query may read: views over them, named relative to `root`."""

    root: str
    views: Mapping[str, str]
    allowed: str
    """A setting of DuckDB with the only paths that SQL can name."""
    settings: Sequence[str] = ()


@dataclass(frozen=True)
class LimitedRows:
    """Rows, each as the text of a JSON object."""

    columns: tuple[str, ...]
    types: tuple[str, ...]
    json_rows: list[str]
    more: bool


class QueryPool:
    """The query processes of this program. They start on demand, and end after a minute without a query."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._changed = threading.Condition()
        self._running = 0
        self._idle: list[_QueryProcess] = []
        self._all: set[_QueryProcess] = set()
        atexit.register(self.close)

    def answer(
        self, spill: Path, files: ReadableFiles, views: Mapping[str, str], sql: str, limits: QueryLimits
    ) -> LimitedRows:
        """Return the rows. `views` are those without files. Raise BenchError if DuckDB refuses the query or a limit is
        exceeded, and BusyError if too many other queries did not end in time."""
        with self._turn(limits):
            for _ in range(3):  # an idle process may end just when it gets the next query
                process = self._take(spill, limits)
                try:
                    with while_wanted(process):
                        return process.answer(files, views, sql, limits)
                except _IdleEndedError:
                    continue
                finally:
                    self._put_back(process, limits)
        raise BenchError("the process for queries ends at once", "the cause is in the log of the server")

    @property
    def is_ours(self) -> bool:
        """Whether this process made the pool, and not a parent before a fork."""
        return self._pid == os.getpid()

    def close(self) -> None:
        """Kill all processes."""
        if self.is_ours:
            with self._changed:
                processes, self._idle = list(self._all), []
            for process in processes:
                process.end()

    @contextlib.contextmanager
    def _turn(self, limits: QueryLimits) -> Iterator[None]:
        with self._changed:
            if not self._changed.wait_for(lambda: self._running < limits.at_once, limits.wait):
                raise BusyError(
                    f"{limits.at_once} queries run already, and none ended within {limits.wait:g} s",
                    "try again later; the owner's limit is --query-limit at_once",
                )
            self._running += 1
        try:
            yield
        finally:
            with self._changed:
                self._running -= 1
                self._changed.notify()

    def _take(self, spill: Path, limits: QueryLimits) -> "_QueryProcess":
        with self._changed:
            for process in list(self._idle):
                if not process.is_alive:
                    self._idle.remove(process)
                    self._all.discard(process)
                    process.end()
                elif process.fits(spill, limits):
                    self._idle.remove(process)
                    return process
            return self._start(spill, limits)

    def _put_back(self, process: "_QueryProcess", limits: QueryLimits) -> None:
        """Keep the process for the next query; if it was killed, start another now, so that it is ready then."""
        with self._changed:
            if not process.is_alive:
                self._all.discard(process)
                process = self._start(process.spill, limits)
            self._idle.append(process)
            surplus = self._idle[: -limits.at_once]
            self._idle = self._idle[-limits.at_once :]
            self._all.difference_update(surplus)
        for old in surplus:
            old.end()

    def _start(self, spill: Path, limits: QueryLimits) -> "_QueryProcess":
        process = _QueryProcess(spill, limits)
        self._all.add(process)
        return process


class _IdleEndedError(Exception):
    """The process had ended before it got the query."""


class _QueryProcess:
    """One process and its pipes."""

    def __init__(self, spill: Path, limits: QueryLimits) -> None:
        self.spill, self._memory, self._spill_bytes = spill, limits.memory, limits.spill
        with contextlib.suppress(OSError):  # a read-only workspace: then nothing can be spilled
            spill.mkdir(parents=True, exist_ok=True)
            sweep_temporaries(spill)
        self._files: ReadableFiles | None = None
        self._ready = False
        self._buffer = bytearray()
        self._process = subprocess.Popen(
            [*python_command(), "-m", "benchhouse.warehouse.query_process", str(self._memory), str(self._spill_bytes)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={name: os.environ[name] for name in _ENVIRONMENT if name in os.environ},  # SQL can read only these
            start_new_session=True,
        )
        self._output = select.poll()  # `select` fails for high file numbers, which a server with many connections has
        if self._process.stdout:
            self._output.register(self._process.stdout, select.POLLIN | select.POLLHUP)
        self._temporary = spill / temporary_name(f"query-{self._process.pid}")

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def fits(self, spill: Path, limits: QueryLimits) -> bool:
        """Return whether the process is of this workspace and was started with these limits."""
        return (self.spill, self._memory, self._spill_bytes) == (spill, limits.memory, limits.spill)

    def interrupt(self) -> None:
        """End the query, because its answer is no longer wanted."""
        self._process.kill()

    def end(self) -> None:
        """Kill the process and remove its temporary files."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            with contextlib.suppress(OSError):  # input that it no longer read
                if pipe:
                    pipe.close()
        shutil.rmtree(self._temporary, ignore_errors=True)

    def answer(self, files: ReadableFiles, views: Mapping[str, str], sql: str, limits: QueryLimits) -> LimitedRows:
        """Return the rows; the process is dead if a limit was exceeded."""
        try:
            if not self._ready:
                self._read_line(time.monotonic() + _START_S, "")
                self._ready = True
            self._send(files, views, sql, limits)
            return self._receive(limits)
        except BaseException as error:
            if not isinstance(error, _RefusedError):
                self.end()
            raise

    def _send(self, files: ReadableFiles, views: Mapping[str, str], sql: str, limits: QueryLimits) -> None:
        engine = None
        if files != self._files:
            engine = vars(files) | {"spill": os.path.relpath(os.path.realpath(self._temporary), files.root)}
        request = {
            "engine": engine,
            "views": views,
            "sql": sql,
            "rows": limits.rows,
            "seconds": limits.seconds,
        }
        assert self._process.stdin
        try:
            self._process.stdin.write(json.dumps(request).encode("utf-8", "replace") + b"\n")
            self._process.stdin.flush()
        except OSError:
            raise _IdleEndedError from None
        self._files = files

    def _receive(self, limits: QueryLimits) -> LimitedRows:
        until, late = time.monotonic() + limits.seconds, f"no answer within {limits.seconds:g} s: ended"
        columns, types, rows, size = (), (), list[str](), 0
        while True:
            line = self._read_line(until, late, limits.answer + _CHUNK)
            size += len(line)
            if size > limits.answer:
                raise BenchError(
                    f"the answer has more than {_mebibytes(limits.answer)}, of which {len(rows)} rows fit",
                    f"{_LESS}, or rows={max(1, len(rows))}",
                )
            if not line.startswith(b" "):
                rows.append(line.decode())
                continue
            message = json.loads(line)
            if "columns" in message:
                columns, types = tuple(message["columns"]), tuple(message["types"])
            elif "end" in message:
                return LimitedRows(columns, types, rows, message["end"]["more"])
            elif "exceeded" in message:
                raise self._exceeded(message["exceeded"], limits)
            else:
                raise _RefusedError(message["error"], message["hint"])

    def _read_line(self, until: float, late: str, most: int = _CHUNK) -> bytes:
        """Return the next line without its end. Raise BenchError if it is late; return what has come if it is longer
        than `most`."""
        assert self._process.stdout
        searched = 0
        while (end := self._buffer.find(b"\n", searched)) < 0:
            searched = len(self._buffer)
            if searched > most:
                return bytes(self._buffer)
            if not self._output.poll(max(0.0, until - time.monotonic()) * 1000):
                raise BenchError(late or "the process for queries does not start", _LESS if late else "")
            chunk = os.read(self._process.stdout.fileno(), _CHUNK)
            if not chunk:
                raise self._ended()
            self._buffer += chunk
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        return line

    def _ended(self) -> Exception:
        code = self._process.wait()
        if code == 0:
            return _IdleEndedError()
        return BenchError(
            f"the process of this query exited with {code}, most likely because it was out of memory", _LESS
        )

    def _exceeded(self, what: str, limits: QueryLimits) -> BenchError:
        if what == "spill":
            return BenchError(f"the query needs more than {_mebibytes(limits.spill)} of temporary files", _LESS)
        return BenchError(f"the query needs more than {_mebibytes(limits.memory)} of memory", _LESS)


class _RefusedError(BenchError):
    """DuckDB refused the query; the process can answer the next one."""


def _mebibytes(size: int) -> str:
    return f"{size >> 20} MiB" if size >= 1 << 20 else f"{size >> 10} KiB"


_pool: QueryPool | None = None
_making = threading.Lock()


def query_pool() -> QueryPool:
    """Return the pool of this process; a forked process gets its own."""
    global _pool
    with _making:
        if _pool is None or not _pool.is_ours:
            _pool = QueryPool()
        return _pool
