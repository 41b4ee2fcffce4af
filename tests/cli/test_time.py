"""`bench time`: commands against each other in one line."""

import json


def test_two_commands_are_compared_with_an_interval(lab):
    done = lab.bench("time", "--runs", 4, "sleep 0.01", "sleep 0.2")
    assert "'sleep 0.01' ran" in done.stdout and "times faster than 'sleep 0.2' (" in done.stdout
    assert "95% interval" in done.stdout
    trials = lab.trials("time")
    assert [trial.spec["warmup"] for trial in trials].count(False) == 8
    assert lab.run_id() in lab.bench("show", "@last").stdout


def test_it_runs_in_this_folder_and_leaves_variables_to_the_shell(lab):
    (lab.workspace / "data.txt").write_text("x")
    line = 'x=data.txt; test -f $x && test -n "$LAB"'
    done = lab.bench("time", "-r", 2, "-w", 0, "-n", "mine", line, "--json")
    (command,) = json.loads(done.stdout)["commands"]
    assert (command["name"], command["command"], command["runs"]) == ("mine", line, 2)
    assert command["low_ms"] <= command["mean_ms"] <= command["high_ms"]


def test_a_command_that_fails_is_shown_and_exits_1(lab):
    done = lab.bench("time", "-r", 2, "-w", 0, "true", "exit 3", code=1)
    assert "exit code 3" in done.stderr
    assert "true" in done.stdout and "times faster" not in done.stdout


def test_more_runs_than_rounds_and_equal_commands(lab):
    done = lab.bench("time", "-r", 12, "-w", 0, "-N", "true", "true", "--json")
    answer = json.loads(done.stdout)
    assert [item["name"] for item in answer["commands"]] == ["true", "true #2"]
    assert all(item["runs"] == 20 for item in answer["commands"])
    assert len(answer["speedups"]) == 1


def test_what_makes_no_sense_is_bad_input(lab):
    lab.bench("time", code=2)
    lab.bench("time", "", code=2)
    assert "names for 2 commands" in lab.bench("time", "-n", "a", "true", "false", code=2).stderr
