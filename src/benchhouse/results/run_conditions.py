"""Conditions that may differ between two sides of a comparison, including packages by name and version."""

from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any

from benchhouse.evidence.folder import read_meta, read_packages
from benchhouse.results.concurrent_trials import Beside, concurrent_trial_counts, describe_concurrent_trials
from benchhouse.schema.layout import TrialFolder
from benchhouse.schema.quantities import show_bytes
from benchhouse.schema.quoting import shortened
from benchhouse.warehouse.grouping import grouped
from benchhouse.warehouse.query import Warehouse

Row = Mapping[str, Any]
Versions = Mapping[str, frozenset[str]]
"""Versions that the trials of a side had, by package."""
PLACE = "executor"
"""Reported if it differs, but not as a cause: the same worker runs the trial under every executor, and effects of the
place (host, packages, neighbors) are listed by their own names.
"""
_LOCK, _PACKAGES = "package lock digest", "packages"
_BESIDE = "ran beside a trial"
_LISTED = 4


def circumstances(sides: Sequence[Sequence[Row]], beside: Beside) -> list[dict[str, str]]:
    """Return the circumstances of each side by name, from its rows of trial_fact; `beside` has each trial's concurrent
    trials.
    """
    counted = [[row for row in side if row["outcome"] == "succeeded" and not row["warmup"]] for side in sides]
    texts = describe_concurrent_trials(counted, beside)
    return [_of_side(rows) | {_BESIDE: text} for rows, text in zip(counted, texts, strict=True)]


def _of_side(rows: Sequence[Row]) -> dict[str, str]:
    def distinct(values: Iterable[Any]) -> str:
        return ", ".join(sorted({str(value) for value in values if value})[:_LISTED])

    return {
        PLACE: distinct(row.get("executor") for row in rows),
        "experiment version": distinct(row["experiment_version"] for row in rows),
        "git commit": distinct(
            row["git_commit"] and row["git_commit"][:12] + (" (dirty)" if row["git_dirty"] else "") for row in rows
        ),
        "host": distinct(row["host"] for row in rows),
        _LOCK: distinct(row["package_lock_digest"][:12] for row in rows),
        "experiment code": distinct(row["code_digest"][:12] for row in rows),
        "environment": distinct(row["environment_digest"][:12] for row in rows),
        "limits": distinct(row["limits"] for row in rows),
        "resources.nodes": distinct(row["nodes"] for row in rows),
        "resources.cpus": distinct(row.get("cpus") for row in rows),
        "resources.gpus": distinct(str(row["gpus"]) for row in rows),
        "resources.memory": distinct(show_bytes(size) if (size := row.get("memory_bytes")) else "any" for row in rows),
    }


def circumstances_of_sides(warehouse: Warehouse, sides: Sequence[Sequence[Row]]) -> list[dict[str, str]]:
    """Return the circumstances of each side. If package locks differ, list the packages that do, from the evidence."""
    facts = circumstances(sides, concurrent_trial_counts(warehouse, sides))
    if len({of_side[_LOCK] for of_side in facts}) == 1:
        return facts
    installed = [_versions(warehouse.workspace.root, trials) for trials in sides]
    if not all(installed):  # the evidence of a side is missing
        return facts
    # The digest remains if neither packages nor the interpreter distinguish the sides.
    return [
        {_PACKAGES if name == _LOCK and packages else name: (name == _LOCK and packages) or value
         for name, value in of_side.items()}
        for of_side, packages in zip(facts, differing(installed), strict=True)
    ]  # fmt: skip


def differing_packages(root: Path, trials: Sequence[Row]) -> str:
    """Return text such as `numpy 1.26.4 | 2.4.0` if trials of one run had different packages; otherwise ""."""
    locks = grouped(trials, itemgetter("package_lock_digest"))
    if len(locks) < 2:
        return ""
    installed = [versions for group in locks.values() if (versions := _versions(root, group))]
    names = _different(installed)
    lines = [f"{name} {' | '.join(dict.fromkeys(_version(each, name) for each in installed))}" for name in names]
    return shortened(lines, _LISTED)


def differing(sides: Sequence[Versions]) -> list[str]:
    """Return, for each side, the packages that differ anywhere: `numpy 1.26.4, torch 2.9.0 and 3 more`."""
    names = _different(sides)
    return [shortened([f"{name} {_version(side, name)}" for name in names], _LISTED) for side in sides]


def _different(sides: Sequence[Versions]) -> list[str]:
    names = sorted({name for side in sides for name in side}, key=str.lower)
    return [name for name in names if len({side.get(name) for side in sides}) > 1]


def _version(side: Versions, name: str) -> str:
    return " or ".join(sorted(side[name])) if name in side else "not installed"


def _versions(root: Path, trials: Sequence[Row]) -> Versions:
    """Return the versions from one trial for each lock digest; empty if one of them can't be read."""
    witnesses = {row["package_lock_digest"]: row["folder"] for row in trials if row["outcome"] == "succeeded"}
    versions: dict[str, frozenset[str]] = {}
    for folder in witnesses.values():
        try:
            trial = TrialFolder(root / folder)
            meta = read_meta(trial)
            packages = read_packages(trial, meta)
        except (OSError, ValueError):
            return {}
        installed = packages | {"Python": meta.python.partition(" ")[0]}
        for name, version in installed.items():
            versions[name] = versions.get(name, frozenset()) | {version}
    return versions
