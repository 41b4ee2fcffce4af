"""Logical benchmarks: list them, check them against what is installed, and turn one into a scenario that runs."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchhouse.catalog.listing import Listed, list_experiments, resolve, version_key
from benchhouse.catalog.logical import (
    Logical,
    Unreadable,
    by_experiment,
    find_logical,
    fits_version,
    list_logical,
    read_logical,
)
from benchhouse.catalog.logical_checks import Facts, MetricFacts, check_experiments
from benchhouse.documents.problems import Problem, ProblemsError, guess_hint
from benchhouse.documents.yaml_reader import load_yaml
from benchhouse.documents.yaml_writer import dump_yaml
from benchhouse.evidence.writing import write_text
from benchhouse.plan.input_fields import fields_of
from benchhouse.plan.logical import LogicalSelection, make_scenario
from benchhouse.schema.digests import digest
from benchhouse.schema.errors import BenchError, unwritable
from benchhouse.schema.layout import WorkspaceFolder
from benchhouse.schema.nexus import Binding, BoundExperiment, is_logical
from benchhouse.sites import places


@dataclass(frozen=True)
class LogicalSummary:
    """A logical benchmark and the experiments that answer it, or a file that can't be read (`broken`)."""

    benchmark: str
    target: str
    properties: list[str]
    metrics: list[str]
    experiments: list[str]
    """The experiments that its bindings name."""
    file: str
    broken: str | None = None


@dataclass(frozen=True)
class LogicalFileCheck:
    """The result of checking one file."""

    path: str
    name: str
    problems: list[Problem]
    error: BenchError | None = None  # set if the file can't be read at all
    bindings: int = 0

    @property
    def good(self) -> bool:
        return not self.problems and self.error is None

    @property
    def failure(self) -> BenchError:
        """All problems in one error."""
        return ProblemsError(self.problems) if self.problems else self.error or BenchError(f"{self.path} is good")

    def as_dict(self) -> dict[str, Any]:
        problems = self.problems or list(getattr(self.error, "problems", []))
        return {
            "file": self.path,
            "benchmark": self.name,
            "valid": self.good,
            "error": self.error.message if self.error else None,
            "problems": [problem.as_dict() for problem in problems],
        }


def roots(workspace: WorkspaceFolder, nexus: str | Path | None = None) -> list[Path]:
    """Return the folders of logical benchmarks: the nexus, and the workspace if that is another folder."""
    root = places.nexus(nexus, workspace.root)
    if nexus and root:
        return [root]
    return list(dict.fromkeys([*([root.resolve()] if root else []), workspace.root.resolve()]))


def benchmarks(workspace: WorkspaceFolder, nexus: str | Path | None = None) -> list[LogicalSummary]:
    """Return every logical benchmark with its experiments; a file that can't be read has `broken`."""
    good, broken = list_logical(*roots(workspace, nexus))
    readable = [
        LogicalSummary(
            benchmark=item.name,
            target=item.file.logical_benchmark.target.identifier,
            properties=list(item.properties),
            metrics=list(item.metrics),
            experiments=list(by_experiment(item.file.bindings)),
            file=item.document.path,
        )
        for item in good
    ]
    return readable + [LogicalSummary("", "", [], [], [], item.path, item.error.message) for item in broken]


def validate_file(path: Path) -> LogicalFileCheck | None:
    """Check one file. Return None if it is not meant as a logical benchmark."""
    if not is_logical(load_yaml(path).data):
        return None
    return _check(read_logical(path), list_experiments(places.cache()))


def validate(workspace: WorkspaceFolder, nexus: str | Path | None = None) -> list[LogicalFileCheck]:
    """Check every logical benchmark on its own and against the experiments that its bindings name."""
    good, broken = list_logical(*roots(workspace, nexus))
    installed = list_experiments(places.cache())
    return [*(_check(item, installed) for item in broken), *(_check(item, installed) for item in good)]


def find(workspace: WorkspaceFolder, name: str, nexus: str | Path | None = None) -> Logical:
    return find_logical(name, *roots(workspace, nexus))


def bindings_to(logical: Logical, experiment: str | None) -> list[Binding]:
    """Return the bindings to an experiment, or all of them. Raise BenchError if there is none."""
    bindings = [
        item
        for item in logical.file.bindings
        if experiment in (None, item.experiment.experiment_identifier, item.experiment.listed_name)
    ]
    if not bindings:
        offered = list(by_experiment(logical.file.bindings))
        hint = guess_hint(experiment or "", offered)
        raise BenchError(f"'{logical.name}' has no binding to '{experiment}'", f"{hint}it has: {', '.join(offered)}")
    return bindings


