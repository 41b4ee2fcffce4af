"""The version of a server's program: read once per machine, because some take seconds to report it."""

import contextlib
from pathlib import Path

from benchhouse.evidence.writing import write_text
from benchhouse.processes.programs import find_program, version_of
from benchhouse.schema.digests import digest
from benchhouse.schema.experiment import ExperimentFailed
from benchhouse.schema.recipe import Recipe


def cached_version(recipe: Recipe, chosen: str | None, cache: Path) -> str:
    """Return the version, from `cache` if the same program was read before; empty if it reports none."""
    try:
        program = Path(find_program(recipe, chosen)).resolve()
        state = program.stat()
    except (ExperimentFailed, OSError):
        return ""
    key = [str(program), state.st_mtime_ns, state.st_size, list(recipe.version_command)]
    path = cache / "server-versions" / digest(key)
    with contextlib.suppress(OSError, UnicodeDecodeError):
        return path.read_text(encoding="utf-8")
    version = version_of(recipe, chosen)
    if version:
        with contextlib.suppress(OSError):  # without a writable cache, the version is read again each time
            path.parent.mkdir(parents=True, exist_ok=True)
            write_text(path, version, sync=False)
    return version
