"""Standard output and standard error that identify which of them can't be written: a closed pipe or a full disk.

Without this, click and rich end the process with exit code 1 when a pipe is closed, and any other failure is an OSError
like that of every file of the workspace.
"""

import errno
import io
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from benchhouse.schema.errors import Exit

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


class OutputError(OSError):
    """Printed text did not arrive; `__cause__` is the reason. It has no errno, so that libraries do not handle it."""


class _Descriptor(io.FileIO):
    """A file descriptor whose own failures can be distinguished from those of other files."""

    def write(self, data: "ReadableBuffer", /) -> int:
        try:
            return super().write(data)
        except OSError as error:
            raise OutputError from error


def guard_output() -> None:
    """From now on, make `sys.stdout` and `sys.stderr` raise OutputError if they can't be written."""
    if sys.stdout is sys.__stdout__:
        sys.stdout = _guarded(sys.stdout)
    if sys.stderr is sys.__stderr__:
        sys.stderr = _guarded(sys.stderr)


def end_of_output(error: OutputError) -> Exit:
    """Report why nothing more is printed, unless a reader such as `head` has closed the pipe. Return the exit code."""
    cause = error.__cause__
    assert isinstance(cause, OSError)
    _discard(sys.stdout)
    reader_left = cause.errno == errno.EPIPE
    if not reader_left:
        with suppress(OutputError):
            sys.stderr.write(f"error: can't write the output: {cause.strerror}\n  What was done is kept.\n")
    _discard(sys.stderr)
    return Exit.OUTPUT_CLOSED if reader_left else Exit.TRIAL_FAILED


def _guarded(stream: TextIO | None) -> TextIO:
    if stream is None:  # closed by the caller: bench status >&-
        return Path(os.devnull).open("w")
    assert isinstance(stream, io.TextIOWrapper)
    stream.flush()
    raw = _Descriptor(stream.fileno(), "wb", closefd=False)
    return io.TextIOWrapper(
        raw if stream.write_through else io.BufferedWriter(raw),  # as Python itself does with -u
        encoding=stream.encoding,
        errors=stream.errors,
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )


def _discard(stream: TextIO) -> None:
    """Discard what is buffered and all later output: Python flushes once more when it exits."""
    try:
        stream.flush()
    except OutputError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
