"""`bench show RUN` and `bench init DIR`."""

import json


def test_a_run_is_shown_by_token_id_or_scenario(lab):
    lab.run("plain", workload={"n": [1, 2]})
    run_id = lab.run_id()
    for token in ("@last", run_id[:12], "s"):
        shown = lab.bench("show", token)
        assert run_id in shown.stdout
        assert "plain 1.0" in shown.stdout and "local, process" in shown.stdout
        assert "n=1" in shown.stdout and "n=2" in shown.stdout
        assert f"bench report {run_id}" in shown.stderr
    answer = json.loads(lab.bench("show", "@last", "--json").stdout)
    assert (answer["run_id"], answer["points"], answer["outcomes"]) == (run_id, 2, {"succeeded": 2})


def test_the_name_of_an_experiment_wins_over_a_run(lab):
    lab.run("plain", name="plain")
    assert lab.bench("show", "plain").stdout.startswith("plain 1.0")


def test_something_unknown_is_still_answered_by_the_catalogue(lab):
    lab.run("plain")
    assert "did you mean" in lab.bench("show", "plian", code=2).stderr
    assert "no run @last-5" in lab.bench("show", "@last-5", code=2).stderr


def test_init_makes_the_folder(bench, tmp_path):
    done = bench("init", "new/place")
    assert done.code == 0
    assert (tmp_path / "new" / "place" / "scenarios" / "first.yaml").is_file()
    assert "cd new/place && bench run scenarios/first.yaml" in done.err
    assert bench("plan", "scenarios/first.yaml", cwd=tmp_path / "new" / "place").code == 0
