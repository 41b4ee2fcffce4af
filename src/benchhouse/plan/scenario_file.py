"""Reading a scenario file: YAML, variables expanded, secrets kept out, every mistake with its line."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from benchhouse.schema.problems import Problem, ProblemsError, from_pydantic
from benchhouse.schema.scenario import Scenario
from benchhouse.schema.secrets import is_secret_key, reference
from benchhouse.schema.yamltext import Document, load_yaml, parse_yaml

_VARIABLE = re.compile(r"\$\$|\$\{(\w+)\}|\$([A-Za-z_]\w*)")
_PARAMETERS = ("workload", "target", "targets", "axes", "environment")


@dataclass(frozen=True)
class ScenarioFile:
    """A valid scenario with the text it came from."""

    scenario: Scenario
    document: Document


def load_scenario(path: Path, environ: Mapping[str, str]) -> ScenarioFile:
    return _read(load_yaml(path), environ)


def parse_scenario(text: str, path: str, environ: Mapping[str, str]) -> ScenarioFile:
    return _read(parse_yaml(text, path), environ)


def _read(document: Document, environ: Mapping[str, str]) -> ScenarioFile:
    problems: list[Problem] = []
    expanded = _expand(document.data, (), document, environ, problems)
    try:
        scenario = Scenario.model_validate(expanded)
    except ValidationError as error:
        problems += from_pydantic(error, document, Scenario)
    if problems:
        raise ProblemsError(problems)
    return ScenarioFile(scenario, document)


def _expand(
    value: Any,
    loc: tuple[str | int, ...],
    document: Document,
    environ: Mapping[str, str],
    problems: list[Problem],
) -> Any:
    if isinstance(value, dict):
        return {key: _expand(item, (*loc, key), document, environ, problems) for key, item in value.items()}
    if isinstance(value, list):
        return [_expand(item, (*loc, index), document, environ, problems) for index, item in enumerate(value)]
    if not isinstance(value, str):
        return value
    if loc and loc[0] in _PARAMETERS and is_secret_key(str(loc[-1])):
        return _secret(value, loc, document, environ, problems)
    if "$" not in value:
        return value

    def variable(match: re.Match[str]) -> str:
        name = match[1] or match[2]
        if not name:
            return "$"
        if name not in environ:
            message = f"the environment variable {name} is not set"
            problems.append(document.problem(loc, message, expected=f"export {name}=..., or $$ for a plain $"))
            return ""
        return environ[name]

    return _VARIABLE.sub(variable, value)


def _secret(
    value: str,
    loc: tuple[str | int, ...],
    document: Document,
    environ: Mapping[str, str],
    problems: list[Problem],
) -> str:
    """A secret stays a reference: the worker resolves it in memory, so plans and evidence never hold it."""
    name = reference(value)
    if name is None:
        message = f"'{loc[-1]}' is a secret in plain text"
        expected = f"a variable: put the secret into the environment and write {loc[-1]}: $NAME"
        problems.append(replace(document.problem(loc, message, expected=expected), source=""))
    elif name not in environ:
        problems.append(document.problem(loc, f"the environment variable {name} is not set"))
    return value
