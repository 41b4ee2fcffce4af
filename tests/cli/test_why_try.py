"""`bench why --try`, on real processes that their own CPU limit holds back."""

import json

import pytest
from laboratory import Lab

pytestmark = pytest.mark.serial  # with three trials per side, other work hides the planted cause

BURN = """scenario: burn
experiment: command
target: {argv: [python3, -c, "sum(i * i for i in range(200000))"]}
workload: {executions: 2, warmup: 0}
repetitions: 3
limits: LIMITS
monitors: {interval: 0.2s}
"""


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    """A run at full speed, and one that has a twelfth of a core."""
    made = Lab(tmp_path_factory.mktemp("try"))
    for limits in ("{cpus: 2}", "{cpus: 0.08}"):
        (made.workspace / "burn.yaml").write_text(BURN.replace("LIMITS", limits))
        made.bench("run", "burn.yaml")
    return made


def test_the_playbooks_experiment_is_run_in_turns_and_judged(lab):
    slow = lab.run_id()
    done = lab.bench("why", slow, "--vs", "@last-1", "--try", "--rounds", 3, "--json", code=None)
    answer = json.loads(done.stdout)
    tried = answer["tried"]
    assert tried["cause"] == "cpu_throttling", done.stdout + done.stderr
    # A machine that is busier than in the good run leaves some of it; what restores by how much: tests/results.
    codes = {"restored": 0, "partly": 3}
    assert done.returncode == codes[tried["outcome"]], done.stdout + done.stderr
    assert tried["remedy"] == "without `limits: {cpus: 0.08}`"
    assert (tried["rounds"], len(tried["runs"])) == (3, 6)
    assert sorted(tried["runs"][2:4]) != tried["runs"][2:4], "in the second round the changed one goes first"
    wall = tried["numbers"][0]
    assert wall["good"] < wall["as_it_was"] / 4 and wall["changed"] < wall["as_it_was"] / 4


def test_a_run_that_got_no_slower_has_nothing_to_try(lab):
    first = json.loads(lab.bench("status", "--json").stdout)["runs"]
    good = min(run["run_id"] for run in first)
    done = lab.bench("why", good, "--try", "--json")
    assert json.loads(done.stdout)["tried"]["outcome"] == "impossible"
    assert lab.bench("why", good, "--rounds", 3, code=2).stderr.strip().endswith("--rounds goes with --try")
    assert "diagnosis alone" in lab.bench("why", good, "--try", "--html", code=2).stderr
