"""Generate the protobuf messages of src/benchhouse/drivers/kserve.proto, or check that they are up to date.

    python scripts/make_messages.py [--check]

Exit code 1 when --check finds generated files that differ.
"""

import argparse
import importlib.resources
import sys
import tempfile
from pathlib import Path

from grpc_tools import protoc

DRIVERS = Path(__file__).parent.parent / "src" / "benchhouse" / "drivers"
# Under its place in the package: protobuf's registry, which all libraries of a process share, knows files by path.
PROTO = "benchhouse/drivers/kserve.proto"
GENERATED = ("kserve_pb2.py", "kserve_pb2.pyi")


def generate(folder: Path) -> dict[str, str]:
    """The generated files by name; `folder` is for protoc to write into."""
    well_known = importlib.resources.files("grpc_tools") / "_proto"
    root = DRIVERS.parent.parent
    arguments = ["protoc", f"-I{root}", f"-I{well_known}", f"--python_out={folder}", f"--pyi_out={folder}", PROTO]
    if protoc.main(arguments):
        raise SystemExit(f"protoc refuses {PROTO}")
    return {name: (folder / Path(PROTO).parent / name).read_text(encoding="utf-8") for name in GENERATED}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare with the files in the repository, write nothing")
    check = parser.parse_args().check
    with tempfile.TemporaryDirectory() as folder:
        generated = generate(Path(folder))
    stale = []
    for name, text in generated.items():
        path = DRIVERS / name
        if check:
            stale += [name] if not path.exists() or path.read_text(encoding="utf-8") != text else []
        else:
            path.write_text(text, encoding="utf-8")
    if stale:
        print(f"not up to date: {', '.join(stale)}; run make messages", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
