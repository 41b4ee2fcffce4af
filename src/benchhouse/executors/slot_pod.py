"""The program of a pod: it reports its Python, receives its first order, and then keeps one slot (`cluster_node`) or
becomes the keeper of a server. A watchdog only waits until its orchestrator is gone, so that its Job and the objects
that the Job owns are deleted.

Usage: `python -m benchhouse.executors.slot_pod`. It uses only the standard library, because the image may contain
nothing but Python, unless a bucket carries the files.
"""

import json
import os
import platform
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchhouse.executors.cluster_node import ALIVE, ORDERS, REPORTS, Tail, append, keep_slot

GIVEN = "BENCHHOUSE_POD"  # in the pod's environment: its orders, as JSON
_FACTS = {
    "node": "NODE_NAME",
    "address": "POD_IP",
    "id": "POD_NAME",
    "pod_uid": "POD_UID",
    "namespace": "POD_NAMESPACE",
}
_WORDS = Path("/dev/termination-log")  # the API server shows the content of this file as the pod's termination message
_LOOK_S, _BEAT_S = 0.02, 2.0


def main() -> int:
    """Keep the slot that the environment names, and report errors where the cluster shows them."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the first process of a pod otherwise ignores it
    given = json.loads(os.environ.pop(GIVEN))
    if "outlast" in given:
        print(_next_order(Path(given["outlast"]), None, given["patience_s"])["end"])
        return 0
    folder = Path(given["folders"][int(os.environ.pop("JOB_COMPLETION_INDEX", "0"))])
    facts = {"executor": "kubernetes", **{key: os.environ.pop(name) for key, name in _FACTS.items()}}
    if not (address := given["bucket"]):
        return _keep(given, folder, facts)
    from benchhouse.executors.bucket_slot import carried
    from benchhouse.schema.errors import BenchError

    try:
        with carried(address, folder, given["needs"]):
            return _keep(given, folder, facts)
    except BenchError as error:
        return _fail(folder, f"the bucket {address}, asked as kubernetes: {{bucket_secret: ...}} says: {error.message}")


def _keep(given: Mapping[str, Any], folder: Path, facts: Mapping[str, str]) -> int:
    if reason := _unfit(given, folder, facts["node"]):
        return _fail(folder, reason)
    try:
        append(folder / REPORTS, {"pod": _look()})
    except OSError as error:
        why = f"{error.strerror} (as user {os.getuid()})"
        return _fail(folder, f"{folder} can't be written to in the pod on {facts['node']}: {why}")
    order = _next_order(Path(given.get("alive") or folder.parent / ALIVE), Tail(folder / ORDERS), given["patience_s"])
    if "begin" not in order:
        return _fail(folder, str(order["end"]))
    begin = order["begin"]
    if given.get("keeps"):
        os.environ.update(given["environment"])
        command = [*begin["python"], "-m", "benchhouse.worker", "--keep", str(folder)]
        os.execvp(command[0], command)  # noqa: S606 - deliberately without a shell
    print(keep_slot(str(folder), begin["python"], given["environment"], facts, given["patience_s"]))
    return 0


def _unfit(given: Mapping[str, Any], folder: Path, node: str) -> str:
    """Return why nothing can begin here; empty if it can."""
    if sys.version_info < (3, 11):  # noqa: UP036 - depends on the image
        return f"the image has Python {platform.python_version()}, and trials need 3.11 or newer"
    if not folder.is_dir():
        return f"{folder} can't be seen in the pod on {node}: the claim must be the volume that this path lies on"
    if missing := [name for name in given["needs"] if name not in os.environ]:
        return f"the scenario refers to {', '.join(missing)}, which no Secret of `kubernetes: {{secrets: ...}}` has"
    return ""


def _look() -> dict[str, str]:
    from importlib.metadata import PackageNotFoundError, version

    libc, number = platform.libc_ver()
    try:
        ours = version("benchhouse")
    except PackageNotFoundError:
        ours = ""
    return {
        "python": "{}.{}".format(*sys.version_info[:2]),
        "machine": platform.machine(),
        "libc": f"glibc {number}" if libc == "glibc" else "musl",
        "benchhouse": ours,
    }


def _next_order(alive: Path, orders: Tail | None, patience_s: float) -> dict[str, Any]:
    """Return the order to begin or to end. A missing heartbeat of the orchestrator is an order to end."""
    beat, heard = b"", time.monotonic()
    while True:
        for order in orders.read() if orders else ():
            if "begin" in order or "end" in order:
                return order
        try:
            latest = alive.read_bytes()
        except OSError:
            latest = beat
        if latest != beat:
            beat, heard = latest, time.monotonic()
        elif time.monotonic() - heard > patience_s:
            return {"end": f"its orchestrator has not been heard of for {patience_s:g} s"}
        time.sleep(_LOOK_S if orders else _BEAT_S)


def _fail(folder: Path, reason: str) -> int:
    print(reason)
    for tell in (lambda: append(folder / REPORTS, {"ended": reason}), lambda: _WORDS.write_text(reason)):
        try:
            tell()
        except OSError:
            continue
    return 1


if __name__ == "__main__":
    sys.exit(main())
