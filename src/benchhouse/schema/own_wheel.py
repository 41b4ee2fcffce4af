"""A metadata-only wheel of Benchhouse, so that packages that depend on it can be installed without an index."""

import zipfile
from importlib.metadata import distribution
from pathlib import Path

NAME = "benchhouse"
_WHEEL = "Wheel-Version: 1.0\nGenerator: benchhouse\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


def write_own_wheel(folder: Path, *, with_dependencies: bool = True) -> Path:
    """Write the wheel for the running version. Without dependencies, only those of extras stay, as in
    `benchhouse[faiss]`.
    """
    ours = distribution(NAME)
    metadata = ours.read_text("METADATA") or ""
    if not with_dependencies:
        head, blank, body = metadata.partition("\n\n")
        kept = [line for line in head.splitlines() if not line.startswith("Requires-Dist:") or "extra ==" in line]
        metadata = "\n".join(kept) + blank + body
    info = f"{NAME}-{ours.version}.dist-info"
    path = folder / f"{NAME}-{ours.version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr(f"{info}/METADATA", metadata)
        wheel.writestr(f"{info}/entry_points.txt", ours.read_text("entry_points.txt") or "")
        wheel.writestr(f"{info}/WHEEL", _WHEEL)
        wheel.writestr(f"{info}/RECORD", "")
    return path
