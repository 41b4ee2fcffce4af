"""How the experiment's process gets logs for the servers that it starts: it requests them from its supervisor.

Requests use a pair of sockets made before the fork. A request is one packet of JSON; the answer is one packet too, and
carries the write end of a new pipe (SCM_RIGHTS).
"""

import itertools
import json
import os
import socket
import threading
from array import array
from typing import Any, Protocol

_TAIL_CHARACTERS = 16 << 10  # fits a packet, even if every character is escaped


class ServiceLogWriter(Protocol):
    """The destination of service output: a Capture, or the ServerLogs of a process that has no Capture of its own."""

    def open(self, component: str) -> int:
        """Return the write end of a new pipe into `logs/<component>.log`; the caller closes it.

        Raises ValueError for an invalid name, OSError if no log can be created.
        """

    def tail(self, component: str, n_lines: int) -> str:
        """Return the last lines, redacted, for an error message; empty if there are none."""


class ServerLogs:
    """The Logs object of the requesting process. Safe for its threads, not for its forks."""

    def __init__(self, line: socket.socket) -> None:
        self._line = line
        self._lock = threading.Lock()
        self._numbers = itertools.count()

    def open(self, component: str) -> int:
        _, handles = self._ask({"ask": "open", "component": component})
        return handles[0]

    def tail(self, component: str, n_lines: int) -> str:
        reply, _ = self._ask({"ask": "tail", "component": component, "lines": n_lines})
        return str(reply["tail"])

    def close(self) -> None:
        self._line.close()

    def _ask(self, request: dict[str, Any]) -> tuple[dict[str, Any], list[int]]:
        with self._lock:
            number = next(self._numbers)
            self._line.send(json.dumps(request | {"number": number}).encode())
            while True:
                data, handles = receive(self._line)
                if not data:
                    raise ConnectionError("the supervisor has closed the logs")
                reply: dict[str, Any] = json.loads(data)
                if reply["number"] == number:
                    break
                for handle in handles:  # the answer to a request whose caller was interrupted
                    os.close(handle)
        if "error" in reply:
            raise (ValueError if reply["refused"] else OSError)(reply["error"])
        return reply, handles


def receive(line: socket.socket, most: int = 1) -> tuple[bytes, list[int]]:
    """Return one packet and its descriptors, with close-on-exec set atomically, which recv_fds does not support."""
    handles = array("i")
    room = socket.CMSG_LEN(most * handles.itemsize)
    data, ancillary, _, _ = line.recvmsg(1 << 18, room, socket.MSG_CMSG_CLOEXEC)
    for level, kind, content in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            handles.frombytes(content)
    return data, list(handles)


def pair() -> tuple[socket.socket, socket.socket]:
    """Return the supervisor's end, which never blocks, and the other end; packets, so that no message is ever
    partial."""
    mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    mine.setblocking(False)
    return mine, theirs


def answer(line: socket.socket, logs: ServiceLogWriter) -> bool:
    """Answer one request, if there is one. Return False if the other end is closed."""
    try:
        data = line.recv(1 << 16)
    except BlockingIOError:
        return True
    except OSError:
        return False
    if not data:
        return False
    reply: dict[str, Any] = {"number": None}
    handles: list[int] = []
    try:
        request = json.loads(data)
        reply["number"] = request["number"]
        if request["ask"] == "open":
            handles.append(logs.open(request["component"]))
        else:
            reply["tail"] = logs.tail(request["component"], int(request["lines"]))[-_TAIL_CHARACTERS:]
    except (ValueError, KeyError, TypeError) as error:
        reply |= {"error": str(error), "refused": True}
    except OSError as error:
        reply |= {"error": str(error), "refused": False}
    try:
        socket.send_fds(line, [json.dumps(reply).encode()], handles)
    except OSError:
        return False  # the caller ended while it waited
    finally:
        for handle in handles:
            os.close(handle)
    return True
