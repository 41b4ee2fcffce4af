"""What lies under a folder: its filesystem, the block device, and what that device says it has moved."""

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

_SECTOR = 512  # of /proc/diskstats, whatever the device has
MEMORY = ("tmpfs", "ramfs")


@dataclass(frozen=True)
class Counters:
    """Bytes that a device has moved since it was attached, for everybody."""

    read: int
    written: int

    def since(self, before: "Counters") -> "Counters":
        return Counters(self.read - before.read, self.written - before.written)


@dataclass(frozen=True)
class Device:
    """`name` and `number` are empty where there is no block device, or it can't be told."""

    filesystem: str
    name: str = ""
    number: tuple[int, int] | None = None

    @classmethod
    def under(cls, folder: Path) -> "Device":
        held = folder.stat().st_dev
        wanted = f"{os.major(held)}:{os.minor(held)}"
        for line in Path("/proc/self/mountinfo").read_text().splitlines():
            mount, _, rest = line.partition(" - ")
            if mount.split()[2] == wanted:
                filesystem, source = rest.split()[:2]
                return cls._named(filesystem, held, source)
        return cls("unknown")

    @classmethod
    def _named(cls, filesystem: str, held: int, source: str) -> "Device":
        """Filesystems with a number of their own (btrfs) still name the device that they are mounted from."""
        if not os.major(held) and Path(source).is_block_device():
            held = Path(source).stat().st_rdev
        number = (os.major(held), os.minor(held))
        link = Path(f"/sys/dev/block/{number[0]}:{number[1]}")
        return cls(filesystem, link.resolve().name, number) if link.exists() else cls(filesystem)

    @property
    def is_memory(self) -> bool:
        return self.filesystem in MEMORY

    def counters(self) -> Counters | None:
        if self.number is None:
            return None
        for line in Path("/proc/diskstats").read_text().splitlines():
            fields = line.split()
            if (int(fields[0]), int(fields[1])) == self.number:
                return Counters(int(fields[5]) * _SECTOR, int(fields[9]) * _SECTOR)
        return None


def free_bytes(folder: Path) -> int:
    return shutil.disk_usage(folder).free
