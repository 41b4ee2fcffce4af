"""What lies under a folder: its filesystem and block device, what that device has moved, and files of dead trials."""

import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from benchhouse.processes.process_identity import boot, identity, is_gone

_SECTOR = 512  # of /proc/diskstats, whatever the device has
_NAME = re.compile(r"benchhouse-(?P<boot>[0-9a-f]{12})-(?P<owner>p\d+-s\d+-n\d+)-.*\.dat")
MEMORY = ("tmpfs", "ramfs")


class Counters(NamedTuple):
    """Bytes that a device has moved since it was attached, for everybody."""

    read: int
    written: int


@dataclass(frozen=True)
class Device:
    """`name` and `number` are empty where there is no block device, or it can't be told."""

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
        if not os.major(device) and source.is_block_device():  # btrfs has numbers of its own, and names its device
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
    """A name that says who made the file, for a trial that was killed can't remove its own; unique across machines."""
    return f"benchhouse-{boot()}-{identity()}-{trial_id}.dat"


def sweep(folder: Path) -> list[str]:
    """Remove files of processes of this machine and boot that have ended; their names."""
    swept = []
    for path in folder.glob("benchhouse-*.dat"):
        name = _NAME.fullmatch(path.name)
        if name and name["boot"] == boot() and is_gone(name["owner"]):
            path.unlink(missing_ok=True)
            swept.append(path.name)
    return swept
