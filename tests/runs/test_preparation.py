"""From a file to a reviewed plan: notes, estimates, what runs."""

import pytest

from benchhouse.documents.problems import ProblemsError
from benchhouse.runs import preparation
from benchhouse.runs.estimate import estimate
from benchhouse.schema.layout import WorkspaceFolder


@pytest.fixture
def workspace(tmp_path):
    return WorkspaceFolder(tmp_path)


@pytest.fixture
def prepare(workspace):
    def call(text):
        (workspace.root / "s.yaml").write_text(text)
        return preparation.prepare(workspace, workspace.root / "s.yaml")

    return call


def test_component_and_service_choose_the_experiment_and_the_driver(prepare):
    plan = prepare("scenario: s\nworkload: {component: vectordb, service: faiss}\n").plan
    assert (plan.experiment.name, plan.component, plan.service) == ("vector.search", "vectordb", "faiss")
    assert next(plan.instances()).target["driver"] == "faiss"
    assert "service" not in next(plan.instances()).parameters


def test_a_plan_knows_no_time_without_history(prepare, workspace):
    prepared = prepare('scenario: s\nexperiment: command\ntarget: {argv: ["true"]}\n')
    guess = estimate(workspace, prepared.plan, 1)
    assert (guess.seconds, guess.basis) == (None, "no history in this workspace")


def test_the_same_scenario_has_the_same_digest_from_another_file(prepare, workspace):
    text = 'scenario: s\nexperiment: command\ntarget: {argv: ["true"]}\n'
    again = preparation.prepare_text(workspace, text, "elsewhere/other.yaml", workspace.root, preparation.Where())
    assert prepare(text).plan.digest == again.plan.digest


def test_several_experiments_for_one_service_must_be_told_apart(packages, prepare):
    for number in (1, 2):
        code = (
            "from benchhouse import experiment\n"
            f"@experiment('e{number}', version='1', component='c', services=['s'])\ndef run(): ...\n"
        )
        packages.add(f"pack{number}", f"pack_{number}", code, f"e{number} = pack_{number}:run")
    with pytest.raises(ProblemsError, match="several experiments drive c/s: e1, e2"):
        prepare("scenario: s\nworkload: {component: c, service: s}\n")


def test_an_experiment_that_exits_only_on_the_second_import_is_an_error_not_an_exit(packages, prepare, tmp_path):
    mark = tmp_path / "mark"
    code = (
        f"import pathlib, sys\nmark = pathlib.Path({str(mark)!r})\n"
        "if mark.exists():\n    sys.exit(5)\nmark.touch()\ndef run(): ...\n"
    )
    packages.add("pack", "pack_a", code, "odd = pack_a:run")
    with pytest.raises(ProblemsError, match="experiment 'odd' can't be imported: SystemExit: 5"):
        prepare("scenario: s\nexperiment: odd\n")


def places_and_words(caught):
    return [(found.line, found.message) for found in caught.value.problems]


def test_mistakes_of_all_stages_come_in_one_answer_in_the_order_of_the_file(prepare):
    text = (
        "scenario: a b\nexperiment: command\ntarget: {name: t, argv: [$NOT_SET_HERE]}\nrepetitions: 0\n"
        "workload:\n  executoins: 5\n  warmup: many\nexecutor: loca\nruntime: {kind: vnv}\n"
        "environment: {API_KEY: plain}\n"
    )
    with pytest.raises(ProblemsError) as caught:
        prepare(text)
    found = places_and_words(caught)
    assert [line for line, _ in found] == [1, 3, 4, 6, 7, 8, 9, 10]
    assert str(caught.value).endswith(f"8 problems in {caught.value.problems[0].path}")


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("repetitions: 0\ntarget: 5\nexclude: [{x: 1}]\n", [3, 4]),
        ("repetitions: 0\ntraget: {argv: [ls]}\n", [3, 4]),
        ("target: {argv: [ls]}\naxes: [{gird: {x: [1]}}]\nexclude: [{x: 1}]\n", [4]),
        ("target: {argv: [ls]}\nworkload: {executions: $NOT_SET_HERE}\n", [4]),
        ("target: {argv: [ls]}\nrepetitions: $NOT_SET_HERE\n", [4]),
    ],
)
def test_what_only_follows_from_a_mistake_is_not_told(text, lines, prepare):
    with pytest.raises(ProblemsError) as caught:
        prepare("scenario: s\nexperiment: command\n" + text)
    assert [line for line, _ in places_and_words(caught) if line] == lines, str(caught.value)


def test_further_mistakes_never_show_a_line_with_a_secret(prepare):
    with pytest.raises(ProblemsError) as caught:
        prepare("scenario: s\nexperiment: command\ntarget: {argv: [ls]}\nworkload: {warmup: x, api_key: hunter2}\n")
    assert "hunter2" not in str(caught.value)
    assert any("found the text 'x'" in words for _, words in places_and_words(caught))


def test_an_unknown_executor_hides_no_mistake_of_the_workload(prepare):
    with pytest.raises(ProblemsError) as caught:
        prepare("scenario: s\nexperiment: command\ntarget: {argv: [ls]}\nexecutor: loca\nworkload: {warmup: x}\n")
    assert [line for line, _ in places_and_words(caught)] == [4, 5]