def scenario_file(
    workspace: WorkspaceFolder, name: str, asked: LogicalSelection, experiment: str | None = None
) -> Path:
    """Write a logical benchmark as a scenario of the experiment that answers it, under `.bench/logical/`."""
    logical = find(workspace, name)
    installed = list_experiments(places.cache())
    scenario = _first_scenario(logical, _choose(logical, installed, experiment), installed, asked)
    text = dump_yaml(_literal(scenario))
    path = workspace.state / "logical" / f"{logical.name}-{digest(text)[:8]}.yaml"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, text)
    except OSError as error:
        raise unwritable(path.parent, error) from error
    return path


def _first_scenario(
    logical: Logical, choices: Sequence[tuple[Binding, Listed]], installed: Sequence[Listed], asked: LogicalSelection
) -> dict[str, Any]:
    """Return the scenario of the first binding that has the point. An experiment may have several, each for a part."""
    refused: BenchError | None = None
    for binding, experiment in choices:
        if problems := _check(logical, installed, only=binding).problems:
            raise ProblemsError(problems)
        try:
            return make_scenario(logical, binding, experiment.name, experiment.version, asked)
        except BenchError as error:
            refused = refused or error
    assert refused
    raise refused


def _literal(data: Any) -> Any:
    """Return data escaped for a scenario, so that `$` does not start a variable."""
    if isinstance(data, dict):
        return {key: _literal(value) for key, value in data.items()}
    if isinstance(data, list):
        return [_literal(item) for item in data]
    return data.replace("$", "$$") if isinstance(data, str) else data


def _choose(logical: Logical, installed: Sequence[Listed], wanted: str | None) -> list[tuple[Binding, Listed]]:
    """Return the bindings to run: those to the given experiment, or otherwise to the only installed one."""
    choices: list[tuple[Binding, Listed]] = []
    error: BenchError | None = None
    for binding in bindings_to(logical, wanted):
        try:
            choices.append((binding, _installed(binding.experiment, installed)))
        except BenchError as refused:
            error = refused
    if not choices and error:
        raise error
    names = list(dict.fromkeys(item.name for _, item in choices))
    if len(names) > 1:
        message = f"several experiments answer '{logical.name}': {', '.join(names)}"
        raise BenchError(message, "choose one: --experiment NAME")
    return choices


def _installed(bound: BoundExperiment, listed: Sequence[Listed]) -> Listed:
    """Return the installed experiment of a binding: its version, or otherwise the newest of the same MAJOR."""
    name, version = bound.listed_name, bound.experiment_version
    fitting = [item.version for item in listed if item.name == name and fits_version(version, item.version)]
    if version and fitting and version not in fitting:
        version = max(fitting, key=version_key)
    return resolve(name, version or None, listed)


def _check(item: Logical | Unreadable, installed: Sequence[Listed], only: Binding | None = None) -> LogicalFileCheck:
    """Return all problems at once, including those in the readable part of a faulty file."""
    logical = item.logical if isinstance(item, Unreadable) else item
    problems = list(getattr(item.error, "problems", [])) if isinstance(item, Unreadable) else []
    if logical is None:
        assert isinstance(item, Unreadable)
        return LogicalFileCheck(item.path, Path(item.path).stem, problems, item.error)
    problems += check_experiments(logical.file, logical.document, lambda binding: _facts(binding, installed), only)
    return LogicalFileCheck(logical.document.path, logical.name, problems, bindings=len(logical.file.bindings))


def _facts(binding: Binding, installed: Sequence[Listed]) -> Facts | str:
    try:
        code = _installed(binding.experiment, installed).code()
    except BenchError as error:
        return error.message
    except (Exception, SystemExit) as error:  # noqa: BLE001 - a stranger's module may raise anything
        return f"it can't be imported: {type(error).__name__}: {error}"
    target = code.target_model
    inputs = set(fields_of(code.workload_model)) | {"target"}
    inputs |= {name for field in fields_of(target) for name in (field, f"target.{field}")} if target else {"target.*"}
    metrics = {item.name: MetricFacts(item.unit, item.direction) for item in code.metrics}
    return Facts(frozenset(inputs), metrics if metrics or code.strict_metrics else None)
