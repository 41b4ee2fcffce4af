"""The process that answers other people's queries, one after the other: `python -m benchhouse.warehouse.query_process`.

The server sends one JSON object per line to stdin: the files, the SQL, and the limits. The process writes lines to
stdout: `columns`, one `row` each, and `end` or `error`. It is killed at its time limit, so it holds nothing that must
survive.
"""

import json
import os
import resource
import select
import signal
import sys
from pathlib import Path
from typing import Any

import duckdb

from benchhouse.schema.errors import BenchError
from benchhouse.warehouse.locked_engine import json_row, one_select, open_engine, temporary_files

_IDLE_S = 60.0
_NICE = 10  # pages and running benchmarks have priority
_LATE_S = 0.5  # after this time past the limit, the system ends a process whose server was killed
_BATCH = 256
_THREADS = 2
_HINT = "Tables and columns: bench warehouse schema"


def main(memory_bytes: int, spill_bytes: int) -> None:
    """Answer until stdin ends, no query has come for a minute, or half of the memory is in use after a query."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.nice(_NICE)
    # The threads and buffers of an engine are in the baseline.
    with duckdb.connect(":memory:", config={"threads": _THREADS}) as warm:
        warm.execute("SELECT 1").fetchall()
    baseline = _mapped_bytes("VmData")
    _limit_memory(memory_bytes)
    _write({"ready": os.getpid()})
    engine: duckdb.DuckDBPyConnection | None = None
    while _mapped_bytes("VmData") - baseline < memory_bytes // 2 and select.select([sys.stdin], [], [], _IDLE_S)[0]:
        line = sys.stdin.buffer.readline()
        if not line:
            return
        request = json.loads(line)
        signal.setitimer(signal.ITIMER_REAL, request["seconds"] + _LATE_S)  # its default action ends this process
        try:
            if request["engine"]:
                if engine:
                    engine.close()
                engine = _engine(request["engine"], memory_bytes, spill_bytes)
            assert engine
            _answer(engine, request)
        except BenchError as error:
            _write({"error": error.message, "hint": error.hint})
        except (duckdb.OutOfMemoryException, MemoryError) as error:
            spilled = "max_temp_directory_size" in str(error) or "offload" in str(error)
            _write({"exceeded": "spill" if spilled else "memory"})
        except duckdb.Error as error:
            words = str(error).partition("\nTraceback")[0].strip()  # there if a library of DuckDB is missing
            _write({"error": f"the warehouse can't answer: {words}", "hint": _HINT})
        signal.setitimer(signal.ITIMER_REAL, 0)


def _limit_memory(memory_bytes: int) -> None:
    """Limit the memory that may be mapped from here on. Address space gets twice the size, because unused parts of it
    cost nothing."""
    data, space = _mapped_bytes("VmData") + memory_bytes, _mapped_bytes("VmSize") + 2 * memory_bytes
    resource.setrlimit(resource.RLIMIT_DATA, (data, data))
    resource.setrlimit(resource.RLIMIT_AS, (space, space))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _engine(about: dict[str, Any], memory_bytes: int, spill_bytes: int) -> duckdb.DuckDBPyConnection:
    """Return an engine over files that are named relative to the folder of the tables, so that SQL sees no other path.

    Half of the memory is for DuckDB's buffers: texts, lists, and plans are outside of them.
    """
    os.chdir(about["root"])
    settings = (
        f"memory_limit = '{memory_bytes // 2} bytes'",
        "secret_directory = ''",
        "extension_directory = '/nonexistent'",
        *temporary_files(about["spill"], spill_bytes),
        *about["settings"],
    )
    return open_engine(about["views"], about["allowed"], settings, _THREADS)


def _answer(engine: duckdb.DuckDBPyConnection, request: dict[str, Any]) -> None:
    cursor = engine.cursor()
    try:
        for name, select_sql in request["views"].items():
            cursor.execute(f'CREATE TEMP VIEW "{name}" AS {select_sql}')
        cursor.execute(one_select(cursor, request["sql"]))
        description = cursor.description or []
        columns = [str(column[0]) for column in description]
        _write({"columns": columns, "types": [str(column[1]) for column in description]})
        left = request["rows"]
        while left and (rows := cursor.fetchmany(min(_BATCH, left))):
            left -= len(rows)
            sys.stdout.buffer.write("".join(f"{json_row(columns, row)}\n" for row in rows).encode("utf-8", "replace"))
        _write({"end": {"more": not left and bool(cursor.fetchmany(1))}})
    finally:
        cursor.close()


def _write(message: dict[str, Any]) -> None:
    """Write a line that begins with a space, which a row never does."""
    sys.stdout.buffer.write(f" {json.dumps(message)}\n".encode())
    sys.stdout.buffer.flush()


def _mapped_bytes(name: str) -> int:
    status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
    return next(int(line.split()[1]) << 10 for line in status.splitlines() if line.startswith(f"{name}:"))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
