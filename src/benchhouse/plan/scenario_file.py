"""Reading a scenario file: YAML, variables expanded, secrets kept out, every mistake with its line."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from benchhouse.schema.document import Document, Loc
from benchhouse.schema.misfits import from_pydantic
from benchhouse.schema.problems import Problem, ProblemsError
from benchhouse.schema.scenario import Benchmark, Defined, Scenario
from benchhouse.schema.secrets import is_secret_key, reference
from benchhouse.schema.yamltext import load_yaml, parse_yaml

_VARIABLE = re.compile(r"\$\$|\$\{(\w+)\}|\$([A-Za-z_]\w*)")
_PARAMETERS = ("workload", "target", "targets", "axes", "exclude", "environment")
_D = TypeVar("_D", bound=Defined)


@dataclass(frozen=True)
class ScenarioFile:
    """A valid scenario with the text it came from."""

    scenario: Scenario
    document: Document


def load_scenario(path: Path, environ: Mapping[str, str]) -> ScenarioFile:
    document = load_yaml(path)
    return ScenarioFile(_read(document, environ, Scenario), document)


def parse_scenario(text: str, path: str, environ: Mapping[str, str]) -> ScenarioFile:
    document = parse_yaml(text, path)
    return ScenarioFile(_read(document, environ, Scenario), document)


def expand_benchmark(document: Document, environ: Mapping[str, str]) -> Benchmark:
    """A registered benchmark as it is used: its variables expanded too."""
    return _read(document, environ, Benchmark)


def _read(document: Document, environ: Mapping[str, str], model: type[_D]) -> _D:
    expansion = _Expansion(document, environ)
    expanded = expansion.expand(document.data, ())
    try:
        read = model.model_validate(expanded)
    except ValidationError as error:
        expansion.problems += from_pydantic(error, document, model, lambda item: item["loc"] not in expansion.secrets)
    if expansion.problems:
        raise ProblemsError(list(expansion.discreet_problems()))
    return read


@dataclass
class _Expansion:
    document: Document
    environ: Mapping[str, str]
    problems: list[Problem] = field(default_factory=list)
    secrets: list[Loc] = field(default_factory=list)  # those in plain text

    def expand(self, value: Any, loc: Loc) -> Any:
        if isinstance(value, dict):
            return {key: self.expand(item, (*loc, key)) for key, item in value.items()}
        if isinstance(value, list):
            return [self.expand(item, (*loc, index)) for index, item in enumerate(value)]
        if value is not None and loc and loc[0] in _PARAMETERS and is_secret_key(_last_key(loc)):
            return self._secret(value, loc)
        if not isinstance(value, str) or "$" not in value:
            return value
        return _VARIABLE.sub(lambda match: self._variable(match, loc), value)

    def discreet_problems(self) -> Iterator[Problem]:
        """The problems; a line that holds a secret is not shown, whatever else is wrong with it."""
        lines: set[int] = set()
        for loc in self.secrets:
            lines.update(number for number, _ in (self.document.position(loc), self.document.position(loc, key=True)))
        for problem in self.problems:
            yield replace(problem, source="") if problem.line in lines else problem

    def _variable(self, match: re.Match[str], loc: Loc) -> str:
        name = match[1] or match[2]
        if not name:
            return "$"
        if name not in self.environ:
            self._unset(name, loc)
            return ""
        return self.environ[name]

    def _secret(self, value: Any, loc: Loc) -> Any:
        """A secret stays a reference: the worker resolves it in memory, so plans and evidence never hold it."""
        name = reference(value)
        if name is None:
            key = _last_key(loc)
            expected = f"a variable: put the secret into the environment and write {key}: $NAME"
            self.secrets.append(loc)
            self.problems.append(self.document.problem(loc, f"'{key}' is a secret in plain text", expected))
        elif name not in self.environ:
            self._unset(name, loc)
        return value

    def _unset(self, name: str, loc: Loc) -> None:
        message = f"the environment variable {name} is not set"
        self.problems.append(self.document.problem(loc, message, f"export {name}=..., or $$ for a plain $"))


def _last_key(loc: Loc) -> str:
    """The key that a value belongs to, be it in a list under that key or not."""
    return next((part for part in reversed(loc) if isinstance(part, str)), "")
