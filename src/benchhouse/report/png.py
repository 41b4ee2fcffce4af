"""Charts as PNG next to their SVG, if a converter is installed: librsvg's rsvg-convert, or cairosvg."""

import importlib.util
import shutil
import subprocess
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from benchhouse.processes.owned_names import temporary_name

_ZOOM = 2  # for screens with two pixels per point
_LONGEST_S = 30.0
_MOST = 40  # each takes a tenth of a second; those of the machine come last
Convert = Callable[[Path, Path], None]


def write_pngs(folder: Path, names: Sequence[str]) -> None:
    """Convert the first of these SVG files; all others, and those that fail, have no PNG, not even an older one."""
    convert = converter()
    for at, name in enumerate(names):
        svg = folder / name
        png = svg.with_suffix(".png")
        temporary = png.with_name(temporary_name(png.name))
        png.unlink(missing_ok=True)
        if convert is None or at >= _MOST:
            continue
        with suppress(OSError, ValueError, subprocess.SubprocessError):
            convert(svg, temporary)
            temporary.replace(png)
        temporary.unlink(missing_ok=True)


def converter() -> Convert | None:
    """Return the installed converter; None if there is none."""
    if program := shutil.which("rsvg-convert"):
        return lambda svg, png: _by_program(program, svg, png)
    return _by_cairo if importlib.util.find_spec("cairosvg") else None


def _by_program(program: str, svg: Path, png: Path) -> None:
    command = [program, f"--zoom={_ZOOM}", f"--output={png}", str(svg)]
    subprocess.run(command, check=True, capture_output=True, timeout=_LONGEST_S, stdin=subprocess.DEVNULL)


def _by_cairo(svg: Path, png: Path) -> None:
    import cairosvg  # type: ignore[import-not-found,unused-ignore]

    cairosvg.svg2png(url=str(svg), write_to=str(png), scale=_ZOOM)
