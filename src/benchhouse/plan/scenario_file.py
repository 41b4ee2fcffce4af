"""Reading a scenario file: YAML, variables expanded, secrets kept out, every mistake with its line."""

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
_NAMES_OF_SECRETS = (("kubernetes", "bucket_secret"),)  # names of objects that hold secrets, and none themselves
_RESOLVED = (*_PARAMETERS, "monitors", "ray", "spark")  # where references to secrets are understood
_SUBJECT = {"experiment", "uses", "version"}  # without these, nothing further can be said


@dataclass(frozen=True)
class ScenarioFile:
    """A valid scenario with the text it came from."""

    scenario: Scenario
    document: Document
    dropped: frozenset[str] = frozenset()  # top-level keys left out because they are faulty: such a file is never run
    made: str = ""  # its text, where it was made of another file

    @property
    def text(self) -> str:
        """What a run keeps to be carried on by."""
        return self.made or self.document.text


def is_space(data: Any) -> bool:
    """Whether a file is meant as a space or an operation of ado, not as a scenario of ours."""
    if not isinstance(data, dict) or "scenario" in data:
        return False
    exported = "entitySpace" in space_body(data) or "experiments" in described_experiments(data)
    return exported or isinstance(data.get("experiments"), list) or {"operation", "spaces"} <= data.keys()


def space_body(data: dict[str, Any]) -> dict[str, Any]:
    """What describes the space, where `ado get space` has wrapped it."""
    config = data.get("config")
    return config if isinstance(config, dict) else data


def described_experiments(data: dict[str, Any]) -> dict[str, Any]:
    """The experiments, where they are a catalogue and not a list; empty where it holds no list."""
    catalogue = space_body(data).get("experiments")
    return catalogue if isinstance(catalogue, dict) and isinstance(catalogue.get("experiments"), list) else {}


class FaultyScenarioError(ProblemsError):
    """The mistakes of a scenario file; `rest` is what is left without them, to be searched for further ones."""

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
        """All mistakes in one; what follows only from a variable that is not set, or was told before, is left out."""
        joined = list(self.problems)
        for problem in further:
            if problem.path == joined[0].path:
                problem = _discreet(problem, self.secret_lines)
                if (problem.line, problem.column) in self.faults:
                    continue
            joined += [] if problem in joined else [problem]
        return ProblemsError(joined)


def _discreet(problem: Problem, secret_lines: Collection[int]) -> Problem:
    """A line that holds a secret is not shown, whatever else is wrong with it."""
    return replace(problem, source="") if problem.line in secret_lines else problem


def parse_scenario(text: str, path: str, environ: Mapping[str, str]) -> ScenarioFile:
    return read_scenario(parse_yaml(text, path), environ)


def expand_benchmark(document: Document, environ: Mapping[str, str]) -> Benchmark:
    """A registered benchmark as it is used: its variables expanded too."""
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
    """The data with its variables expanded. `version: 1.10` means what is written: as a number it would be 1.1."""
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
    """The scenario, without what is faulty in it; None where too little is left to say what it would run."""
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
            if not faulty:  # keys that don't go together
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
        """Values that are not what they will be: whatever else is found there follows from that."""
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
        """A reference as it is written: whoever needs the secret puts it in."""
        if loc and loc[0] in _RESOLVED:
            return value
        wrong = f"'{_last_key(loc)}' can't hold a secret, and {value} is one"
        return self._redact(loc, wrong, f"a variable without a secret; secrets go into {', '.join(_RESOLVED)}")

    def _secret(self, value: Any, loc: Loc) -> Any:
        """A secret stays a reference: the worker resolves it in memory, so plans and evidence never hold it."""
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
        """A secret inside a longer text, such as the address of a server."""
        key, name = _last_key(loc), reference(secret)
        wrong = f"'{key}' holds a secret in plain text"
        expected = "a variable in its place: put the secret into the environment and write $NAME_PASSWORD there"
        if name is not None:
            wrong = f"'{key}' has the variable {name} where a secret is, and its name does not say so"
            expected = f"a variable whose name ends in PASSWORD, SECRET, TOKEN or KEY, such as ${name}_PASSWORD"
        return self._redact(loc, wrong, expected)

    def _redact(self, loc: Loc, message: str, expected: str) -> str:
        """What stands in place of a secret, so that no message about another value can show it."""
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
    """The key that a value belongs to, be it in a list under that key or not."""
    return next((part for part in reversed(loc) if isinstance(part, str)), "")
