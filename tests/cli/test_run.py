"""`bench run` as a person meets it."""

import json

import pytest


def test_progress_goes_to_stderr_and_data_to_stdout(lab):
    done = lab.bench("run", lab.scenario("once", workload={"n": [0, 1]}))
    assert "2 points, 2 trials of once 1.0 on local" in done.stderr
    assert f"next:  bench report {lab.run_id()}" in done.stderr
    assert "n=0" in done.stdout
    assert "next" not in done.stdout


def test_json_is_the_whole_of_stdout(lab):
    (lab.marks / "bad").touch()
    done = lab.bench("run", lab.scenario("once", workload={"n": [0, 1]}), "--json", code=1)
    shown = json.loads(done.stdout)
    assert shown["outcomes"] == {"failed": 1, "succeeded": 1}
    assert shown["complete"] is True
    (failure,) = shown["failures"]
    assert (failure["code"], failure["message"]) == ("bad", "the file is there")


def test_a_failure_shows_its_folder_and_the_line_that_runs_it_again(lab):
    (lab.marks / "bad").touch()
    done = lab.bench("run", lab.scenario("once", workload={"n": [1]}), code=1)
    (trial,) = lab.trials()
    assert str(trial.folder) in done.stderr
    assert f"bench run --resume {lab.run_id()} --rerun-failed" in done.stderr
    (lab.marks / "bad").unlink()
    lab.bench("run", trial.folder / "effective_config.yaml")


def test_lost_trials_leave_the_run_unfinished_and_the_next_run_tries_them(lab):
    done = lab.bench("run", lab.scenario("mischief", workload={"act": ["ok", "kill_worker"]}), code=1)
    assert "1 lost, 1 succeeded" in done.stderr
    assert "lost trials are run again by" in done.stderr
    again = lab.bench("run", "s.yaml", code=1)
    assert "resuming run" in again.stderr
    assert len({event["attempt"] for event in lab.events() if event.get("outcome") == "lost"}) == 6
    lab.is_tidy()


@pytest.mark.parametrize("args", [(), ("--resume", "nothing")])
def test_what_is_missing_is_asked_for(lab, args):
    done = lab.bench("run", *args, code=2)
    assert "bench run SCENARIO.yaml" in done.stderr


def test_a_run_whose_plan_has_changed_is_not_resumed(lab):
    lab.run("once", code=1, workload={"n": [0, 1]}, budget={"trials": 1})
    stored = lab.workspace / ".bench" / "runs" / lab.run_id() / "scenario.yaml"
    stored.write_text(stored.read_text().replace("[0, 1]", "[0, 2]"))
    assert "bench run --new" in lab.bench("run", "--resume", "@last", code=2).stderr
