"""Evaluations in the background, asked for by id: one each, whatever is killed in between; also from a comment."""

import os
import signal
import time

import pytest

from benchhouse.api import evaluation
from benchhouse.api.chat import ChatActions
from benchhouse.api.workspace import Workspace
from benchhouse.automation.github.commands import CommentCommand
from benchhouse.automation.github.deliveries import CommandOrder
from benchhouse.nexus.evaluation_ledger import Used, find_evaluation
from benchhouse.runs.ledger import list_runs, new_run_id
from benchhouse.schema.errors import BenchError
from benchhouse.schema.resources import Budget

pytestmark = pytest.mark.starts

CODE = """
import pathlib, time
from benchhouse import Metric, experiment

@experiment("eval.one", version="1.0", metrics=[Metric(name="score", unit="1", direction="higher")])
def run(model: str, marks: str, batch: int = 1):
    "Wait while it is held."
    folder = pathlib.Path(marks)
    with (folder / "began").open("a") as file:
        file.write(f"{batch}\\n")
    while (folder / f"hold-{batch}").exists():
        time.sleep(0.02)
    return {"score": float(batch)}
"""
ALL = {"all": True}


@pytest.fixture
def workspace(tmp_path, packages) -> Workspace:
    """A nexus with three benchmarks of one trial each; the second is held by `hold-2`."""
    packages.add("eval-one", "eval_one", CODE, "eval.one = eval_one:run")
    home = tmp_path / "packages/one"
    for number in (1, 2, 3):
        folder = home / f"models/m/benchmark_instances/b{number}"
        folder.mkdir(parents=True)
        workload = f"{{marks: '{tmp_path}', batch: {number}}}"
        (folder / "scenario.yaml").write_text(f"scenario: s{number}\nexperiment: eval.one\nworkload: {workload}\n")
    (home / "nexus.yaml").write_text("package: {name: one}\n")
    (home / "models/m/model.yaml").write_text("model: {id: org/m}\n")
    return Workspace(tmp_path)


def until(what, seconds=120):
    deadline = time.monotonic() + seconds
    while not (answer := what()):
        assert time.monotonic() < deadline, "too late"
        time.sleep(0.05)
    return answer


def ended(workspace, name, state="ended"):
    return until(lambda: (item := workspace.evaluations[name]).state == state and item)


def began(workspace) -> list[str]:
    path = workspace.root / "began"
    return path.read_text().split() if path.exists() else []


def test_asked_for_twice_there_is_one_also_after_a_kill_before_it_began(workspace):
    name = new_run_id()
    evaluation.create(workspace, ALL, evaluation_id=name, by="ada")  # here the server is killed
    assert workspace.evaluations[name].state == "planned" and list_runs(workspace.folder) == []
    workspace.evaluations.submit(name, by="ada", **ALL)
    workspace.evaluations.submit(name, by="ada", **ALL)
    done = ended(workspace, name)
    assert [(run.benchmark, run.state) for run in done.runs] == [(f"one/m/b{n}", "complete") for n in (1, 2, 3)]
    workspace.evaluations.submit(name, by="ada", **ALL)
    assert sorted(run.run_id for run in done.runs) == list_runs(workspace.folder) and began(workspace) == list("123")
    assert {workspace[run.run_id].record.submitter for run in done.runs} == {"ada"}


def test_a_kill_9_in_the_middle_of_a_run_is_carried_on_and_measures_nothing_twice(workspace):
    (workspace.root / "hold-2").touch()
    name = workspace.evaluations.submit(**ALL).evaluation_id
    until(lambda: "2" in began(workspace))
    running = find_evaluation(workspace.folder, name)
    with pytest.raises(BenchError, match="is being worked on"):
        workspace.evaluations.carry_on(name)
    os.kill(running.owner(), signal.SIGKILL)
    cut_off = ended(workspace, name, "interrupted")
    assert [run.state for run in cut_off.runs] == ["complete", "begun", "waiting"]
    (workspace.root / "hold-2").unlink()
    done = workspace.evaluations.carry_on(name[:-1])
    assert [run.run_id for run in done.runs][:2] == [run.run_id for run in cut_off.runs][:2]
    assert done.exit_code == 0 and len(list_runs(workspace.folder)) == 3
    assert began(workspace).count("1") == began(workspace).count("3") == 1


