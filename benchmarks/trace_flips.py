"""Whether a changed byte is found, wherever it is, and whether every number of a report walks back to its bytes.

    python benchmarks/trace_flips.py [--flips 1000] [--seed 1] [--json]

Bars: 100% of the cells of a report resolve; every flip that changes something is found and nothing else is cried at.
A bit of a random byte is flipped in one of five places, a fifth of the flips each: evidence (`bench verify --all`
hashes it), tables and catalog (`bench verify --all` audits them), packets and claims with their signature
(`bench claim verify`). SQLite leaves parts of its pages unused: a flip there is counted as inert, and only where the
dump of all content is the same as before and SQLite's own check passes; another is drawn in its stead, so that the
number of flips that count is the number asked for. Nothing else is excused.
"""

import argparse
import json
import random
import sqlite3
import sys
import tempfile
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from benchhouse.api.opening import open_workspace
from benchhouse.api.workspace import Workspace
from benchhouse.claims import signatures
from benchhouse.schema.errors import BenchError
from benchhouse.warehouse.catalog import FILE_NAME
from benchhouse.warehouse.ingest import collect

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "warehouse"))
from trial_maker import make_run  # type: ignore[import-not-found]

AREAS = ("evidence", "tables", "catalog", "packets", "claims")


@dataclass
class Tally:
    """What became of the flips in one place."""

    flips: int = 0
    found: int = 0
    inert: int = 0
    missed: list[str] = field(default_factory=list)


def main() -> int:
    options = _parse()
    with tempfile.TemporaryDirectory(prefix="bench-flips-") as folder:
        home = Path(folder)
        workspace, packet, public = fill(home)
        resolved, cells = resolve_all(workspace)
        clean = not workspace.verify().damage and workspace.claims.verify(str(packet), [public]).ok
        tallies = flip_all(workspace, packet, public, options.flips, random.Random(options.seed))
    all_found = all(tally.found == tally.flips for tally in tallies.values())
    ok = clean and resolved == cells and all_found and sum(tally.flips for tally in tallies.values()) >= options.flips
    told = {area: vars(tally) for area, tally in tallies.items()}
    if options.json:
        print(json.dumps({"cells": cells, "resolved": resolved, "clean": clean, "areas": told, "ok": ok}, indent=2))
    else:
        print(f"{resolved} of {cells} cells of the report resolve; untouched, everything verifies: {clean}")
        for area, tally in tallies.items():
            inert = f", {tally.inert} more fell on bytes that hold nothing" if tally.inert else ""
            print(f"{area:9} {tally.found} of {tally.flips} flips found{inert}")
            for line in tally.missed[:5]:
                print(f"          MISSED {line}")
        print(f"bar, all found and all resolved: {'met' if ok else 'MISSED'}")
    return 0 if ok else 1


def fill(home: Path) -> tuple[Workspace, Path, Path]:
    """A workspace with sealed trials, a report, a signed claim and its packet."""
    (home / "ws").mkdir()
    workspace = open_workspace(home / "ws")
    folder = workspace.folder
    collect(folder, "run-a", make_run(folder, "run-a", 5, samples=True, cores=1.0))
    collect(folder, "run-b", make_run(folder, "run-b", 5, samples=True, minute=30))
    workspace.report("run-a", "run-b")
    private, public, _ = signatures.make_key(home / "keys", "claim")
    claim = workspace.claims.make("run-b:name=hnsw,ef=16:qps", "run-a:name=hnsw,ef=16", realism=True)
    workspace.claims.sign(claim.id, private)
    packet, _ = workspace.claims.export(claim.id, home / "claim.tar", with_raw=True)
    return workspace, packet, public


def resolve_all(workspace: Workspace) -> tuple[int, int]:
    refs = {
        cell["ref"]
        for path in workspace.folder.reports.glob("*/report.json")
        for cell in json.loads(path.read_bytes())["cells"]
    }
    return sum(workspace.trace(ref).ok for ref in refs), len(refs)


def flip_all(workspace: Workspace, packet: Path, public: Path, flips: int, chance: random.Random) -> dict[str, Tally]:
    folder = workspace.folder
    catalog = folder.warehouse / FILE_NAME
    claim = next(folder.claims.glob("*.json"))
    places: dict[str, tuple[list[Path], Callable[[], bool]]] = {
        "evidence": (_files(folder.results), lambda: bool(workspace.verify().damage)),
        "tables": (sorted(folder.warehouse.glob("*/*.parquet")), lambda: bool(workspace.verify().damage)),
        "catalog": ([catalog], lambda: bool(workspace.verify().damage)),
        "packets": ([packet], lambda: _refused(workspace, str(packet), public)),
        "claims": (_files(folder.claims), lambda: _refused(workspace, claim.stem, public)),
    }
    content = _dump(catalog)
    tallies = {}
    for area in AREAS:
        files, is_found = places[area]
        tallies[area] = tally = Tally()
        while tally.flips < -(-flips // len(AREAS)):
            path, at = _pick(files, chance)
            before = path.read_bytes()
            path.chmod(0o644)
            changed = bytearray(before)
            changed[at] ^= 1 << chance.randrange(8)
            path.write_bytes(changed)
            if is_found():
                tally.found += 1
                tally.flips += 1
            elif path == catalog and _dump(catalog) == content:
                tally.inert += 1
            else:
                tally.flips += 1
                tally.missed.append(f"{path.name} byte {at}: {before[at]} became {changed[at]}")
            path.write_bytes(before)
            for journal in folder.warehouse.glob(f"{FILE_NAME}-*"):
                journal.unlink()
    return tallies


def _refused(workspace: Workspace, what: str, public: Path) -> bool:
    try:
        return not workspace.claims.verify(what, [public]).ok
    except BenchError:
        return True


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file() and path.stat().st_size)


def _pick(files: list[Path], chance: random.Random) -> tuple[Path, int]:
    """Any byte of any file, all alike."""
    sizes = [path.stat().st_size for path in files]
    path = chance.choices(files, sizes)[0]
    return path, chance.randrange(path.stat().st_size)


def _dump(catalog: Path) -> list[str] | None:
    """All that SQLite reads of a database; None where it can't, or doubts it."""
    with closing(sqlite3.connect(f"{catalog.absolute().as_uri()}?mode=ro", uri=True)) as db:
        try:
            whole = db.execute("PRAGMA integrity_check").fetchone()[0] == "ok"
            return list(db.iterdump()) if whole else None
        except (sqlite3.Error, UnicodeDecodeError):
            return None


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--flips", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
