"""Import files of other tools as runs: detect the tool, read the file, and keep both in one folder."""

import hashlib
import math
import os
import shutil
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchhouse.analysis.summary import NANOSECONDS
from benchhouse.catalog.entries import entries, load_object, plug
from benchhouse.documents.foreign_file import ForeignFile, Importer
from benchhouse.documents.text_file import MAX_BYTES
from benchhouse.documents.yaml_writer import dump_yaml
from benchhouse.evidence.writing import write_text
from benchhouse.processes.durable import make_folders, put_in_place, sync, sync_tree
from benchhouse.processes.owned_names import sweep_temporaries, temporary_name
from benchhouse.runs.ledger import new_run_id
from benchhouse.schema.errors import BenchError
from benchhouse.schema.imported import (
    Imported,
    ImportedCase,
    ImportedReading,
    ReadCase,
    ReadSeries,
    Samples,
    Setting,
    little_endian,
)
from benchhouse.schema.layout import ImportFolder, WorkspaceFolder

GROUP = "importers"
_MOST_AT_ONCE = 1 << 30


def importers() -> dict[str, Importer]:
    """Return all installed importers, by kind."""
    return {entry.name: load_object(entry.object) for entry in entries(GROUP)}


def kinds_of(path: Path) -> list[str]:
    """Return the kinds of importers that recognize the file."""
    file = ForeignFile(path)
    head, name = file.head(), file.name
    return [kind for kind, importer in importers().items() if importer.claims(head, name)]


def further_parts(path: Path, kind: str) -> list[Path]:
    """Return the other files of the result that this file begins."""
    importer: Importer = plug(GROUP, kind)
    return importer.parts(path)[1:]


def choose(path: Path, kind: str | None, *, mapped: bool = False) -> tuple[str, Importer]:
    """Return the importer that is named, that alone recognizes the file, or with a mapping, that alone takes one."""
    if kind is not None:
        return kind, plug(GROUP, kind)
    claimed = [name for name, importer in importers().items() if importer.with_mapping] if mapped else kinds_of(path)
    if len(claimed) == 1:
        return claimed[0], plug(GROUP, claimed[0])
    if claimed:
        raise BenchError(
            f"{path} may be a file of {' or '.join(claimed)}", f"say which: bench import {path} --as {claimed[0]}"
        )
    if not path.stat().st_size:
        raise BenchError(f"{path} is empty", "did the tool that was to write it end well?")
    known = ", ".join(importers())
    raise BenchError(f"{path}: no importer knows such a file", f"say whose it is: bench import {path} --as ({known})")


def read(workspace: WorkspaceFolder, path: Path, kind: str | None, mapping: Path | None = None) -> ImportFolder:
    """Read the whole file and store what was read; nothing is stored if anything is wrong.

    A file that was read before is not read again: the folder is named by its digest, and by that of its mapping.
    """
    if not path.is_file():
        raise BenchError(f"{path} is not a file", "give a result file that another tool wrote")
    kind, importer = choose(path, kind, mapped=mapping is not None)
    if importer.with_mapping and mapping is None:
        raise BenchError(f"{path}: a {kind} file needs a mapping", "say what its columns are: --mapping FILE.yaml")
    if mapping and not importer.with_mapping:
        raise BenchError(f"a {kind} file says itself what is in it", "leave --mapping out, or say --as table")
    first, *further = importer.parts(path)
    if first != path:
        raise BenchError(f"{path} is a part of the result that {first.name} begins", f"bench import {first}")
    file = ForeignFile(path, mapping, further)
    digests = [part.sha256 for part in file.parts] + ([ForeignFile(mapping).sha256] if mapping else [])
    digest = digests[0] if len(digests) == 1 else hashlib.sha256("".join(digests).encode()).hexdigest()
    folder = ImportFolder(workspace.imports / digest)
    if folder.reading.is_file():
        _check_kind(folder, path, kind)
        return folder
    try:
        found = importer.read(file)
    except (ValueError, ArithmeticError, LookupError, TypeError, AttributeError, RecursionError) as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{Path(where.filename).name}:{where.lineno}"
        file.problem(f"not as {kind} writes it: {type(error).__name__}: {str(error)[:200]} (at {place})")
    _check(found, file)
    make_folders(workspace.imports)
    sweep_temporaries(workspace.imports)
    unfinished = ImportFolder(workspace.imports / temporary_name(digest))
    try:
        _write(unfinished, found, kind, file)
        sync_tree(unfinished.path)
        put_in_place(unfinished.path, folder.path)
    except OSError:
        if not folder.reading.is_file():  # otherwise another process was faster
            raise
    finally:
        shutil.rmtree(unfinished.path, ignore_errors=True)
    sync(workspace.imports)  # another process may have written the name without syncing it yet
    return folder


def _check_kind(folder: ImportFolder, path: Path, kind: str) -> None:
    known = ImportedReading.model_validate_json(folder.reading.read_bytes()).kind
    if known != kind:
        raise BenchError(f"{path} was imported as {known}", f"as {kind} it would be another result of the same bytes")


