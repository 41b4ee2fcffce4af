"""Take secrets out of files that an experiment wrote, before they are sealed as evidence."""

import mmap
from collections.abc import Sequence
from pathlib import Path

from benchhouse.schema.secrets import REDACTED


def blank_secrets(folder: Path, values: Sequence[str]) -> list[str]:
    """Replace these values wherever they stand in the files below `folder`; returns the files that held one.

    Only the plain bytes are found: what an experiment compresses or encrypts is its own affair.
    """
    secrets = [value.encode("utf-8", "surrogateescape") for value in values]
    changed = []
    for path in sorted(folder.rglob("*")) if secrets else []:
        if path.is_file() and not path.is_symlink() and _holds(path, secrets):
            content = path.read_bytes()
            for secret in secrets:
                content = content.replace(secret, REDACTED.encode())
            blanked = path.with_name(f".{path.name}.blanked")  # the experiment may have made its file read-only
            blanked.write_bytes(content)
            blanked.replace(path)
            changed.append(path.relative_to(folder).as_posix())
    return changed


def _holds(path: Path, secrets: Sequence[bytes]) -> bool:
    """Searched without reading the file into memory: artifacts may be large."""
    if not path.stat().st_size:
        return False
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        return any(content.find(secret) >= 0 for secret in secrets)
