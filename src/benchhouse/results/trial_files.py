"""The trial that represents a point in plots, and its files as they were sealed."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchhouse.evidence import older
from benchhouse.evidence.manifest import Manifest
from benchhouse.schema.layout import TrialFolder

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Sealed:
    """A trial's folder, whose manifest is the one named in the tables."""

    folder: TrialFolder
    manifest: Manifest

    def content(self, name: str) -> bytes:
        """Read a file. Raise OSError, KeyError, or ValueError if it is missing or differs from its seal."""
        content = (self.folder.path / name).read_bytes()
        if hashlib.sha256(content).hexdigest() != self.manifest.files[name].sha256:
            raise ValueError(f"{name} is not what was sealed")
        return content


def open_sealed(root: Path, row: Row) -> Sealed:
    """Open a trial's evidence. Raise OSError or ValueError if it is gone or differs from its seal."""
    folder = TrialFolder(root / row["folder"])
    sealed = folder.manifest.read_bytes()
    if hashlib.sha256(sealed).hexdigest() != row["artifact_manifest_digest"]:
        raise ValueError(f"the manifest of {row['folder']} is not what was sealed")
    return Sealed(folder, older.read(Manifest, sealed))


def median_trial(members: Sequence[Row], has: Callable[[Row], bool], what: str) -> tuple[Row, str] | None:
    """Return the median trial by duration among those that have it, and a text on how it was chosen; None if none has
    it.
    """
    able = sorted(filter(has, members), key=lambda row: (row["duration_s"], row["trial_id"]))
    if not able:
        return None
    of = f"{len(able)} trials" if len(able) == len(members) else f"{len(able)} trials with {what}"
    if len(able) == 1:
        words = "the only trial" if len(members) == 1 else f"the only trial with {what}"
    else:
        words = f"the shorter of {of}" if len(able) == 2 else f"the median of {of} by duration"
    return able[(len(able) - 1) // 2], words
