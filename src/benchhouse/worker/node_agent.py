"""The agent on each further node of a trial: `python -m benchhouse.worker --agent`, which runs requests of `node_call`.

The slot there keeps it running (`cluster_node`). It reports its port, and ends with its input. Each connection is one
command, held by its own process: when the connection ends, so does everything that the command has started.
"""

import contextlib
import hmac
import json
import os
import secrets
import select
import signal
import socket
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Any, NoReturn

from benchhouse.processes import tree
from benchhouse.processes.cgroups import Cage, sweep_leftovers
from benchhouse.processes.owned_names import left_processes
from benchhouse.processes.process_identity import LEFTOVERS, OWNER, TAG, identity
from benchhouse.schema.resources import Limits
from benchhouse.worker.batch import PLACED
from benchhouse.worker.node_call import (
    BLOCK,
    ERRORS,
    EXIT,
    INPUT,
    MOST,
    NODES,
    OUTPUT,
    QUESTION,
    SIGNAL,
    SIZE,
    WRITTEN,
    FrameConnection,
    exactly,
    proof,
)
from benchhouse.worker.nodes import ADDRESS, NODE

LIMITS = "BENCHHOUSE_LIMITS"  # of everything that a trial starts here, all together, as JSON
_OF_NODE = (NODE, ADDRESS, PLACED, OWNER, "CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "HOSTNAME")
"""Variables that keep the values of this node, whatever the caller has."""
_REQUEST_S = 20.0  # for a connection to send its request
_LONGEST = 8 << 20  # bytes of a request
_PROOF = 64  # bytes with which a request starts
_GRACE_S = 2.0  # for commands to end after SIGTERM


def serve() -> int:
    """Serve until the input ends, or SIGTERM arrives."""
    tree.become_subreaper()
    with contextlib.suppress(PermissionError):
        os.setsid()
    tree.kill_tree(left_processes(), grace_s=0.0)
    sweep_leftovers()
    os.environ[OWNER] = identity()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    wakeup, bell = os.pipe()
    for end in (wakeup, bell):
        os.set_blocking(end, False)
    signal.set_wakeup_fd(bell)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    cage = Cage.build(f"{LEFTOVERS}-agent", Limits.model_validate_json(os.environ.pop(LIMITS, "{}")))
    address = os.environ[ADDRESS]
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.create_server((address, 0), family=family, backlog=512) as server:
        _report({"ready": os.getpid(), "port": server.getsockname()[1]})
        try:
            _serve(server, wakeup, cage)
        finally:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            server.close()
            tree.kill_descendants(grace_s=_GRACE_S)
            cage.kill()
            cage.remove()
    return 0


def _report(message: dict[str, Any]) -> None:
    os.write(1, json.dumps(message).encode() + b"\n")


def _serve(server: socket.socket, wakeup: int, cage: Cage) -> None:
    holders: set[int] = set()
    while True:
        readable, _, _ = select.select([0, wakeup, server.fileno()], [], [])
        with contextlib.suppress(BlockingIOError):
            os.read(wakeup, 4096)
        _reap(holders)
        if 0 in readable and not os.read(0, BLOCK):  # orders are for hosts; only the end of the input matters here
            return
        if server.fileno() in readable:
            connection, _ = server.accept()
            parent = os.getpid()
            with connection:
                if (pid := os.fork()) == 0:
                    server.close()
                    _become_holder(connection, cage, parent)
                holders.add(pid)


def _become_holder(connection: socket.socket, cage: Cage, parent: int) -> NoReturn:
    """Run the rest of a process that was forked for one connection."""
    try:
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGTERM, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        tree.die_with_parent(signal.SIGKILL, parent)
        tree.become_subreaper()
        null = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1):
            os.dup2(null, stream)
        _hold(connection, cage)
    except (OSError, EOFError):
        pass  # the caller is gone
    except BaseException:  # noqa: BLE001 - the slot tells the last line
        traceback.print_exc()
    finally:
        tree.kill_descendants(grace_s=_GRACE_S)
        os._exit(0)


def _reap(holders: set[int]) -> None:
    """Reap ended holders; what a killed holder left behind was re-parented to this process and is ended too."""
    killed = False
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            killed |= ended[0] in holders and os.WIFSIGNALED(ended[1])
            holders.discard(ended[0])
    if killed:
        tree.kill_tree(set(tree.children(os.getpid())) - holders, grace_s=0.0)


