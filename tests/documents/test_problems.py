"""Problems read well, and pydantic's findings arrive in the user's words at the right place."""

import pickle
from dataclasses import replace
from enum import StrEnum
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, TypeAdapter, ValidationError, model_validator
from tables import check_table

from benchhouse.documents.problems import Problem, ProblemsError, did_you_mean
from benchhouse.documents.validation_errors import from_pydantic
from benchhouse.documents.yaml_reader import parse_yaml
from benchhouse.schema.errors import BenchError, Exit

UNKNOWN_KEY = Problem(
    "unknown key 'repetition'",
    "scenario.yaml",
    7,
    1,
    "repetition: 3",
    "one of scenario, repetitions",
    "repetitions",
    width=10,
)


class Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Closed(Model):
    kind: Literal["closed"]
    clients: int = Field(ge=1, le=100)


class Open(Model):
    kind: Literal["open"]
    rate: float = Field(gt=0, description="Requests a second.")


class Stage(Model):
    name: str
    load: Annotated[Closed | Open, Field(discriminator="kind")]


class Colour(StrEnum):
    RED = "red"
    GREEN = "green"


class Fetch(Model):
    url: str
    digest: str


class Inline(Model):
    rows: int
    seed: int = 0


def _even(value: Any) -> Any:
    if value == "odd":
        raise ValueError("only even things here")
    return value


class Scenario(Model):
    scenario: str = Field(description="What this is called.")
    repetitions: int = Field(default=1, ge=1)
    stages: list[Stage] = []
    limits: dict[str, int] = {}
    by_number: dict[int, str] = {}
    timeout: int | None = None
    colour: Colour = Colour.RED
    mode: Literal["fast", "slow"] = "fast"
    when: Literal["auto"] | int = "auto"
    data: str | list[str] | Inline | Fetch = "x"
    labels: list[str] = Field(default=[], max_length=2)
    even: Annotated[int | str, BeforeValidator(_even)] = 0
    code: str = Field(default="a", pattern="^[a-z]+$")
    from_: str = Field(default="", alias="from")
    loads: dict[str, Stage | None] = {}
    target: str | Annotated[Closed | Open, Field(discriminator="kind")] = "x"
    pair: tuple[int, Inline] | None = None
    enabled: bool = False

    @model_validator(mode="after")
    def _agrees(self) -> "Scenario":
        if self.repetitions == 13:
            raise ValueError("13 repetitions bring bad luck")
        return self


def problems_of(text: str, model: Any = Scenario) -> list[Problem]:
    document = parse_yaml(text, "s.yaml")
    with pytest.raises(ValidationError) as caught:
        TypeAdapter(model).validate_python(document.data)
    return from_pydantic(caught.value, document, model)


def shown(problems: list[Problem]) -> list[str]:
    return [f"{problem.line}:{problem.column} {problem.message}" for problem in problems]


def test_a_problem_renders_with_its_line_and_a_caret_under_the_fault():
    assert UNKNOWN_KEY.render().splitlines() == [
        "scenario.yaml:7:1: unknown key 'repetition'",
        "    7 | repetition: 3",
        "      | ^^^^^^^^^^",
        "  expected: one of scenario, repetitions",
        "  did you mean 'repetitions'?",
    ]


def test_a_problem_without_a_place_renders_as_one_line():
    assert Problem("too large", "s.yaml", None, None, "").render() == "s.yaml: too large"


def test_carets_stand_right_behind_wide_and_combining_characters():
    line = "日本 e\u0301: x"
    caret = Problem("m", "s.yaml", 1, len(line), line).render().splitlines()[2]
    assert caret == "      | " + " " * 8 + "^"


def test_a_very_long_line_is_cut_around_the_fault():
    problem = Problem("m", "s.yaml", 1, 500_000, "a" * 499_999 + "b" + "a" * 500_000)
    header, source, caret = problem.render().splitlines()
    assert header == "s.yaml:1:500000: m"
    assert len(source) < 120
    assert source[caret.index("^")] == "b"
    assert len(str(problem.as_dict()["source"])) <= 100


def test_the_rendered_source_never_steers_the_terminal():
    assert "\x1b" not in Problem("m", "s.yaml", 1, 1, "a: \x1b[31m\x07").render()


def test_as_dict_is_plain_json_data():
    assert UNKNOWN_KEY.as_dict() == {
        "message": "unknown key 'repetition'",
        "path": "scenario.yaml",
        "line": 7,
        "column": 1,
        "source": "repetition: 3",
        "expected": "one of scenario, repetitions",
        "suggestion": "repetitions",
    }


def test_an_error_shows_all_its_problems_in_the_order_of_the_file_and_counts_them():
    error = ProblemsError([Problem(f"m{line}", "s.yaml", line, 1, "x") for line in (9, 2, 5)])
    assert isinstance(error, BenchError)
    assert error.exit_code is Exit.BAD_INPUT
    assert [problem.line for problem in error.problems] == [2, 5, 9]
    assert str(error).index("m2") < str(error).index("m5") < str(error).index("m9")
    assert str(error).endswith("\n3 problems in s.yaml")


