"""Read a scenario file: YAML, expanded variables, no secrets, and every mistake with its line."""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from benchhouse.documents.document import Document, Loc
from benchhouse.documents.problems import MOST_PROBLEMS, Problem, ProblemsError, did_you_mean
from benchhouse.documents.validation_errors import from_pydantic
from benchhouse.documents.yaml_reader import parse_yaml
from benchhouse.schema.scenario import Benchmark, Scenario
from benchhouse.schema.secrets import REDACTED, credential, exposed, holds_secret, is_secret_key, reference

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

_VARIABLE = re.compile(r"\$\$|\$\{(\w+)\}|\$([A-Za-z_]\w*)")
_PARAMETERS = ("workload", "target", "targets", "axes", "exclude", "environment", "services")
_NAMES_OF_SECRETS = (("kubernetes", "bucket_secret"),)  # names of objects that hold secrets, not secrets
_RESOLVED = (*_PARAMETERS, "monitors", "ray", "spark")  # keys in which references to secrets are resolved
_SUBJECT = {"experiment", "uses", "version"}  # without these, nothing further can be checked


@dataclass(frozen=True)
class ScenarioFile:
    """A valid scenario with the text it came from."""

    scenario: Scenario
    document: Document
    dropped: frozenset[str] = frozenset()  # top-level keys left out because they are faulty: such a file is never run
    made: str = ""  # its text, if it was made from another file

    @property
    def text(self) -> str:
        """The text that a run stores so that it can be continued."""
        return self.made or self.document.text


def is_space(data: Any) -> bool:
    """Return whether a file is meant as an ado space or operation, not as a scenario."""
    if not isinstance(data, dict) or "scenario" in data:
        return False
    exported = "entitySpace" in space_body(data) or "experiments" in described_experiments(data)
    return exported or isinstance(data.get("experiments"), list) or {"operation", "spaces"} <= data.keys()


def space_body(data: dict[str, Any]) -> dict[str, Any]:
    """Return the part that describes the space, without the wrapper that `ado get space` adds."""
    config = data.get("config")
    return config if isinstance(config, dict) else data


def described_experiments(data: dict[str, Any]) -> dict[str, Any]:
    """Return the experiments if they are a catalog and not a list; empty if it holds no list."""
    catalogue = space_body(data).get("experiments")
    return catalogue if isinstance(catalogue, dict) and isinstance(catalogue.get("experiments"), list) else {}


class FaultyScenarioError(ProblemsError):
    """The mistakes of a scenario file; `rest` is the file without them, in which further mistakes can be found."""

    def __init__(
        self,
        problems: Sequence[Problem],
        rest: ScenarioFile | None = None,
        faults: Collection[tuple[int, int]] = (),
        secret_lines: Collection[int] = (),
    ) -> None:
        super().__init__([_discreet(problem, secret_lines) for problem in problems])
        self.rest, self.faults, self.secret_lines = rest, faults, secret_lines

    def joined_by(self, further: Iterable[Problem]) -> ProblemsError:
        """Return all mistakes as one error, without repetitions and without those that only follow from an unset
        variable.
        """
        joined = list(self.problems)
        for problem in further:
            if problem.path == joined[0].path:
                problem = _discreet(problem, self.secret_lines)
                if (problem.line, problem.column) in self.faults:
                    continue
            joined += [] if problem in joined else [problem]
        return ProblemsError(joined)


def _discreet(problem: Problem, secret_lines: Collection[int]) -> Problem:
    """Return the problem without its source line if that line holds a secret."""
    return replace(problem, source="") if problem.line in secret_lines else problem


def parse_scenario(text: str, path: str, environ: Mapping[str, str]) -> ScenarioFile:
    return read_scenario(parse_yaml(text, path), environ)


def expand_benchmark(document: Document, environ: Mapping[str, str]) -> Benchmark:
    """Return a registered benchmark with its variables expanded."""
    expansion, expanded = _expand(document, environ)
    try:
        read = Benchmark.model_validate(expanded)
    except ValidationError as error:
        expansion.problems += from_pydantic(error, document, Benchmark, expansion.is_news)
    if expansion.problems:
        raise expansion.error(None)
    return read


def read_scenario(document: Document, environ: Mapping[str, str], *, made: str = "") -> ScenarioFile:
    expansion, expanded = _expand(document, environ)
    file = _validate(expanded, expansion)
    if expansion.problems or file is None:
        raise expansion.error(file)
    return replace(file, made=made)


def _expand(document: Document, environ: Mapping[str, str]) -> tuple["_Expansion", Any]:
    """Return the data with variables expanded. `version: 1.10` stays text: as a number it would be 1.1."""
    expansion = _Expansion(document, environ)
    expanded = expansion.expand(document.data, ())
    version = expanded.get("version") if isinstance(expanded, dict) else None

    def written(value: Any, loc: Loc) -> Any:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return document.written(loc) if is_number else value

    if isinstance(version, list):
        version = [written(item, ("version", at)) for at, item in enumerate(version)]
    return expansion, expanded if version is None else expanded | {"version": written(version, ("version",))}


