"""The dataset of a scenario, as an input of its experiment."""

import hashlib
from typing import Annotated, Literal

import pytest
from pydantic import BaseModel, Field
from tables import check_table

from benchhouse.documents.problems import ProblemsError
from benchhouse.plan.dataset import missing_dataset, with_dataset
from benchhouse.plan.expand import make_plan
from benchhouse.plan.scenario_file import parse_scenario
from benchhouse.schema.experiment import experiment
from benchhouse.schema.input_paths import InputPath
from benchhouse.schema.trial import ExperimentRef


class Made(BaseModel, extra="forbid"):
    kind: Literal["made"] = "made"
    words: int = 3


class FromFile(BaseModel, extra="forbid"):
    kind: Literal["file"] = "file"
    file: InputPath
    sha256: str = ""
    words: int = 3


class Reading(BaseModel, extra="forbid"):
    texts: Annotated[Made | FromFile, Field(discriminator="kind")] = Field(default_factory=Made)
    table: InputPath = ""


@experiment("read", version="1", dataset="texts.file")
def read(workload: Reading) -> None:
    """Read."""


@experiment("count", version="1", dataset="table")
def count(workload: Reading) -> None:
    """Count."""


@experiment("deaf", version="1")
def deaf(workload: Reading) -> None:
    """Takes none."""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "texts.txt").write_text("one\n")
    return tmp_path


SHA256 = hashlib.sha256(b"one\n").hexdigest()


def bound(folder, more, code=read):
    file = parse_scenario(f"scenario: s\nexperiment: {code.name}\n{more}", str(folder / "s.yaml"), {})
    return with_dataset(file, code, folder)


def plan(folder, more, code=read):
    ref = ExperimentRef(name=code.name, version="1", object="", distribution="", distribution_version="")
    return make_plan(bound(folder, more, code), code, ref)


def test_it_becomes_the_input_that_the_experiment_declares(folder):
    (point,) = plan(folder, "artifacts: {dataset: texts.txt}\nworkload: {texts: {words: 5}}\n").instances()
    assert point.parameters["texts"] == {"kind": "file", "file": "texts.txt", "sha256": SHA256, "words": 5}
    (point,) = plan(folder, "artifacts: {dataset: texts.txt}\n", count).instances()
    assert point.parameters["table"] == "texts.txt"


def test_axes_inside_the_same_input_stay_axes(folder):
    made = plan(folder, "artifacts: {dataset: texts.txt}\naxes: [{grid: {texts.words: [1, 2]}}]\n")
    assert [point.parameters["texts"]["words"] for point in made.instances()] == [1, 2]
    assert {point.parameters["texts"]["file"] for point in made.instances()} == {"texts.txt"}


def test_other_content_is_another_point(folder):
    text = "artifacts: {dataset: texts.txt}\n"
    before = plan(folder, text).digest
    assert plan(folder, text).digest == before
    (folder / "texts.txt").write_text("two\n")
    assert plan(folder, text).digest != before


def test_what_the_workload_says_alike_is_no_contradiction(folder):
    more = "artifacts: {dataset: ./texts.txt}\nworkload: {texts: {kind: file, file: texts.txt}}\n"
    assert bound(folder, more).scenario.workload["texts"]["sha256"] == SHA256


@check_table(
    "more, code, line, message",
    [
        ("artifacts: {dataset: texts.txt}", deaf, 3, "deaf takes no dataset"),
        ("artifacts: {dataset: .}", read, 3, "can't be read: Is a directory"),
        ("artifacts: {dataset: 'http://host/x'}", read, 3, "a dataset is a file"),
        (f"artifacts:\n  dataset: {{path: texts.txt, sha256: {'0' * 64}}}", read, 4, "it has changed since"),
        ("artifacts: {dataset: texts.txt}\nworkload: {texts: {kind: made}}", read, 4, "'kind' is the text 'made'"),
        ("artifacts: {dataset: texts.txt}\nworkload: {texts: {file: other.txt}}", read, 4, "'file' is the text"),
        ("artifacts: {dataset: texts.txt}\nworkload: {texts: [1, 2]}", read, 4, "artifacts.dataset says where"),
        ("artifacts: {dataset: texts.txt}\nworkload: {table: x}", count, 4, "'table' is the text 'x'"),
    ],
)
def test_a_dataset_that_does_not_fit_is_reported_with_its_line(folder, more, code, line, message):
    with pytest.raises(ProblemsError) as refused:
        bound(folder, more, code)
    (problem,) = refused.value.problems
    assert problem.line == line
    assert message in problem.message


def test_what_is_not_here_can_be_planned_for_without_a_digest(folder):
    text = "artifacts: {dataset: no.txt}\n"
    (point,) = plan(folder, text).instances()
    assert point.parameters["texts"] == {"kind": "file", "file": "no.txt", "sha256": "", "words": 3}
    (problem,) = missing_dataset(bound(folder, text), folder)
    assert problem.line == 3 and "no.txt does not exist" in problem.message
    assert missing_dataset(bound(folder, "artifacts: {dataset: texts.txt}\n"), folder) == []


def test_a_key_that_nothing_uses_is_refused():
    with pytest.raises(ProblemsError, match="unknown key 'model'"):
        parse_scenario("scenario: s\nartifacts: {model: x}\n", "s.yaml", {})