def test_an_error_counts_one_problem_and_several_files_rightly():
    one, other = Problem("m", "a.yaml", 1, 1, "x"), Problem("m", "b.yaml", 1, 1, "x")
    assert str(ProblemsError([one])).endswith("\n1 problem in a.yaml")
    assert str(ProblemsError([one, other])).endswith("\n2 problems in 2 files")


def test_an_error_with_hundreds_of_problems_shows_the_first_hundred():
    error = ProblemsError([Problem(f"m{line}.", "s.yaml", line, 1, "x") for line in range(1, 301)])
    assert "m100." in str(error)
    assert "m101." not in str(error)
    assert str(error).endswith("300 problems in s.yaml, the first 100 shown")


def test_an_error_needs_a_problem_and_survives_pickling():
    with pytest.raises(ValueError, match="at least one"):
        ProblemsError([])
    error = pickle.loads(pickle.dumps(ProblemsError([UNKNOWN_KEY])))
    assert error.problems == [UNKNOWN_KEY]
    assert "unknown key" in str(error)


@check_table(
    "word, meant",
    [
        ("repetition", "repetitions"),
        ("Time-Out", "time_out"),
        ("qqq", None),
        ("", None),
        ("x" * 10_000, None),
    ],
)
def test_did_you_mean_finds_the_near_word_or_none(word, meant):
    assert did_you_mean(word, ["repetitions", "time_out"]) == meant


HEAD = "scenario: s\n"


@check_table(
    "text, expected",
    [
        ("repetitions: 2\n", ["1:1 missing key 'scenario'"]),
        (HEAD + "repetitions: three\n", ["2:14 expected a whole number, found the text 'three'"]),
        (HEAD + "repetitions: 1.5\n", ["2:14 expected a whole number, found the number 1.5"]),
        (HEAD + "repetitions:\n", ["2:13 expected a whole number, found nothing (null)"]),
        (HEAD + "repetitions: [1]\n", ["2:14 expected a whole number, found a list"]),
        (HEAD + "repetitions: 0\n", ["2:14 expected at least 1, found the number 0"]),
        (HEAD + "repetitions: 13\n", ["1:1 13 repetitions bring bad luck"]),
        (HEAD + "timeout: soon\n", ["2:10 expected a whole number, found the text 'soon'"]),
        (HEAD + "enabled: maybe\n", ["2:10 expected true or false, found the text 'maybe'"]),
        ("scenario: 1.10\n", ["1:11 expected text, found the number 1.1"]),
        (HEAD + "stages: x\n", ["2:9 expected a list, found the text 'x'"]),
        (HEAD + "stages: [3]\n", ["2:10 expected a mapping, found the number 3"]),
        (HEAD + "limits: {a: 1, b: x}\n", ["2:19 expected a whole number, found the text 'x'"]),
        (HEAD + "by_number: {x: a}\n", ["2:13 expected a whole number, found the text 'x'"]),
        (HEAD + "labels: [a, b, c]\n", ["2:9 expected at most 2 items, found 3"]),
        (HEAD + "even: odd\n", ["2:7 only even things here"]),
        (HEAD + "code: A1\n", ["2:7 the text 'A1' does not match the pattern ^[a-z]+$"]),
        (HEAD + "from: 3\n", ["2:7 expected text, found the number 3"]),
        (HEAD + "pair: [1, {rows: x}]\n", ["2:18 expected a whole number, found the text 'x'"]),
        (HEAD + "stages:\n- name: a\n  load:\n    kind: open\n", ["4:3 missing key 'rate' in stages[0].load"]),
        (HEAD + "stages:\n- name: a\n  load:\n    rate: 3\n", ["4:3 missing key 'kind' in stages[0].load"]),
        (HEAD + "stages:\n- name: a\n  load: 3\n", ["4:9 expected a mapping, found the number 3"]),
        (HEAD + "loads: {a: {name: n}}\n", ["2:9 missing key 'load' in loads.a"]),
    ],
)
def test_problems_are_reported_with_their_line_and_column(text, expected):
    assert shown(problems_of(text)) == expected