def test_the_id_of_a_run_is_on_disk_before_the_run_is(workspace):
    ledger = evaluation.create(workspace, ALL)
    line = ledger.begin(0, None)  # here it is killed, before the run is made
    done = workspace.evaluations.carry_on("@last")
    assert done.runs[0].run_id == line.run_id and len(list_runs(workspace.folder)) == 3


def test_it_is_stopped_and_carried_on_within_the_budget_of_all(workspace):
    (workspace.root / "hold-2").touch()
    name = workspace.evaluations.submit(**ALL, budget=Budget(trials=4)).evaluation_id
    until(lambda: "2" in began(workspace))
    stopped = workspace.evaluations.stop(name)
    assert stopped.stopped_pid and stopped.run_id == workspace.evaluations[name].runs[1].run_id
    (workspace.root / "hold-2").unlink()
    workspace.evaluations.resume(name)
    assert [run.state for run in ended(workspace, name).runs] == ["complete"] * 3
    for spent, state in ((0, "complete"), (2, "incomplete")):  # in an earlier session
        again = evaluation.create(workspace, {"package": "one", "again": True, "budget": Budget(trials=3)})
        again.write(again.begin(spent, None).model_copy(update={"state": state, "used": Used(trials=3)}))
        runs = workspace.evaluations.carry_on(again.folder.evaluation_id).runs
        rest = [run for number, run in enumerate(runs) if number != spent]
        assert {(run.state, run.why) for run in rest} == {("not run", "the budget of the evaluation is spent: trials")}


def test_it_takes_an_admin_whoever_carries_it_on(workspace):
    trusted = workspace.root / "trusted.yaml"
    trusted.write_text("people: {ada: {role: admin}, bob: {role: approve}}\n")
    with pytest.raises(BenchError, match="evaluate needs the role admin, and bob has the role approve"):
        workspace.evaluations.submit(by="bob", **ALL)
    name = evaluation.create(workspace, ALL, by="ada").folder.evaluation_id
    trusted.write_text("people: {ada: {role: run}}\n")
    with pytest.raises(BenchError, match="ada has the role run"):
        workspace.evaluations.carry_on(name)
    assert list_runs(workspace.folder) == []
    deeds, stop = ChatActions(workspace, lambda text: None), CommentCommand("stop", name)
    trusted.write_text("people: {ada: {role: admin}, bob: {role: approve}}\n")
    with pytest.raises(BenchError, match="ending an evaluation needs the role admin, and bob has the role approve"):
        deeds.answer(stop, "bob", CommandOrder("k", "team/bench", "bob-l", "", 7), [])
    assert "is stopped" in deeds.answer(stop, "ada", CommandOrder("k", "team/bench", "ada-l", "", 7), [])


def test_a_comment_evaluates_and_is_answered(workspace):
    deeds, name = ChatActions(workspace, lambda text: None), new_run_id()
    command, order = (
        CommentCommand("evaluate", settings=(("package", "one"),)),
        CommandOrder("k", "team/bench", "ada-l", "", 7),
    )
    (workspace.root / "hold-2").touch()
    for _ in range(2):  # killed between the start and the mark
        deeds.start(command, name, "ada")
    until(lambda: "2" in began(workspace))
    assert "running, 1 of 3 runs done" in deeds.progress(name, 5.0).text
    assert "one/m/b2" in deeds.answer(CommentCommand("status"), "ada", order, [name])
    (workspace.root / "hold-2").unlink()
    ended(workspace, name)
    over = deeds.progress(name, 500.0)
    assert over.good and "3 of 3 runs done" in over.text and over.final.count("1 succeeded") == 3
    reused, nothing = new_run_id(), ChatActions(workspace, lambda text: None)
    nothing.start(command, reused, "ada")
    assert "nothing to run: what it asks for was measured before (3 reused" in nothing.progress(reused, 1.0).final
    assert len(list_runs(workspace.folder)) == 3
