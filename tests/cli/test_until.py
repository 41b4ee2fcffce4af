"""Repetitions until sure, and the selftest, with real trials of a command."""

import json

import pytest

SCENARIO = """\
scenario: sure
experiment: command
target: {name: "true", argv: ["true"]}
workload: {executions: 1}
monitors: false
"""
UNTIL = SCENARIO + "repetitions: {until: {ci: 20%, metric: peak_rss_mb, min: 3, max: 12}}\n"


def trials(bench):
    return json.loads(bench("query", "SELECT count(*) AS n FROM trial_fact", "--json").out)


def test_a_point_that_is_known_stops_and_an_interrupted_run_stops_at_the_same_place(bench, tmp_path):
    (tmp_path / "s.yaml").write_text(UNTIL + "budget: {trials: 2}\n")
    first = json.loads(bench("run", "s.yaml", "--json").out)
    assert first["outcomes"] == {"succeeded": 2} and not first["complete"]
    (tmp_path / "s.yaml").write_text(UNTIL)
    done = bench("run", "s.yaml", "--json")
    found = json.loads(done.out)
    assert done.code == 0 and found["complete"]
    assert found["run_id"] == first["run_id"]
    assert found["outcomes"] == {"succeeded": 5}  # known after 3, confirmed up to the next look
    again = bench("run", "--resume", found["run_id"], "--json")
    assert json.loads(again.out)["outcomes"] == {"succeeded": 5}


def test_figures_that_are_invalid_do_not_make_a_point_known(lab):
    """Its mean hardly varies, and would be known after 3; of n = 1 each is INVALID."""
    (lab.marks / "off").touch()
    rule = {"until": {"ci": "5%", "metric": "wait", "min": 3, "max": 7}}
    lab.run("certified", workload={"n": [0, 1]}, repetitions=rule)
    repeated = [trial.spec["parameters"]["n"] for trial in lab.trials()]
    assert (repeated.count(0), repeated.count(1)) == (5, 7)


def test_the_plan_says_up_to_and_its_digest_covers_the_rule(bench, tmp_path):
    (tmp_path / "s.yaml").write_text(UNTIL)
    shown = bench("plan", "s.yaml")
    assert "up to 12 = 1 point x 3 to 12 repetitions (until known to 20.00%)" in shown.out
    digests = set()
    for text in (UNTIL, UNTIL.replace("20%", "10%"), UNTIL.replace("max: 12", "max: 13"), SCENARIO):
        (tmp_path / "s.yaml").write_text(text)
        digests.add(json.loads(bench("plan", "s.yaml", "--json").out)["plan_digest"])
    assert len(digests) == 4


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("repetitions: {until: {ci: 2}}", "s.yaml:6"),
        ("repetitions: {until: {ci: much}}", "not a share"),
        ("repetitions: {until: {ci: 2%, max: 4}}", "max is at least min"),
        ("repetitions: {untill: {ci: 2%}}", "until"),
        ("repetitions: {until: {ci: 2%}}\norder: random", "interleaved or sequential"),
    ],
)
def test_a_rule_that_makes_no_sense_is_refused_where_it_stands(bench, tmp_path, line, said):
    (tmp_path / "s.yaml").write_text(SCENARIO + line + "\n")
    done = bench("validate", "s.yaml")
    assert done.code == 2
    assert said in done.err + done.out


def test_a_metric_that_is_not_measured_is_named_with_what_is(bench, tmp_path):
    (tmp_path / "s.yaml").write_text(UNTIL.replace("peak_rss_mb", "speed"))
    done = bench("run", "s.yaml")
    assert done.code == 2
    assert "speed is not among what the trials measure" in done.err and "peak_rss_mb" in done.err


def test_a_selftest_runs_pairs_keeps_the_rate_and_is_cited(bench, tmp_path):
    (tmp_path / "s.yaml").write_text(SCENARIO)
    found = json.loads(bench("selftest", "s.yaml", "--pairs", "5", "--repetitions", "3", "--json").out)
    assert found["scenario"] == "sure" and found["repetitions"] == 3
    metric = next(item for item in found["metrics"] if item["metric"] == "peak_rss_mb")
    assert metric["pairs"] == 5
    assert metric["rate_low"] <= metric["rate"] <= metric["rate_high"]
    assert bench("selftest", "--last").code == 0
    assert (tmp_path / ".bench" / "selftests.jsonl").read_text().count("\n") == 1


def test_a_selftest_needs_a_workload(bench):
    done = bench("selftest")
    assert done.code == 2 and "bench selftest SCENARIO.yaml" in done.err
