"""From a file to a reviewed plan: notes, estimates, what runs."""

import json

import pytest

from benchhouse.api import catalogue, planning
from benchhouse.schema.layout import Workspace
from benchhouse.schema.problems import ProblemsError


@pytest.fixture
def workspace(tmp_path):
    return Workspace(tmp_path)


@pytest.fixture
def prepare(workspace):
    def call(text):
        (workspace.root / "s.yaml").write_text(text)
        return planning.prepare(workspace, workspace.root / "s.yaml")

    return call


def test_component_and_service_choose_the_experiment_and_the_driver(prepare):
    plan = prepare("scenario: s\nworkload: {component: vectordb, service: faiss}\n").plan
    assert (plan.experiment.name, plan.component, plan.service) == ("vector.search", "vectordb", "faiss")
    assert next(plan.instances()).target["driver"] == "faiss"
    assert "service" not in next(plan.instances()).parameters


def test_a_plan_knows_no_time_without_history(prepare, workspace):
    prepared = prepare('scenario: s\nexperiment: command\ntarget: {argv: ["true"]}\n')
    guess = planning.estimate(workspace, prepared.plan, 1)
    assert (guess.seconds, guess.basis) == (None, "no history in this workspace")


def test_the_same_scenario_has_the_same_digest_from_another_file(prepare, workspace):
    text = 'scenario: s\nexperiment: command\ntarget: {argv: ["true"]}\n'
    again = planning.prepare_text(workspace, text, "elsewhere/other.yaml", workspace.root)
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


def test_show_gives_plain_data(workspace):
    shown = catalogue.show(workspace, "vector.search", None)
    assert json.loads(json.dumps(shown)) == shown
    assert {item["name"] for item in shown["workload"]} >= {"vectors", "dimensions"}
