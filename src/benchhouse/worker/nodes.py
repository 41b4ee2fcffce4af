"""The nodes of a trial: their names, how to run a command on another one, and its address."""

import contextlib
import fcntl
import json
import os
import re
import shutil
import socket
import struct
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchhouse.schema.experiment import ExperimentFailed
from benchhouse.schema.recipe import LOOPBACK
from benchhouse.worker import node_call
from benchhouse.worker.node_call import NODES

NODE = "BENCHHOUSE_NODE"  # variable of everything that runs on a node of a gang: the node's name
ADDRESS = "BENCHHOUSE_ADDRESS"  # and the address at which other nodes reach it

_ITEM = re.compile(r"(?:[^,\[]|\[[^\]]*\])+")  # a comma inside brackets separates numbers, not names
_RANGES = re.compile(r"\[([^\]]*)\]")


def expand(text: str) -> list[str]:
    """Expand `a[1-3,07],b2` to a1, a2, a3, a07, b2; several brackets multiply, leading zeros stay."""
    return [name for item in _ITEM.findall(text) for name in _names(item)]


def _names(item: str) -> Iterator[str]:
    ranges = _RANGES.search(item)
    if ranges is None:
        yield item
        return
    for part in ranges[1].split(","):
        first, _, last = part.partition("-")
        for number in range(int(first), int(last or first) + 1):
            yield from _names(f"{item[: ranges.start()]}{number:0{len(first)}d}{item[ranges.end() :]}")


_ADDRESS_OF = 0x8915  # SIOCGIFADDR
_LISTS = ("SLURM_JOB_NODELIST", "SLURM_NODELIST")


def are_slots() -> bool:
    """Whether the nodes of this trial are slots of a cluster, with one of our agents on each but the first."""
    return NODES in os.environ


def own_name() -> str:
    """Return the name of the node that this process is on."""
    return os.environ.get(NODE) or os.environ.get("SLURMD_NODENAME") or os.uname().nodename


def _addresses() -> dict[str, str]:
    """Return the addresses of the slots that are the nodes of this trial, by name; empty on Slurm, and for a single
    node."""
    if not are_slots():
        return {}
    listed = json.loads(Path(os.environ[NODES]).read_text(encoding="utf-8"))["nodes"]
    return {node["name"]: node["address"] for node in listed}


def names() -> list[str]:
    """Return all nodes of this job, the worker's first; outside of a job only this machine."""
    text = next((os.environ[name] for name in _LISTS if os.environ.get(name)), "")
    own = own_name()
    listed = list(_addresses()) or (expand(text) if text else [own])
    return [own, *(name for name in listed if name != own)] if own in listed else listed


def command_on(node: str, cpus: int) -> list[str]:
    """Return the prefix with which a command runs on another node of this job, in addition to what already runs there.

    The command ends when the process that started it is killed, and sees the end of its standard input. It has the
    environment of that process.
    """
    if are_slots():
        return [sys.executable, "-I", "-S", node_call.__file__, node]
    srun = shutil.which("srun")
    if srun is None:
        raise ExperimentFailed(
            "no_srun",
            f"nothing can be started on {node}: there is no srun here. A container must have it bound",
        )
    options = ["--overlap", "--unbuffered", "--export=ALL", "--nodes=1", "--ntasks=1", "--ntasks-per-node=1"]
    options += [f"--cpus-per-task={cpus}", f"--nodelist={node}"]
    return [srun, *options, "--chdir=/tmp"]  # the current folder may only exist on this node


def address(interface: str | None, peers: Sequence[str] = ()) -> str:
    """Return the address at which others reach this machine: that of the device, otherwise the one from which a peer is
    reached."""
    if interface:
        try:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
                request = struct.pack("256s", interface.encode()[:15])
                return socket.inet_ntoa(fcntl.ioctl(probe.fileno(), _ADDRESS_OF, request)[20:24])
        except OSError as error:
            known = ", ".join(name for _, name in socket.if_nameindex())
            raise ExperimentFailed(
                "no_interface",
                f"{os.uname().nodename} has no address on the device {interface} of the site profile "
                f"({error.strerror}); it has: {known}",
            ) from error
    for peer in peers:  # nothing is sent: the kernel only returns the route
        with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((peer, 9))
            return str(probe.getsockname()[0])
    with contextlib.suppress(OSError):
        return socket.gethostbyname(os.uname().nodename)
    return LOOPBACK


def others() -> list[str]:
    """Return the hosts that must be able to reach a server of this job."""
    own = own_name()
    if addresses := _addresses():
        return [address for name, address in addresses.items() if name != own]
    submitter = os.environ.get("SLURM_SUBMIT_HOST")
    return [*(name for name in names() if name != own), *([submitter] if submitter else [])]
