"""`bench run` as a person meets it."""

import json


def test_data_goes_to_stdout_and_progress_and_the_line_that_repeats_a_failure_to_stderr(lab):
    (lab.marks / "bad").touch()
    done = lab.bench("run", lab.scenario("once", workload={"n": [0, 1]}), code=1)
    assert "n=0" in done.stdout and "next" not in done.stdout
    folder = lab.by("n")[1].folder
    assert str(folder) in done.stderr
    assert f"bench run --resume {lab.run_id()} --rerun-failed" in done.stderr
    shown = json.loads(lab.bench("run", "s.yaml", "--rerun-failed", "--json", code=1).stdout)
    assert shown["outcomes"] == {"failed": 1, "succeeded": 1}
    assert shown["complete"] is True
    (failure,) = shown["failures"]
    assert (failure["code"], failure["message"]) == ("bad", "the file is there")
    (lab.marks / "bad").unlink()
    again = lab.bench("run", folder / "effective_config.yaml")
    assert f"next:  bench report {lab.run_id()}" in again.stderr


def test_lost_trials_leave_the_run_unfinished_and_the_next_run_tries_them(lab):
    done = lab.bench("run", lab.scenario("mischief", workload={"act": ["ok", "kill_worker"]}), code=1)
    assert "1 lost, 1 succeeded" in done.stderr
    assert "lost trials are run again by" in done.stderr
    again = lab.bench("run", "s.yaml", code=1)
    assert "resuming run" in again.stderr
    assert len({event["attempt"] for event in lab.events() if event.get("outcome") == "lost"}) == 6
    lab.is_tidy()


def test_a_run_needs_a_scenario(bench):
    for args in ((), ("--resume", "nothing")):
        done = bench("run", *args)
        assert done.code == 2 and "bench run SCENARIO.yaml" in done.err, args


def test_a_run_whose_plan_has_changed_is_not_resumed(lab):
    lab.run("once", code=1, workload={"n": [0, 1]}, budget={"trials": 1})
    stored = lab.workspace / ".bench" / "runs" / lab.run_id() / "scenario.yaml"
    stored.write_text(stored.read_text().replace("[0, 1]", "[0, 2]"))
    assert "bench run --new" in lab.bench("run", "--resume", "@last", code=2).stderr


DOUBTS = """
from benchhouse import Context

def doubts(n: int, ctx: Context):
    ctx.warn("stderr_output", f"slow disk {n}" if n < 3 else ["no", "cold", "odd", "old"][n - 3] + " cache")
    ctx.warn("stderr_output", f"slow disk {n}" if n < 3 else ["no", "cold", "odd", "old"][n - 3] + " cache")
    return {"x": n}
"""


def test_warnings_of_one_code_that_say_different_things_are_told_apart(lab):
    lab.install("doubts", "1.0", DOUBTS, "[benchhouse.experiments]\ndoubts = doubts:doubts\n")
    done = lab.bench("run", lab.scenario("doubts", workload={"n": list(range(7))}, parallel=2))
    told = [line for line in done.stderr.splitlines() if "stderr_output" in line]
    assert told[0].startswith("warning, 3 trials: stderr_output: slow disk ")
    assert all(line.startswith("warning, 1 trial: stderr_output: ") and line.endswith(" cache") for line in told[1:3])
    assert told[3] == "... and 2 other texts of stderr_output: bench report, or meta.json of a trial"


def test_a_value_with_a_line_break_takes_one_line_and_can_be_selected_without_it(lab):
    workload = {"stdin": ["10\n", "20\n"], "executions": 1}
    done = lab.bench("run", lab.scenario("command", target={"argv": ["cat"]}, workload=workload, repetitions=2))
    rows = done.stdout.splitlines()
    assert [row.split()[0] for row in rows[2:4]] == ["stdin=10\\n", "stdin=20\\n"] and len(rows) == 4
    assert "stdin=10\\n" in lab.bench("plan", "s.yaml", "--dry-run").stdout
    lab.bench("compare", "@last:stdin=10", "@last:stdin=20")


def test_a_failure_names_its_point_on_an_axis_inside_a_mapping(lab):
    target = {"argv": ["sh", "-c", "exit {status}"]}
    path = lab.scenario(
        "command", target=target, axes=[{"grid": {"values.status": [0, 3]}}], workload={"executions": 1}
    )
    assert "✗ values.status=3: failed" in lab.bench("run", path, code=1).stderr


def test_one_failure_of_many_points_is_told_once(lab):
    workload = {"pattern": ["read", "write"], "file_size": ["1MiB", "2MiB"]}
    path = lab.scenario("storage.file", target={"path": "/no/such/folder"}, workload=workload)
    (told,) = [line for line in lab.bench("run", path, code=1).stderr.splitlines() if line.startswith("✗")]
    assert told.startswith("✗ pattern=read file_size=1048576 and 3 other points: failed: no_such_folder: target.path")
    assert told.endswith("make it, or give another (4 trials)")