@check_table(
    "text, place, message, listed, meant",
    [
        (HEAD + "repetition: 3\n", (2, 1), "unknown key 'repetition'", "repetitions, stages", "repetitions"),
        (HEAD + "form: 3\n", (2, 1), "unknown key 'form'", "code, from, loads", "from"),
        (
            HEAD + "stages:\n- name: a\n  load: {kind: closed, clients: 2, client: 2}\n",
            (4, 36),
            "unknown key 'client'",
            "one of kind, clients",
            "clients",
        ),
        (
            HEAD + "loads:\n  a:\n    nme: x\n    name: y\n    load: {kind: open, rate: 1}\n",
            (4, 5),
            "unknown key 'nme'",
            "one of name, load",
            "name",
        ),
        (
            HEAD + "target: {kind: open, rate: 1, rat: 2}\n",
            (2, 31),
            "unknown key 'rat'",
            "one of kind, rate",
            "rate",
        ),
        (
            HEAD + "stages:\n- name: a\n  load: {kind: closd}\n",
            (4, 16),
            "unknown kind 'closd'",
            "closed, open",
            "closed",
        ),
        (HEAD + "mode: fats\n", (2, 7), "expected 'fast' or 'slow', found the text 'fats'", "", "fast"),
        (HEAD + "colour: gren\n", (2, 9), "expected 'red' or 'green', found the text 'gren'", "", "green"),
        (HEAD + "when: atuo\n", (2, 7), "expected 'auto' or a whole number, found the text 'atuo'", "", "auto"),
    ],
)
def test_near_misses_list_the_choices_and_suggest_one(text, place, message, listed, meant):
    (problem,) = problems_of(text)
    assert (problem.line, problem.column) == place
    assert problem.message == message
    assert listed in problem.expected
    assert problem.suggestion == meant


def test_the_branches_of_a_union_that_none_fits_become_one_problem():
    assert shown(problems_of(HEAD + "data: 3\n")) == ["2:7 expected text or a list or a mapping, found the number 3"]


def test_the_branch_of_a_union_that_fits_best_speaks_alone():
    assert shown(problems_of(HEAD + "data: [a, 3]\n")) == ["2:11 expected text, found the number 3"]
    assert shown(problems_of(HEAD + "data: {url: u}\n")) == ["2:1 missing key 'digest' in data"]
    assert shown(problems_of(HEAD + "data: {rows: x}\n")) == ["2:14 expected a whole number, found the text 'x'"]


def test_a_key_named_like_a_branch_is_not_mistaken_for_it():
    text = HEAD + "stages:\n- name: a\n  load: {kind: closed, closed: {clients: 1}, clients: x}\n"
    assert shown(problems_of(text)) == [
        "4:55 expected a whole number, found the text 'x'",
        "4:24 unknown key 'closed'",
    ]


def test_text_that_yaml_took_for_a_number_is_shown_as_it_was_written():
    (problem,) = problems_of("scenario: 1.10\n")
    assert problem.expected == 'text in quotes: "1.10"'


def test_a_missing_key_comes_with_its_description():
    (problem,) = problems_of(HEAD + "stages:\n- name: a\n  load:\n    kind: open\n")
    assert problem.expected == "Requests a second."


def test_several_problems_come_back_together():
    text = "repetitions: x\nnope: 1\nstages:\n- load: {kind: closed, clients: 1000}\n"
    assert sorted(shown(problems_of(text))) == [
        "1:1 missing key 'scenario'",
        "1:14 expected a whole number, found the text 'x'",
        "2:1 unknown key 'nope'",
        "4:3 missing key 'name' in stages[0]",
        "4:33 expected at most 100, found the number 1000",
    ]


def test_nothing_of_pydantic_shows():
    text = "repetitions: x\nnope: 1\ndata: 3\nwhen: []\nstages: [{load: {kind: 7}}, 3]\ntarget: {kind: x}\n"
    said = str(ProblemsError(problems_of(text))).lower()
    for jargon in ("pydantic", "http", "input should", "value error", "extra inputs", "valid", "tagged-union"):
        assert jargon not in said


@check_table(
    "word, meant",
    [("rnu", "run"), ("vector", "vector.search"), ("vec", "vector.search"), ("ve", None), ("Vector-", None)],
)
def test_letters_in_another_order_and_beginnings_are_close(word, meant):
    assert did_you_mean(word, ["run", "vector.search.long", "vector.search"]) == meant


@check_table(
    "text, hint",
    [("sync", "[sync]"), ("sync -x", "[sync -x]"), ('"a, b"', '["a, b"]'), ('"no"', '["no"]'), ('"5"', '["5"]')],
)
def test_text_in_place_of_a_list_gets_a_hint(text, hint):
    (found,) = problems_of(f"scenario: s\nlabels: {text}\n")
    assert found.message.startswith("expected a list, found the text")
    assert found.expected == f"a list, e.g. {hint}"


def test_a_list_for_one_is_told_the_key_for_several():
    class Several(Model):
        target: dict[str, int] | str | None = None
        targets: list[dict[str, int]] = []

    (found,) = problems_of("target: [{a: 1}, {b: 2}]\n", Several)
    assert (found.message, found.suggestion) == ("expected a mapping or text, found a list", "targets")


def test_the_count_of_problems_comes_last():
    said = str(ProblemsError([UNKNOWN_KEY, replace(UNKNOWN_KEY, line=9)]))
    assert said.splitlines()[-1] == "2 problems in scenario.yaml"
