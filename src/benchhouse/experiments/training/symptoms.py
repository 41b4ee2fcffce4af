"""Recognize the output of a rank that fails: out of memory, no disk space, or a wait for another rank."""

import re
from collections.abc import Iterable, Sequence
from typing import Literal

_MEMORY = re.compile(
    r"\bMemoryError\b|OutOfMemoryError|\bout of memory\b|can(no|')t allocate memory|std::bad_alloc|oom[-_]kill",
    re.IGNORECASE,
)
_DISK = re.compile(
    r"No space left on device|Errno 28\b|Disk quota exceeded|Errno 122\b|PytorchStreamWriter failed writing|"
    r"inline_container\.cc.*unexpected pos",  # torch does not report why a write failed
    re.IGNORECASE,
)
_LATE = re.compile(
    r"Timed out waiting|timed out after|collective operation timeout|Timed out initializing|Socket Timeout|"
    r"wait timeout after|\bDistStoreError\b",
    re.IGNORECASE,
)
_GONE = re.compile(
    r"Connection (closed|reset|refused)|Broken pipe|remote process exited|DistNetworkError|DistBackendError|"
    r"recvValue failed|sendBytes failed|RendezvousConnectionError|NCCL.*(aborted|remote error)",
    re.IGNORECASE,
)

Symptom = Literal["memory", "disk", "late", "gone", ""]
"""`late` and `gone` are those of a witness: the rank that it waited for came too late, or ended."""


def symptom_of(lines: Sequence[str]) -> Symptom:
    """Classify the last lines of a rank that failed; empty if they match no known kind."""
    kinds: Iterable[tuple[Symptom, re.Pattern[str]]] = (
        ("memory", _MEMORY), ("disk", _DISK), ("late", _LATE), ("gone", _GONE),
    )  # fmt: skip
    return next((kind for kind, pattern in kinds if any(pattern.search(line) for line in lines)), "")
