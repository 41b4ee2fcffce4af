"""Names of files under test, which say who made them: a trial that was killed can't remove its own."""

import re
from pathlib import Path

from benchhouse.processes.owner import identity, is_gone

_NAME = re.compile(r"benchhouse-(?P<boot>[0-9a-f]{12})-(?P<owner>p\d+-s\d+-n\d+)-.*\.dat")


def new_name(trial_id: str) -> str:
    """A name that no other process of this or another machine uses, for folders that machines share."""
    return f"benchhouse-{_boot()}-{identity()}-{trial_id}.dat"


def sweep(folder: Path) -> list[str]:
    """Remove what processes of this machine left there that have ended since; their names.

    Process ids say nothing across machines and reboots, so files of another boot stay.
    """
    swept = []
    for path in folder.glob("benchhouse-*.dat"):
        found = _NAME.fullmatch(path.name)
        if found and found["boot"] == _boot() and is_gone(found["owner"]):
            path.unlink(missing_ok=True)
            swept.append(path.name)
    return swept


def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().replace("-", "")[:12]
