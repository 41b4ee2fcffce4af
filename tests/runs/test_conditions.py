"""What a measurement depends on besides the plan: it reaches the trial, is recorded, and is not mixed unseen."""

import subprocess

CODE = """
def dice(ctx, sides: int = 6):
    import os
    return {{"seed": ctx.seed, "value": {value}, "setting": float(os.environ.get("SETTING", "0"))}}
"""
ENTRIES = "[benchhouse.experiments]\ndice = dice:dice\n"


def install(lab, value=1):
    lab.install("dice", "1.0", CODE.format(value=value), ENTRIES)


def change(lab, value):
    (lab.root / "site" / "dice.py").write_text(CODE.format(value=value))


def measured(trial):
    return {row["metric"]: row["value"] for row in trial.metrics["benchhouse"]["measurements"]}


def test_seed_environment_and_commit_reach_the_experiment_and_its_evidence(lab):
    install(lab)
    git = ["git", "-C", str(lab.workspace), "-c", "user.name=x", "-c", "user.email=x@x"]
    subprocess.run([*git, "init", "-q"], check=True)
    path = lab.scenario("dice", seed=40, repetitions=3, environment={"SETTING": "2.5"})
    subprocess.run([*git, "add", path.name], check=True)
    subprocess.run([*git, "commit", "-qm", "x"], check=True)
    head = subprocess.check_output([*git, "rev-parse", "HEAD"], text=True).strip()
    lab.bench("run", path)
    trials = lab.trials()
    assert sorted(measured(trial)["seed"] for trial in trials) == [40, 41, 42]
    assert all(trial.meta["seed"] == measured(trial)["seed"] == trial.spec["seed"] for trial in trials)
    assert {measured(trial)["setting"] for trial in trials} == {2.5}
    assert {trial.meta["git_commit"] for trial in trials} == {head}


def test_an_unfinished_run_is_not_carried_on_with_other_code_or_another_environment(lab):
    install(lab)
    lab.run("dice", code=1, repetitions=4, budget={"trials": 2})
    first = lab.run_id()
    change(lab, value=100)
    done = lab.bench("run", lab.scenario("dice", repetitions=4, budget={"trials": 2}), code=1)
    assert "another experiment code" in done.stderr
    second = lab.run_id()
    values = {}
    for trial in lab.trials():
        values.setdefault(trial.spec["run_id"], set()).add(measured(trial)["value"])
    assert values == {first: {1}, second: {100}}
    assert "differs: experiment code" in lab.bench("compare", first, second).stderr
    assert "another experiment code than when this run began" in lab.bench("run", "--resume", first, code=1).stderr
    done = lab.bench("run", lab.scenario("dice", repetitions=4, environment={"SETTING": "64"}))
    assert "another environment" in done.stderr and lab.run_id() not in (first, second)