def _validate(expanded: Any, expansion: "_Expansion") -> ScenarioFile | None:
    """Return the scenario without its faulty keys; None if too little is left to know what it would run."""
    document = expansion.document
    dropped = {str(loc[0]) for loc in expansion.faults if loc[0] not in _PARAMETERS}
    while not dropped & _SUBJECT:
        kept = {key: value for key, value in expanded.items() if key not in dropped}
        if "scenario" in dropped:
            kept["scenario"] = "nameless"
        try:
            return ScenarioFile(Scenario.model_validate(kept), document, frozenset(dropped))
        except ValidationError as error:
            expansion.problems += from_pydantic(error, document, Scenario, expansion.is_news)
            faulty = {str(item["loc"][0]) for item in error.errors() if item["loc"]}
            if len(expansion.problems) >= MOST_PROBLEMS:
                return None
            if not faulty:  # keys that cannot be combined
                faulty = {"target", "targets"} if {"target", "targets"} <= kept.keys() else _SUBJECT
            unknown = islice(faulty - Scenario.model_fields.keys(), MOST_PROBLEMS)
            meant = {did_you_mean(key, Scenario.model_fields) for key in unknown}
            dropped |= faulty | {key for key in meant if key and key not in kept}
    return None


@dataclass
class _Expansion:
    document: Document
    environ: Mapping[str, str]
    problems: list[Problem] = field(default_factory=list)
    secrets: list[Loc] = field(default_factory=list)  # those in plain text
    unset: list[Loc] = field(default_factory=list)  # values with a variable that is not set

    def expand(self, value: Any, loc: Loc) -> Any:
        if isinstance(value, dict):
            return {key: self.expand(item, (*loc, key)) for key, item in value.items()}
        if isinstance(value, list):
            return [self.expand(item, (*loc, index)) for index, item in enumerate(value)]
        if value is not None and is_secret_key(_last_key(loc)) and loc not in _NAMES_OF_SECRETS:
            return self._secret(value, loc)
        if not isinstance(value, str):
            return value
        if (secret := exposed(value)) is not None:
            return self._exposed(secret, loc)
        if "$" not in value:
            return value
        return _VARIABLE.sub(lambda match: self._variable(match, loc), value)

    @property
    def faults(self) -> list[Loc]:
        """The locations of values that are not final: any other mistake found there is a consequence."""
        return [*self.secrets, *self.unset]

    def is_news(self, item: "ErrorDetails", at: Loc) -> bool:
        return at not in self.faults and item["loc"] not in self.faults

    def error(self, rest: ScenarioFile | None) -> FaultyScenarioError:
        places = {self.document.position(loc) for loc in self.faults}
        lines = {self.document.position(loc, key)[0] for loc in self.secrets for key in (False, True)}
        return FaultyScenarioError(self.problems, rest, places, lines)

    def _variable(self, match: re.Match[str], loc: Loc) -> str:
        name = match[1] or match[2]
        if not name:
            return "$"
        if name not in self.environ:
            self._unset(name, loc)
            return ""
        if holds_secret(name, self.environ):
            return self._kept(match[0], loc)
        return self.environ[name]

    def _kept(self, value: str, loc: Loc) -> str:
        """Return a reference to a secret unchanged; it is resolved where the secret is used."""
        if loc and loc[0] in _RESOLVED:
            return value
        wrong = f"'{_last_key(loc)}' can't hold a secret, and {value} is one"
        return self._redact(loc, wrong, f"a variable without a secret; secrets go into {', '.join(_RESOLVED)}")

    def _secret(self, value: Any, loc: Loc) -> Any:
        """Return a secret as a reference: the worker resolves it in memory, so plans and evidence never contain it."""
        key, name = _last_key(loc), credential(value)
        if name is None:
            expected = f"a variable: put the secret into the environment and write {key}: $NAME"
            if "headers" in loc:
                expected += ", or 'Bearer $NAME'"
            return self._redact(loc, f"'{key}' is a secret in plain text", expected)
        if name not in self.environ:
            self._unset(name, loc)
        return self._kept(value, loc)

    def _exposed(self, secret: str, loc: Loc) -> str:
        """Report a secret inside a longer text, such as the address of a server."""
        key, name = _last_key(loc), reference(secret)
        wrong = f"'{key}' holds a secret in plain text"
        expected = "a variable in its place: put the secret into the environment and write $NAME_PASSWORD there"
        if name is not None:
            wrong = f"'{key}' has the variable {name} where a secret is, and its name does not say so"
            expected = f"a variable whose name ends in PASSWORD, SECRET, TOKEN or KEY, such as ${name}_PASSWORD"
        return self._redact(loc, wrong, expected)

    def _redact(self, loc: Loc, message: str, expected: str) -> str:
        """Report a secret and return a placeholder for it, so that no message about another value can show it."""
        self.secrets.append(loc)
        self._report(loc, message, expected)
        return REDACTED

    def _unset(self, name: str, loc: Loc) -> None:
        self.unset.append(loc)
        message = f"the environment variable {name} is not set"
        self._report(loc, message, f"export {name}=..., or $$ for a plain $")

    def _report(self, loc: Loc, message: str, expected: str) -> None:
        self.problems.append(self.document.problem(loc, message, expected))
        if len(self.problems) >= MOST_PROBLEMS:
            raise self.error(None)


def _last_key(loc: Loc) -> str:
    """Return the key that a value belongs to, also if the value is in a list under that key."""
    return next((part for part in reversed(loc) if isinstance(part, str)), "")
