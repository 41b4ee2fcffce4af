"""The base class of all errors, raised where the cause is known and printed once by the command line."""

from enum import IntEnum
from pathlib import Path


class Exit(IntEnum):
    """Exit codes of `bench`."""

    GOOD = 0
    TRIAL_FAILED = 1
    BAD_INPUT = 2
    REGRESSION = 3
    CLAIM_NOT_SAFE = 4
    NEEDS_APPROVAL = 5
    UNDECIDED = 6
    NO_BASELINE = 7
    INTERRUPTED = 130
    OUTPUT_CLOSED = 141


class BenchError(Exception):
    """An error that the user can act on: what was found, what was expected, and (`hint`) what to do next."""

    def __init__(self, message: str, hint: str = "", exit_code: Exit = Exit.BAD_INPUT) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.exit_code = exit_code

    def __str__(self) -> str:
        return f"{self.message}\n{self.hint}" if self.hint else self.message


class NotFoundError(BenchError):
    """The error for a name that does not exist; another name may."""


class BusyError(BenchError):
    """The error for a program that is busy; the same request may succeed after `retry_s` seconds."""

    def __init__(self, message: str, hint: str = "", retry_s: float = 5.0) -> None:
        super().__init__(message, hint)
        self.retry_s = retry_s


def unwritable(path: Path, error: OSError, then: str = "") -> BenchError:
    """Return the error for a read-only or full folder; `then` is the command to repeat afterwards."""
    return BenchError(
        f"can't write {path}: {error.strerror or error}",
        f"make room or make it writable{f', then: {then}' if then else ''}; "
        "or copy the workspace to a folder where you may write: bench -C DIR ...",
        Exit.TRIAL_FAILED,
    )
