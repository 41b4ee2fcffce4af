"""`ws.run`, `submit`, `resume` and `plan` from Python: what a scenario may be, and how a run goes on."""

import dataclasses
from pathlib import Path

import pytest
import yaml
from pydantic import ValidationError

import benchhouse as bh
from benchhouse.api import comparisons, execution, gates
from benchhouse.results.comparisons import CompareOptions
from benchhouse.results.gate import GateRules
from benchhouse.runs.preparation import Where

pytestmark = pytest.mark.starts

ROWS = "select outcome, count(*) from trial_fact group by all order by all"


@pytest.fixture
def workspace(tmp_path):
    return bh.open(tmp_path)


def test_a_workspace_is_a_folder_that_exists(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert bh.open() == bh.open(".") == bh.open(tmp_path)
    with pytest.raises(bh.BenchError, match="does not exist"):
        bh.open(tmp_path / "nowhere")


class Listener(execution.Quiet):
    def __init__(self):
        self.calls = []

    def begin(self, run_id, plan):
        self.calls.append(("begin", plan.trial_count))

    def update(self, progress):
        self.calls.append(("update", progress.done))

    def end(self):
        self.calls.append(("end", None))


def test_a_scenario_made_in_python_is_run_and_reports_to_a_listener(workspace, tmp_path, greetings):
    (tmp_path / "greetings.yaml").write_text("scenario: greetings\nexperiment: something.else\n")
    listener = Listener()
    run = workspace.run(greetings, progress=listener)
    assert run.summary.outcomes == {"succeeded": 6} and run.exit_code == 0
    assert workspace.query(ROWS).rows == [("succeeded", 6)], "it is collected"
    assert run.record.home == str(tmp_path), "relative paths start there"
    assert Path(run.record.scenario_file) == run.folder / "scenario.yaml", "not the file of the same name"
    assert listener.calls[0] == ("begin", 6) and listener.calls[-1] == ("end", None)
    assert ("update", 6) in listener.calls


def test_a_scenario_in_a_file_is_run_where_the_caller_says(workspace, tmp_path, greetings):
    path = tmp_path / "s.yaml"
    path.write_text(yaml.safe_dump(greetings | {"repetitions": 1}))
    with pytest.raises(bh.BenchError, match="--executor nowhere"):
        workspace.run(path, executor="nowhere")
    run = workspace.run(str(path), executor="local", parallel=2)
    assert run.exit_code == 0 and Path(run.record.scenario_file) == path


def test_every_form_of_a_scenario_gives_the_same_plan(workspace, tmp_path):
    content = {
        "scenario": "quantities",
        "experiment": "command",
        "target": {"argv": ["true"]},
        "workload": {"executions": [1, 2], "timeout": "2m"},
        "axes": [{"grid": {"values.size": {"from": 1, "to": 8, "factor": 2}}}],
        "repetitions": {"until": {"ci": "2%", "max": 6}},
        "limits": {"wall": "2m", "memory": "2GB"},
        "resources": {"memory": "1GB"},
        "budget": {"wall": "1h"},
        "retries": {"backoff": "500ms"},
        "environment": {"SWITCH": "on"},
        "monitors": False,
    }
    (tmp_path / "s.yaml").write_text(yaml.safe_dump(content))
    model = bh.Scenario(**content)
    assert model.limits == bh.Limits(wall=120, memory=2_000_000_000) and model.repetitions.until.ci == 0.02
    sources = (content, tmp_path / "s.yaml", str(tmp_path / "s.yaml"), model)
    plans = [workspace.plan(source)[0] for source in sources]
    assert len({plan.plan_digest for plan in plans}) == 1
    assert {(plan.points, plan.trials) for plan in plans} == {(8, 48)}
    for name in ("limits", "budget", "until", "axes", "resources"):
        first, *others = [getattr(plan, name) for plan in plans]
        assert others == [first] * 3, name


def test_values_of_python_become_yaml(workspace):
    content = {"scenario": "s", "experiment": "command", "target": {"argv": ("echo", Path("a"))}, "repetitions": 1}
    assert workspace.plan(content)[0].trials == 1
    with pytest.raises(bh.BenchError, match="YAML has no form for"):
        workspace.plan(content | {"description": object()})


def test_mistakes_are_raised_together_each_with_its_place(workspace):
    with pytest.raises(bh.ProblemsError) as raised:
        workspace.run({"scenario": "typo", "experiment": "comand", "repetitions": 0, "target": {"argv": ["true"]}})
    problems = {problem.line: problem for problem in raised.value.problems}
    assert isinstance(raised.value, bh.BenchError) and raised.value.exit_code == 2
    assert problems[2].message == "no experiment named 'comand' is installed" and "'command'" in problems[2].expected
    assert 3 in problems and problems[2].path == "<scenario typo>"
    with pytest.raises(ValidationError, match="repetitons"):
        bh.Scenario(scenario="typo", repetitons=3)
    with pytest.raises(bh.BenchError, match=r"missing\.yaml"):
        workspace.run("missing.yaml")
    with pytest.raises(TypeError, match="paralel"):
        workspace.run({"scenario": "s"}, paralel=2)


class Impatient(execution.Quiet):
    """Presses Ctrl-C once the second trial is done."""

    def __init__(self):
        self.notes = []

    def note(self, text):
        self.notes.append(text)

    def update(self, progress):
        if progress.done == 2:
            raise KeyboardInterrupt


def test_an_interrupted_run_keeps_what_is_done_and_goes_on_with_the_same_call(workspace, greetings):
    with pytest.raises(KeyboardInterrupt):
        workspace.run(greetings, progress=Impatient())
    (run,) = workspace.runs()
    assert run.status().state == "interrupted" and run.exit_code == 1
    done = workspace.query("select trial_id from trial_fact").rows
    assert 2 <= len(done) < 6, "what was done is collected"
    again = workspace.run(greetings)
    assert again == run and again.exit_code == 0
    trials = workspace.query("select trial_id, attempt from trial_fact").rows
    assert len(trials) == 6 and {row[0] for row in done} <= {row[0] for row in trials}


def test_an_interrupted_run_is_resumed_by_its_name_also_after_a_new_one(workspace, greetings):
    with pytest.raises(KeyboardInterrupt):
        workspace.run(greetings, progress=Impatient())
    (first,) = workspace.runs()
    second = workspace.run(greetings, new=True)
    assert workspace.runs() == [first, second]
    assert workspace.resume(first.id).status().outcomes == {"succeeded": 6}
    assert workspace.runs() == [first, second]


def test_a_submitted_run_is_waited_for(workspace, greetings):
    submitted = workspace.submit(greetings)
    assert submitted.trials == 6 and submitted.pid
    run = workspace[submitted.run_id].wait(poll_s=0.05)
    assert run.status().state == "finished" and run.exit_code == 0
    assert len({row.trials[0] for row in run.points() if row.headline}) == 2, "it is collected"


def test_keywords_are_the_fields_of_what_they_become():
    """The typed dicts that editors complete say what the values behind them take, and nothing else."""
    places, settings = execution.PlaceKeywords.__annotations__, execution.RunKeywords.__annotations__
    assert set(places) == {field.name for field in dataclasses.fields(Where)} - {"read_only"}
    assert set(settings) - set(places) == {field.name for field in dataclasses.fields(execution.RunSettings)}
    assert set(gates.GateKeywords.__annotations__) == {field.name for field in dataclasses.fields(GateRules)}
    compared = {field.name for field in dataclasses.fields(CompareOptions)}
    assert set(comparisons.PairKeywords.__annotations__) == compared
    assert set(comparisons.CompareKeywords.__annotations__) == compared | {"at", "along", "of"}


def test_all_names_of_the_package_are_there():
    assert [name for name in bh.__all__ if not hasattr(bh, name)] == []
    with pytest.raises(AttributeError, match="nothing"):
        _ = bh.nothing
