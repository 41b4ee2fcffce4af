"""The filesystem and block device under a folder, the bytes that the device has moved, and files of dead trials."""

import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from benchhouse.processes.process_identity import boot, identity, is_gone

_SECTOR = 512  # of /proc/diskstats, for any device
_NAME = re.compile(r"benchhouse-(?P<boot>[0-9a-f]{12})-(?P<owner>p\d+-s\d+-n\d+)-.*\.dat")
MEMORY = ("tmpfs", "ramfs")


class Counters(NamedTuple):
    """Bytes that a device has moved since it was attached, for all processes."""

    read: int
    written: int


@dataclass(frozen=True)
class Device:
    """The filesystem and block device of a folder. `name` and `number` are empty and None if there is no device, or it
    is unknown."""

    filesystem: str
    name: str = ""
    number: int | None = None

    @classmethod
    def under(cls, folder: Path) -> "Device":
        device = folder.stat().st_dev
        number = f"{os.major(device)}:{os.minor(device)}"
        mounts = (line.split(" - ") for line in Path("/proc/self/mountinfo").read_text().splitlines())
        mounted = next((rest.split() for mount, rest in mounts if mount.split()[2] == number), None)
        if mounted is None:
            return cls("unknown")
        filesystem, source = mounted[0], Path(mounted[1])
        if not os.major(device) and source.is_block_device():  # btrfs has its own numbers, and names its device
            device = source.stat().st_rdev
        link = Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}")
        return cls(filesystem, link.resolve().name, device) if link.exists() else cls(filesystem)

    def counters(self) -> Counters | None:
        if self.number is None:
            return None
        for line in Path("/proc/diskstats").read_text().splitlines():
            fields = line.split()
            if os.makedev(int(fields[0]), int(fields[1])) == self.number:
                return Counters(int(fields[5]) * _SECTOR, int(fields[9]) * _SECTOR)
        return None


def free_bytes(folder: Path) -> int:
    return shutil.disk_usage(folder).free


def new_name(trial_id: str) -> str:
    """Return a file name with its owner, because a killed trial cannot remove its file; unique across machines."""
    return f"benchhouse-{boot()}-{identity()}-{trial_id}.dat"


def sweep(folder: Path) -> list[str]:
    """Remove files of ended processes of this machine and boot. Return their names."""
    swept = []
    for path in folder.glob("benchhouse-*.dat"):
        name = _NAME.fullmatch(path.name)
        if name and name["boot"] == boot() and is_gone(name["owner"]):
            path.unlink(missing_ok=True)
            swept.append(path.name)
    return swept
