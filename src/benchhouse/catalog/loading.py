"""Load Experiment objects from an entry point: an Experiment, a list of them, a module, or a plain function."""

from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

from benchhouse.catalog.entries import EntryPointLine, load_object
from benchhouse.schema.digests import digest, file_digest
from benchhouse.schema.errors import BenchError
from benchhouse.schema.experiment import Experiment, from_function
from benchhouse.schema.trial import ExperimentRef


def experiments_of(loaded: Any, entry_name: str, distribution_version: str) -> list[Experiment]:
    """Return the experiments of one entry point; a plain function gets the entry point's name (`name[@version]`)."""
    if isinstance(loaded, Experiment):
        return [loaded]
    if isinstance(loaded, ModuleType):
        return [item for item in vars(loaded).values() if isinstance(item, Experiment)]
    if isinstance(loaded, list | tuple) and all(isinstance(item, Experiment) for item in loaded):
        return list(loaded)
    if callable(loaded):
        name, _, version = entry_name.partition("@")
        return [from_function(loaded, name, version or distribution_version)]
    raise BenchError(f"entry point '{entry_name}' is a {type(loaded).__name__}, not an experiment or a function")


def load(ref: ExperimentRef) -> Experiment:
    """Return the experiment that `ref` names. Another name or version is refused, never run."""
    if ref.bridge:
        from benchhouse.catalog.ado_experiments import load_ado

        return load_ado(ref)
    entry_name = f"{ref.name}@{ref.version}"
    experiments = experiments_of(load_object(ref.object), entry_name, ref.distribution_version)
    for experiment in experiments:
        if (experiment.name, experiment.version) == (ref.name, ref.version):
            return experiment
    offered = ", ".join(f"{item.name} {item.version}" for item in experiments) or "nothing"
    raise BenchError(f"{ref.object} offers {offered}, not {ref.name} {ref.version}: was the package changed?")


def preload(bridge: str) -> None:
    """Import ado early, because that takes longer than most experiments. A failure is reported at the first load."""
    if bridge:
        with suppress(Exception):
            import_module("ado.modules.actuators.custom_experiments")


def load_entry(entry: EntryPointLine) -> list[Experiment]:
    return experiments_of(load_object(entry.object), entry.name, entry.distribution_version)


def code_digest(ref: ExperimentRef) -> str:
    """Return a digest of the Python files of the package that holds the experiment, which changes with the code."""
    top = ref.object.partition(":")[0].partition(".")[0]
    spec = find_spec(top)  # also for modules that are not imported: the files are read, not run
    if spec is not None and spec.submodule_search_locations is not None:
        files = sorted(
            (path.relative_to(root).as_posix(), path)
            for root in map(Path, spec.submodule_search_locations)
            for path in root.rglob("*.py")
        )
    else:
        files = [("", Path((spec.origin if spec else None) or ""))]
    return digest([[name, file_digest(path)] for name, path in files])