def _check(found: Imported, file: ForeignFile) -> None:
    """Check that every case has a number and a unique name, and that each of its metrics has a unique name."""
    if not found.cases:
        file.problem("there is no result in it")
    seen: dict[tuple[frozenset[tuple[str, Setting]], ...], int] = {}
    for case in found.cases:
        if not case.samples:
            missing = "; ".join(f"{name}: {why}" for name, why in case.missing.items())
            file.problem(f"{case.target['name']} has no number" + (f" ({missing})" if missing else ""))
        names = [item.metric.name for item in case.samples]
        if len(set(names)) < len(names):
            file.problem(f"{case.target['name']} has two metrics of one name: {', '.join(sorted(names))[:200]}")
        case.settings = {  # a dot would address a nested key
            name.replace(".", "_"): _finite(value) for name, value in case.settings.items()
        }
        key = frozenset(case.target.items()), frozenset(item for item in case.settings.items() if item[1] is not None)
        seen[key] = seen.get(key, 0) + 1
        if seen[key] > 1:  # the tool ran the same case twice
            case.settings["occurrence"] = seen[key]
        for item in case.samples:
            _doubt(case, item)


def _doubt(case: ImportedCase, item: Samples) -> None:
    """Add doubts about impossible values: a time below 0, or a share above 1."""
    metric = item.metric
    is_time = metric.role == "latency" or (metric.unit in NANOSECONDS and metric.direction == "lower")
    if is_time and (least := min(item.values)) < 0:
        message = f"{metric.name} goes down to {least:g} {metric.unit}: a clock was set back"
        case.doubts.append(("negative_time", message))
    wrong = [value for value in item.values if not 0 <= value <= 1] if metric.role == "error_rate" else []
    if wrong:
        case.doubts.append(("no_share", f"{metric.name} is {wrong[0]:g}: errors are a share of what was tried"))


def _finite(value: Setting) -> Setting:
    """Return a number such as `inf` as text, because scenarios have finite numbers."""
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _write(folder: ImportFolder, found: Imported, kind: str, file: ForeignFile) -> None:
    start, cases = 0, []
    for case in found.cases:
        series = []
        for item in case.samples:
            series.append(ReadSeries(metric=item.metric, start=start, count=len(item.values), told=item.told))
            start += len(item.values)
        cases.append(_read_case(case, series))
    reading = ImportedReading(
        kind=kind, tool=found.tool, tool_version=found.version, measured_at=found.measured_at,
        measured_on=found.measured_on, file=file.path.name, sha256=file.sha256,
        size=sum(part.size for part in file.parts), cases=cases,
    )  # fmt: skip
    try:
        scenario, text = dump_yaml(scenario_of(reading)), reading.model_dump_json(indent=1)
    except ValueError as error:  # an unpaired surrogate in a name
        file.problem(f"a name in it is no text: {str(error)[:200]}")
    if len(scenario.encode()) > MAX_BYTES:
        most = f"a scenario of all of them has more than {MAX_BYTES >> 20} MiB"
        file.problem(f"{len(cases):,} cases are too many for one run: {most}; import it in parts")
    folder.original.mkdir(parents=True)
    for path in [part.path for part in file.parts] + ([file.mapping] if file.mapping else []):
        _copy(path, folder.original / path.name)
    with folder.samples.open("wb") as out:
        for item in (item for case in found.cases for item in case.samples):
            little_endian(item.values).tofile(out)
    if file.changed():
        file.problem("it changed while it was read")
    write_text(folder.scenario, scenario)
    write_text(folder.reading, text)
    write_text(folder.run, new_run_id())  # before the run exists, so that concurrent imports give one run


def _copy(source: Path, place: Path) -> None:
    """Copy a file; if the file system can, the copy shares its blocks with the source."""
    with source.open("rb") as reading, place.open("wb") as writing:
        try:
            while os.copy_file_range(reading.fileno(), writing.fileno(), _MOST_AT_ONCE):
                pass
        except OSError:  # between file systems, on kernels that can't
            shutil.copyfile(source, place)


def _read_case(case: ImportedCase, series: list[ReadSeries]) -> ReadCase:
    return ReadCase(
        target=case.target, settings=case.settings, series=series, missing=case.missing, facts=case.facts,
        doubts=case.doubts,
    )  # fmt: skip


def scenario_of(reading: ImportedReading) -> Mapping[str, Any]:
    """Return an ordinary scenario with one point per case of the file."""
    scenario: dict[str, Any] = {
        "scenario": reading.kind,
        "description": f"{reading.file}, sha256 {reading.sha256}, written by {reading.tool}: imported, not run here.",
        "experiment": "imported",
        "monitors": False,
    }
    targets = [_plain(case.target) for case in reading.cases]
    settings = [_plain(case.settings) for case in reading.cases]
    alike = all(item == settings[0] for item in settings)
    if alike:
        scenario["workload"] = {"settings": settings[0]}
    if all(target == targets[0] for target in targets):
        scenario["target"] = targets[0]
    elif alike:
        return scenario | {"targets": targets}
    if len(reading.cases) == 1:
        return scenario
    points = [
        ({} if "target" in scenario else _columns("target.", target, targets))
        | ({} if alike else _columns("settings.", own, settings))
        for target, own in zip(targets, settings, strict=True)
    ]
    return scenario | {"axes": [{"points": points}]}


def _columns(prefix: str, own: Mapping[str, Any], every: list[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the columns of a point. All points have the same keys; null if a case lacks the setting."""
    return {f"{prefix}{name}": own.get(name) for name in sorted({name for each in every for name in each})}


def _plain(value: Any) -> Any:
    """Return a value with `$` escaped, because a name must not start a variable of the scenario."""
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return value.replace("$", "$$") if isinstance(value, str) else value