def _hold(connection: socket.socket, cage: Cage) -> None:
    """Read the request of a connection, and run it."""
    request = _request(connection)
    line = FrameConnection(connection)
    end = {"refused": "the agent there was asked without the secret of this trial"}
    if request is not None:
        end = _run(line, request["argv"], _environment(request["environment"]), cage)
    line.send(EXIT, json.dumps(end).encode())
    while line.waiting:
        select.select([], [connection], [])
        line.flush()
    connection.shutdown(socket.SHUT_WR)
    connection.setblocking(True)
    while connection.recv(BLOCK):  # if closed before everything is read, data that was sent could be lost
        pass


def _run(line: FrameConnection, argv: list[str], environment: dict[str, str], cage: Cage) -> dict[str, Any]:
    """Run the command. Return how it ended, for the caller. The limits do not apply to what is not part of the trial,
    such as a sampler."""
    try:
        process = subprocess.Popen(
            argv, env=environment, cwd=tempfile.gettempdir(), bufsize=0,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
            preexec_fn=cage.enter if TAG in environment else None,
        )  # fmt: skip
    except OSError as error:
        line.send(ERRORS, f"{argv[0]}: {error.strerror}\n".encode())
        return {"code": 127}
    except subprocess.SubprocessError as error:
        return {"refused": f"the limits of the trial can't be kept there: {error}"}
    _carry(line, process)
    return {"code": process.returncode}


def _request(connection: socket.socket) -> dict[str, Any] | None:
    """Read the request. Return None if the caller does not prove that it knows the secret."""
    question = secrets.token_hex(QUESTION // 2).encode()
    connection.settimeout(_REQUEST_S)
    connection.sendall(question)
    (size,) = SIZE.unpack(exactly(connection, SIZE.size))
    if size > _LONGEST:
        return None
    text = exactly(connection, size)
    shown, request = text[:_PROOF], text[_PROOF:]
    secret = json.loads(Path(os.environ[NODES]).read_text(encoding="utf-8"))["secret"]
    if not hmac.compare_digest(shown, proof(secret, question, request)):
        return None
    found: dict[str, Any] = json.loads(request)
    return found


def _environment(given: dict[str, str]) -> dict[str, str]:
    """Return the given environment, except variables of a node and a temporary folder that does not exist here."""
    folder = given.get("TMPDIR")
    left_out = {*_OF_NODE, *(["TMPDIR"] if folder and not Path(folder).is_dir() else [])}
    here = {name: os.environ[name] for name in _OF_NODE if name in os.environ}
    return {name: value for name, value in given.items() if name not in left_out} | here


def _carry(line: FrameConnection, process: "subprocess.Popen[bytes]") -> None:
    """Forward data until the command has ended; then end everything that it has started, and send the remaining
    output."""
    assert process.stdin and process.stdout and process.stderr
    streams = {process.stdout.fileno(): OUTPUT, process.stderr.fileno(): ERRORS}
    ended = os.pidfd_open(process.pid)
    given, stdin = bytearray(), process.stdin.fileno()
    os.set_blocking(stdin, False)
    is_closing = is_over = False
    while not is_over or streams:
        poll = select.poll()
        poll.register(line.connection, select.POLLIN | select.POLLOUT * bool(line.waiting))
        if not is_over:
            poll.register(ended, select.POLLIN)
        if given:
            poll.register(stdin, select.POLLOUT)
        for handle in streams if line.waiting < MOST else ():
            poll.register(handle, select.POLLIN)
        for handle, _ in poll.poll():
            if handle in streams:
                if block := os.read(handle, BLOCK):
                    line.send(streams[handle], block)
                else:
                    del streams[handle]
            elif handle == ended:
                is_over = True
                process.wait()
                tree.kill_descendants(grace_s=0.0)
            elif handle == stdin:
                _feed(line, stdin, given)
            else:
                line.flush()
                for kind, data in line.frames():
                    if kind == SIGNAL and not is_over:
                        with contextlib.suppress(ProcessLookupError):
                            os.killpg(process.pid, data[0])
                    elif kind == INPUT:
                        given += data
                        is_closing |= not data
        if is_closing and not given and not process.stdin.closed:
            process.stdin.close()


def _feed(line: FrameConnection, stdin: int, given: bytearray) -> None:
    """Write the given input to the command; if it no longer reads, discard the input."""
    size = len(given)
    try:
        del given[: os.write(stdin, given)]
    except BlockingIOError:
        return
    except OSError:
        given.clear()
    line.send(WRITTEN, b"%d" % (size - len(given)))
