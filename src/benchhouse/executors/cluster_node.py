"""The part of a run on a cluster node: it keeps one warm worker host and carries messages between it and the run.

It uses only the standard library and no other module of benchhouse, because an engine may send this function to a
Python without benchhouse. Orders arrive in `orders.jsonl` and reports leave in `reports.jsonl`; both only grow, and
each has one writer. Files are opened again for every read, because only then does a network file system query its
server.
"""

import contextlib
import json
import os
import select
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

ALIVE, ORDERS, REPORTS = "alive", "orders.jsonl", "reports.jsonl"
LEFT = "bucket"  # next to the slots: the bucket address below which objects of the run may be left
GIVEN_UP = "given_up"  # in an order to end: the slot's trial is started elsewhere
PLACED = "BENCHHOUSE_PLACED"  # in a host's environment: where the executor placed it, as JSON
GANG = "gang.json"  # in the folder of a gang's slot: its number, and where all are listed
NODE, NODES, ADDRESS = (
    "BENCHHOUSE_NODE",
    "BENCHHOUSE_NODES",
    "BENCHHOUSE_ADDRESS",
)  # environment of a gang's trials
LIMITS = "BENCHHOUSE_LIMITS"  # in an agent's environment, as JSON
_SOON_S, _IDLE_S, _BUSY_S = 0.004, 0.1, 0.25  # between two reads: after news, without a trial, during a trial
_ALERT_S = 0.1  # how long after a trial ends to read without longer pauses, for its successor
_BEAT_S = 2.0
_PIECE_BYTES = 1 << 16


def keep_slot(
    folder: str,
    python: Sequence[str],
    environment: Mapping[str, str],
    placed: Mapping[str, str],
    patience_s: float = 30.0,
    imposed: Sequence[str] = (),
) -> str:
    """Run trials until told to end, and return why it ended. `placed` is what evidence records about this place.

    `imposed` names variables that the cluster sets for its own tasks; a trial gets them only from its orchestrator. A
    member of a gang (`GANG`) other than the first keeps an agent instead, which starts the trial's processes there. It
    ends with everything it started if the orchestrator's `alive` file has not changed for `patience_s`, and if this
    process is killed, because that closes the host's input.
    """
    home = Path(folder)
    facts = {"node": socket.gethostname(), **placed}
    if not home.is_dir():
        return f"{folder} can't be seen on {facts['node']}: a run needs a file system that all nodes share"
    if shutil.which(python[0]) is None:
        return f"there is no {python[0]} on {facts['node']}: its environment must be where all nodes see it"
    variables = _environment(environment, imposed)
    role = ["--host", "--own"]
    if gang := json.loads(_read(home / GANG) or "{}"):
        facts.setdefault("address", _host_address())
        variables |= {NODE: facts["node"], NODES: gang["nodes"], ADDRESS: facts["address"]}
        if gang["member"]:
            role, variables[LIMITS] = ["--agent"], json.dumps(gang["limits"])
    with tempfile.TemporaryFile() as stderr:
        host = subprocess.Popen(
            [*python, "-m", "benchhouse.worker", *role],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            env=variables | {PLACED: json.dumps(facts)},
        )
        assert host.stdin and host.stdout
        try:
            _report(home, {"placed": facts})
            reason = _carry(home, host.stdin, host.stdout, patience_s)
        finally:
            _end(host)
        stderr.seek(0)
        lines = stderr.read().decode("utf-8", "replace").strip().splitlines()
    reason = reason or f"the worker host ended with code {host.returncode}{f': {lines[-1]}' if lines else ''}"
    with contextlib.suppress(OSError):
        _report(home, {"ended": reason})
    return reason


def _carry(home: Path, orders: IO[bytes], answers: IO[bytes], patience_s: float) -> str:
    """Carry messages until the slot ends and return the reason; empty if the host itself has ended."""
    tail, running, buffer = Tail(home / ORDERS), set[str](), b""
    pause_s, beat, heard, next_look, alert_until = _SOON_S, b"", time.monotonic(), 0.0, 0.0
    while True:
        news = tail.read()
        for order in news:
            if "end" in order:
                return str(order["end"])
            if "begin" in order:  # already consumed (`slot_pod`)
                continue
            with contextlib.suppress(BrokenPipeError):  # reading the answers shows that the host is gone
                orders.write(json.dumps(order).encode() + b"\n")
                orders.flush()
        readable, _, _ = select.select([answers], [], [], pause_s)
        if readable:
            chunk = os.read(answers.fileno(), 1 << 16)
            if not chunk:
                return ""
            *lines, buffer = (buffer + chunk).split(b"\n")
            _report(home, *(json.loads(line) for line in lines if line), running=running)
        now = time.monotonic()
        if news or readable:
            pause_s, alert_until = _SOON_S, now + _ALERT_S
        elif running or now > alert_until:  # frequent reads during a trial would disturb it
            pause_s = min(2 * pause_s, _BUSY_S if running else _IDLE_S)
        if now >= next_look:
            next_look = now + _BEAT_S
            if (latest := _read(home.parent / ALIVE)) != beat and latest:
                beat, heard = latest, now
            elif now - heard > patience_s:
                return f"its orchestrator has not been heard of for {patience_s:g} s"


class Tail:
    """The new lines of a JSON Lines file that another process appends to."""

    def __init__(self, path: Path) -> None:
        self._name = str(path)
        self._at = 0

    def read(self) -> list[dict[str, Any]]:
        """Return the complete lines since the last read. An incomplete line is left for the next read."""
        try:
            text = self._rest()
        except OSError:
            return []
        if not text:
            return []
        whole = text[: text.rfind(b"\n") + 1]
        self._at += len(whole)
        return [json.loads(line) for line in whole.splitlines()]

    def _rest(self) -> bytes:
        """Return the unread bytes with few system calls, because an orchestrator reads dozens of times per second."""
        file, text = os.open(self._name, os.O_RDONLY), b""
        try:
            while piece := os.pread(file, _PIECE_BYTES, self._at + len(text)):
                text += piece
        finally:
            os.close(file)
        return text


def _report(home: Path, *reports: dict[str, Any], running: set[str] | None = None) -> None:
    for report in reports:
        if running is not None and "id" in report:
            (running.discard if "exit" in report else running.add)(report["id"])
    append(home / REPORTS, *reports)


def append(path: Path, *messages: Mapping[str, Any]) -> None:
    """Append messages with one write, so that a reader sees whole lines."""
    with path.open("ab", buffering=0) as file:
        file.write(b"".join(json.dumps(message).encode() + b"\n" for message in messages))


def _environment(given: Mapping[str, str], imposed: Sequence[str]) -> dict[str, str]:
    """Return the orchestrator's variables over the node's own, without a TMPDIR that does not exist here."""
    folder = given.get("TMPDIR")
    left_out = {"TMPDIR"} if folder and not Path(folder).is_dir() else set()
    here = {name: value for name, value in os.environ.items() if name not in imposed}
    return {**here, **{name: value for name, value in given.items() if name not in left_out}}


def _host_address() -> str:
    """Return the address of this host's name, for clusters that report none."""
    try:
        return socket.gethostbyname(socket.gethostname())
    except OSError:
        return "127.0.0.1"


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def _end(host: "subprocess.Popen[bytes]") -> None:
    """Close the host's input, so that it ends its trials and exits; kill it after 15 s."""
    assert host.stdin and host.stdout
    with contextlib.suppress(BrokenPipeError):
        host.stdin.close()
    try:
        host.wait(timeout=15)
    except subprocess.TimeoutExpired:
        host.kill()
        host.wait()
    host.stdout.close()
