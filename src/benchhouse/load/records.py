"""Optional rows per request: spooled as fixed-width records during the load, converted to Parquet after it.

Writing Parquet needs pyarrow, which is larger than the whole load process, so a separate process does it.
"""

import os
import struct
import traceback
from pathlib import Path
from typing import Any, BinaryIO

from benchhouse.load.load_record import Call
from benchhouse.load.protocols.calls import CallResult
from benchhouse.load.traces import request_id, trace_id
from benchhouse.schema.errors import BenchError

_ROWS_AT_A_TIME = 100_000
_MISSING = -1
_TIMES = ("due_ns", "sent_ns", "first_output_ns", "last_output_ns", "ended_ns")
_TOKENS = ("input_tokens", "output_tokens", "cached_tokens")
_RECORD = struct.Struct("<qqqqqqqqiiiid?24s")
_COLUMNS = (  # of a record, as NumPy types
    *((name, "<i8") for name in ("index", *_TIMES, "size", "window_ns")),
    *((name, "<i4") for name in ("events", *_TOKENS)),
    ("count", "<f8"), ("measured", "?"), ("error", "S24"),
)  # fmt: skip


class Spool:
    """The records of one load process, in the order in which requests ended."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: BinaryIO = path.open("wb", buffering=1 << 16)

    def add(self, call: Call, reply: CallResult, window_ns: int) -> None:
        stamps = reply.token_ns
        first, last = (stamps[0], stamps[-1]) if stamps else (_MISSING, _MISSING)
        self._file.write(
            _RECORD.pack(
                call.index, call.due_ns, call.sent_ns, first, last, call.ended_ns, reply.size, window_ns, len(stamps),
                *(_MISSING if (count := getattr(reply, name)) is None else count for name in _TOKENS),
                reply.count, call.measured, (reply.error or "").encode()[:24],
            )
        )  # fmt: skip

    def close(self) -> None:
        self._file.close()


def write_parquet(spools: list[Path], path: Path, trace: str = "") -> None:
    """Write all spooled records to one Parquet file, with times in seconds of the window, and remove the spools.

    `trace` is the prefix of the ids that the requests were sent with; empty if they had none.
    """
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            _convert(spools, path, trace)
            code = 0
        except Exception:  # noqa: BLE001 - this process ends here, and says why
            traceback.print_exc()
        finally:
            os._exit(code)  # in a fork, the parent's atexit functions and frames must not run
    _, status = os.waitpid(pid, 0)
    if status:
        code = os.waitstatus_to_exitcode(status)
        raise BenchError(f"{path.name} could not be written (ended by {code})", "is there room?")
    for spool in spools:
        spool.unlink()


def _convert(spools: list[Path], path: Path, trace: str) -> None:
    import numpy
    import pyarrow
    import pyarrow.parquet

    layout = numpy.dtype([*_COLUMNS])
    assert layout.itemsize == _RECORD.size
    writer = None
    for spool in spools:
        with spool.open("rb") as file:
            while block := file.read(_ROWS_AT_A_TIME * layout.itemsize):
                whole = len(block) // layout.itemsize  # a process that was killed leaves a partial record
                table = _table(numpy.frombuffer(block, layout, whole), pyarrow, trace)
                writer = writer or pyarrow.parquet.ParquetWriter(path, table.schema, compression="zstd")
                writer.write_table(table)
    if writer:
        writer.close()


def _table(rows: Any, pyarrow: Any, trace: str) -> Any:
    """Return readable columns: seconds from the start of the window, null for unknown values."""
    columns: dict[str, Any] = {"index": rows["index"], "measured": rows["measured"]}
    for name in _TIMES:
        seconds = (rows[name] - rows["window_ns"]) / 1e9
        columns[name.removesuffix("_ns") + "_s"] = pyarrow.array(seconds, mask=rows[name] == _MISSING)
    columns["error"] = pyarrow.array([text.decode() or None for text in rows["error"].tolist()], pyarrow.string())
    for name in _TOKENS:
        columns[name] = pyarrow.array(rows[name], mask=rows[name] == _MISSING)
    columns |= {"events": rows["events"], "size": rows["size"], "count": rows["count"]}
    if trace:
        numbers = rows["index"].tolist()
        columns["request_id"] = pyarrow.array([request_id(trace, number) for number in numbers])
        columns["trace_id"] = pyarrow.array([trace_id(trace, number) for number in numbers])
    return pyarrow.table(columns)
