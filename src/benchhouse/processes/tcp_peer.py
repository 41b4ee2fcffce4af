"""Finds which account of this machine opened a connection that arrived on the loopback device.

The kernel knows the account for TCP sockets as for Unix sockets. `ss -e` shows it, from the same interface:
sock_diag(7).
"""

import os
import socket
import struct
from pathlib import Path

_SOCK_DIAG = 4  # NETLINK_SOCK_DIAG
_BY_FAMILY = 20  # SOCK_DIAG_BY_FAMILY, a request for one socket and its answer
_REQUEST = 1  # NLM_F_REQUEST
_ESTABLISHED = 1
_HEADER = struct.Struct("=IHHII")  # nlmsghdr
_QUESTION = struct.Struct("=BBBxI")  # inet_diag_req_v2 before its id
_ID = struct.Struct("!HH16s16s")  # inet_diag_sockid: two ports and two addresses
_ANSWER = struct.Struct("=BBBB48xIIIII")  # inet_diag_msg; its id is left out


def account_of_peer(peer: tuple[str, int], own: tuple[str, int]) -> int | None:
    """Return the user id of the process that opened a connection from `peer` to `own`, both on this machine.

    Return None if the connection is no longer open, or if the kernel does not report its owner.
    """
    try:
        family = socket.AF_INET6 if ":" in peer[0] else socket.AF_INET
        ends = [socket.inet_pton(family, address).ljust(16, b"\0") for address in (peer[0], own[0])]
        question = _QUESTION.pack(family, socket.IPPROTO_TCP, 0, 1 << _ESTABLISHED)
        question += _ID.pack(peer[1], own[1], *ends) + struct.pack("=III", 0, 0xFFFFFFFF, 0xFFFFFFFF)
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _SOCK_DIAG) as kernel:
            kernel.settimeout(1.0)
            kernel.send(_HEADER.pack(_HEADER.size + len(question), _BY_FAMILY, _REQUEST, 1, 0) + question)
            answer = kernel.recv(8192)
        _, kind, *_ = _HEADER.unpack_from(answer)
        if kind != _BY_FAMILY:
            return None
        _, state, _, _, _, _, _, user, inode = _ANSWER.unpack_from(answer, _HEADER.size)
        unmapped = int(Path("/proc/sys/kernel/overflowuid").read_text())
    except (OSError, AttributeError, ValueError, struct.error):  # no Linux, no such interface, or it is not allowed
        return None
    # Anything but an open socket that a process holds belongs to user 0 here, regardless of its opener.
    return user if state == _ESTABLISHED and inode and user != unmapped else None


def accounts_are_visible() -> bool:
    """Whether `account_of_peer` recognizes a connection that this process opens."""
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname(), timeout=5.0) as client,
    ):
        return account_of_peer(client.getsockname(), server.getsockname()) == os.geteuid()
