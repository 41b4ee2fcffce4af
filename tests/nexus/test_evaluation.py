"""`bench evaluate`: what a change touches, and nothing else, is planned within a budget and run; the rest is reused."""

import json
import os
import pwd
import subprocess
from pathlib import Path

import pytest

CODE = """
from benchhouse import Metric, experiment

@experiment("NAME", version="1.0", metrics=[Metric(name="score", unit="1", direction="higher")])
def run(model: str, batch: int = 1, size: int = 1):
    "Score it."
    return {"score": float(batch)}
"""
SCENARIO = "scenario: SCENARIO\nexperiment: NAME\nworkload: {batch: [1, 2]}\n"


def write(root: Path, name: str, text: str) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def git(root: Path, *words: str) -> str:
    command = ["git", "-C", str(root), "-c", "user.name=ada", "-c", "user.email=ada@example.org", *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def nexus(tmp_path, packages):
    """Three packages in git: `left` and `right` with an experiment each, `user` with a model that uses left's."""
    for name in ("left", "right"):
        packages.add(
            f"eval-{name}", f"eval_{name}", CODE.replace("NAME", f"eval.{name}"), f"eval.{name} = eval_{name}:run"
        )
        home = f"packages/{name}"
        project = f"{home}/benchmark_packages/eval/pyproject.toml"
        listed = f"{{requirement_specifier: ./{home}/benchmark_packages/eval, experiments: [eval.{name}]}}"
        write(tmp_path, f"{home}/nexus.yaml", f"package: {{name: {name}, benchmark_packages: [{listed}]}}\n")
        write(tmp_path, project, f'[project]\nname = "eval-{name}"\nversion = "1.0"\n')
        write(tmp_path, f"{home}/models/one/model.yaml", f"model: {{id: org/{name}}}\n")
        scenario = SCENARIO.replace("SCENARIO", f"{name}-a").replace("NAME", f"eval.{name}")
        write(tmp_path, f"{home}/models/one/benchmark_instances/a/scenario.yaml", scenario)
    shared = "benchmark: shared\nexperiment: eval.left\nworkload: {batch: 3}\n"
    write(tmp_path, "packages/left/benchmark_instances/shared/benchmark.yaml", shared)
    write(tmp_path, "packages/user/nexus.yaml", "package: {name: user}\n")
    write(tmp_path, "packages/user/models/two/model.yaml", "model: {id: org/user}\n")
    write(tmp_path, "packages/user/models/two/benchmark_instances/b/scenario.yaml", "scenario: u\nuses: left/shared\n")
    write(tmp_path, ".gitignore", ".bench/\nresults/\n")
    git(tmp_path, "init", "-q", "-b", "main")
    git(tmp_path, "add", "-A")
    git(tmp_path, "commit", "-q", "-m", "first")
    return tmp_path


LEFT, RIGHT, USER = "left/one/a", "right/one/a", "user/two/b"


@pytest.mark.parametrize(
    ("file", "touches"),
    [
        ("packages/left/models/one/benchmark_instances/a/scenario.yaml", {LEFT}),
        ("packages/right/models/one/model.yaml", {RIGHT}),
        ("packages/left/benchmark_instances/shared/benchmark.yaml", {USER}),
        ("packages/left/benchmark_packages/eval/src/new.py", {LEFT, USER}),
        ("packages/left/nexus.yaml", {LEFT, USER}),
        ("packages/left/models/one/usage.md", set()),
        ("packages/right/skills/plan.yaml", set()),
        ("README.md", set()),
    ],
)
def test_a_change_touches_what_depends_on_it_and_nothing_else(nexus, bench, file, touches):
    path = nexus / file
    write(nexus, file, (path.read_text() if path.is_file() else "") + "# a line\n")
    done = bench("evaluate", "--changed-since", "HEAD", "--dry-run", "--json")
    plan = json.loads(done.out)["plan"]
    assert {item["benchmark"] for item in plan["benchmarks"]} == touches, done.err
    assert all(item["why"] == [file] and item["state"] == "to run" for item in plan["benchmarks"])
    git(nexus, "checkout", "-q", "-b", "change")
    git(nexus, "add", "-A")
    git(nexus, "commit", "-q", "-m", "change")
    committed = json.loads(bench("evaluate", "--changed-since", "main", "--dry-run", "--json").out)["plan"]
    assert committed["benchmarks"] == plan["benchmarks"]


def test_what_was_measured_is_not_measured_again_and_new_points_are(nexus, bench):
    first = json.loads(bench("evaluate", "--all", "--json").out)
    assert [(run["benchmark"], run["state"]) for run in first["runs"]] == [
        (LEFT, "complete"), (RIGHT, "complete"), (USER, "complete")
    ]  # fmt: skip
    again = bench("evaluate", "--all")
    assert again.code == 0 and "3 benchmarks, 3 reused" in again.err, again.err
    write(nexus, "packages/left/models/one/benchmark_instances/a/scenario.yaml",
          "scenario: left-a\nexperiment: eval.left\nworkload: {batch: [1, 2, 5]}\n")  # fmt: skip
    more = json.loads(bench("evaluate", "--changed-since", "HEAD", "--json").out)
    (row,), (run,) = more["plan"]["benchmarks"], more["runs"]
    assert (row["points"], row["reused"], row["trials"]) == (1, 2, 1)
    assert row["reused_runs"] == [first["runs"][0]["run_id"]] and run["outcomes"] == {"succeeded": 1}
    points = json.loads(bench("query", "SELECT parameters FROM trial_fact WHERE scenario = 'left-a'", "--json").out)
    assert sorted(json.loads(row["parameters"])["batch"] for row in points["rows"]) == [1, 2, 5]
    forced = json.loads(bench("evaluate", "--model", "org/left", "--again", "--dry-run", "--json").out)
    assert forced["plan"]["trials"] == 3


def test_what_is_over_the_budget_is_refused_before_anything_runs(nexus, bench):
    done = bench("evaluate", "--all", "--budget", "trials=4")
    assert done.code == 5 and "asks for more than its budget: 5 trials, 4 are allowed" in done.err
    assert "no run" in bench("status").err + bench("status").out
    assert bench("evaluate", "--all", "--budget", "trials=5", "--dry-run").code == 0


def test_a_change_that_edits_trusted_yaml_is_not_evaluated_by_its_own_rules(nexus, bench, tmp_path_factory):
    me = pwd.getpwuid(os.geteuid()).pw_name
    write(nexus, "trusted.yaml", f"people: {{{me}: {{}}, ada: {{role: admin}}}}\n")
    git(nexus, "add", "-A")
    git(nexus, "commit", "-q", "-m", "rules")
    assert "needs the role admin" in bench("evaluate", "--changed-since", "HEAD", "--dry-run").err
    git(nexus, "checkout", "-q", "-b", "fork")
    write(nexus, "trusted.yaml", f"people: {{{me}: {{role: admin}}}}\n")
    for ref in ("HEAD", "main"):
        refused = bench("evaluate", "--changed-since", ref, "--dry-run")
        assert refused.code == 5 and f"edits {nexus / 'trusted.yaml'}, which says who may evaluate it" in refused.err
        git(nexus, "commit", "-q", "-a", "--allow-empty", "-m", "I may")
    assert bench("evaluate", "--changed-since", "fork", "--dry-run").code == 0, "it was merged: those are the rules"
    outside = tmp_path_factory.mktemp("outside")
    write(outside, "trusted.yaml", f"people: {{{me}: {{role: admin}}}}\n")
    apart = bench("evaluate", "--changed-since", "main", "--nexus", nexus, "--dry-run", cwd=outside)
    assert apart.code == 0, apart.err


def test_what_is_broken_spoils_nothing_else_and_is_not_passed_over(nexus, bench):
    write(
        nexus,
        "packages/left/models/one/benchmark_instances/a/scenario.yaml",
        "scenario: left-a\nexperiment: eval.lef\n",
    )
    write(nexus, "packages/right/models/one/benchmark_instances/c/scenario.yaml", "scenario: [\n")
    done = bench("evaluate", "--all", "--dry-run", "--json")
    document = json.loads(done.out)
    states = {item["benchmark"]: item["state"] for item in document["plan"]["benchmarks"]}
    assert done.code == 2 and states == {"right": "broken", LEFT: "broken", RIGHT: "to run", USER: "to run"}
    assert "did you mean 'eval.left'" in next(
        item["error"] for item in document["plan"]["benchmarks"] if item["benchmark"] == LEFT
    )


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ((), "say which benchmarks, once"),
        (("--all", "--model", "org/left"), "say which benchmarks, once"),
        (("--changed-since", "nowhere"), "git knows no commit 'nowhere'"),
        (("--changed-since", "--output=/tmp/x"), "git knows no commit"),
        (("--model", "org/lefd"), "did you mean 'org/left'"),
        (("--all", "--budget", "trails=5"), "--budget trails=5"),
    ],
)
def test_a_mistake_is_told_with_what_to_do(nexus, bench, words, says):
    done = bench("evaluate", *words)
    assert done.code == 2 and says in done.err


def test_where_there_is_a_trusted_yaml_it_takes_an_admin(nexus, bench):
    me = pwd.getpwuid(os.geteuid()).pw_name
    write(nexus, "trusted.yaml", f"people: {{{me}: {{role: run}}}}\n")
    refused = bench("evaluate", "--all", "--dry-run")
    assert refused.code == 5 and f"evaluate needs the role admin, and {me} has the role run" in refused.err
    write(nexus, "trusted.yaml", f"people: {{{me}: {{role: admin}}}}\n")
    assert bench("evaluate", "--all", "--dry-run").code == 0


def test_without_git_it_says_so(nexus, bench, tmp_path):
    (nexus / ".git").rename(nexus / "moved")
    done = bench("evaluate", "--changed-since", "main")
    assert done.code == 2 and "no git checkout" in done.err and "--all" in done.err
