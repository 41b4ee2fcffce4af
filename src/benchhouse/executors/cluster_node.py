"""The piece of a run that sits on a node of a cluster: it keeps one warm worker host and carries messages to and fro.

Only the standard library, and no other module of ours: an engine may send this function to a Python without benchhouse.
Orders come in `orders.jsonl`, reports go out in `reports.jsonl`, both only grow, and each has one writer. Files are
opened anew for each look: that is when a network file system asks its server.
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
LEFT = "bucket"  # beside the slots: below which address objects of the run may lie, where a bucket carries it
GIVEN_UP = "given_up"  # in an order to end: the slot's trial is begun elsewhere
PLACED = "BENCHHOUSE_PLACED"  # in the environment of a host: where the executor put it, as JSON
GANG = "gang.json"  # in the folder of a slot that is one of several of a trial: which, and where all are listed
NODE, NODES, ADDRESS = "BENCHHOUSE_NODE", "BENCHHOUSE_NODES", "BENCHHOUSE_ADDRESS"  # then in the environment, too
LIMITS = "BENCHHOUSE_LIMITS"  # in that of an agent, as JSON
_SOON_S, _IDLE_S, _BUSY_S = 0.004, 0.1, 0.25  # between two looks: after news, while there is no trial, while one runs
_ALERT_S = 0.1  # how long after a trial's end its successor is looked for without a rest
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
    """Run trials until told to end; returns why it ended. `placed` is what evidence will say of this place.

    `imposed` are variables that the cluster sets for its own tasks: a trial has them only from its orchestrator.

    One of a gang (`GANG`) that is not the first keeps an agent instead, which starts what the trial wants there.

    Ends with everything it started when the orchestrator's `alive` has not changed for `patience_s`; and when this
    process is killed, as the host's input then ends.
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
    """Until there is an end, which is named; nothing where the host itself has ended."""
    tail, running, buffer = Tail(home / ORDERS), set[str](), b""
    pause_s, beat, heard, next_look, alert_until = _SOON_S, b"", time.monotonic(), 0.0, 0.0
    while True:
        news = tail.read()
        for order in news:
            if "end" in order:
                return str(order["end"])
            if "begin" in order:  # it has begun with that (`slot_pod`)
                continue
            with contextlib.suppress(BrokenPipeError):  # the answers will tell
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
        elif running or now > alert_until:  # looks beside a trial would disturb it
            pause_s = min(2 * pause_s, _BUSY_S if running else _IDLE_S)
        if now >= next_look:
            next_look = now + _BEAT_S
            if (latest := _read(home.parent / ALIVE)) != beat and latest:
                beat, heard = latest, now
            elif now - heard > patience_s:
                return f"its orchestrator has not been heard of for {patience_s:g} s"


class Tail:
    """What is new in a file of JSON lines that another process appends to."""

    def __init__(self, path: Path) -> None:
        self._name = str(path)
        self._at = 0

    def read(self) -> list[dict[str, Any]]:
        """Whole lines since the last look; a line that is being written waits for its end."""
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
        """With as few system calls as can be: an orchestrator looks dozens of times a second, and mostly in vain."""
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
    """With one write, so that a reader sees whole lines."""
    with path.open("ab", buffering=0) as file:
        file.write(b"".join(json.dumps(message).encode() + b"\n" for message in messages))


def _environment(given: Mapping[str, str], imposed: Sequence[str]) -> dict[str, str]:
    """The orchestrator's, over what the node itself has; without a temporary folder that is not there."""
    folder = given.get("TMPDIR")
    left_out = {"TMPDIR"} if folder and not Path(folder).is_dir() else set()
    here = {name: value for name, value in os.environ.items() if name not in imposed}
    return {**here, **{name: value for name, value in given.items() if name not in left_out}}


def _host_address() -> str:
    """As this host's name is known, where the cluster has told none."""
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
    """Its input ends: it ends what it runs, then itself."""
    assert host.stdin and host.stdout
    with contextlib.suppress(BrokenPipeError):
        host.stdin.close()
    try:
        host.wait(timeout=15)
    except subprocess.TimeoutExpired:
        host.kill()
        host.wait()
    host.stdout.close()
