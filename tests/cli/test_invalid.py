"""Trials that doubt their own numbers, and distributions that were only counted, as a person meets them."""

import json

import pytest

from benchhouse.report.terminal.progress import RunProgress
from benchhouse.runs.orchestrate import ProgressReport

LATE = "late: requests were 40 ms late; ask for fewer a second; starved: the client had no CPU left"


@pytest.fixture(scope="module")
def doubted(tmp_path_factory):
    """A run of two points, twice each; all trials of the second say that they are invalid."""
    from laboratory import Lab

    lab = Lab(tmp_path_factory.mktemp("doubted"))
    (lab.marks / "bad").touch()
    lab.scenario("certified", workload={"n": [0, 1]}, repetitions=2)
    lab.done = lab.bench("run", "s.yaml", code=1)
    return lab


def test_the_terminal_shows_invalid_with_the_reason_and_what_becomes_of_the_numbers(doubted):
    assert f"✗ n=1: INVALID: {LATE} (2 trials)" in doubted.done.stderr
    assert "no summary or comparison takes them" in doubted.done.stderr
    assert "2 INVALID, 2 succeeded" in doubted.done.stderr
    assert f"next:  bench run --resume {doubted.run_id()} --rerun-failed" in doubted.done.stderr
    rows = {line.split()[0]: line.split() for line in doubted.done.stdout.splitlines() if line.startswith("n=")}
    assert (rows["n=0"][1], rows["n=1"][1:]) == ("2/2", ["0/2"])


def test_status_names_invalid_trials_apart_from_failed_ones(doubted):
    done = doubted.bench("status", "@last", code=1)
    assert "INVALID    " in done.stdout
    assert "failed     " not in done.stdout
    state = json.loads(doubted.bench("status", "@last", "--json", code=1).stdout)
    assert (state["outcomes"], state["failures"]) == ({"invalid": 2, "succeeded": 2}, [])
    assert {item["outcome"] for item in state["invalid"]} == {"invalid"}


def test_the_report_refuses_invalid_trials_and_says_how_many_and_why(doubted):
    done = doubted.bench("report")
    assert "2 trials INVALID, in no number of it" in done.stderr
    folder = doubted.workspace / "reports" / "s"
    text, report = (folder / "report.md").read_text(), json.loads((folder / "report.json").read_bytes())["report"]
    assert f"2 trials are INVALID and enter no number: {LATE} (2 trials)" in text
    assert "Invalid trials (2)" in (folder / "index.html").read_text()
    assert [point["label"] for point in report["points"]] == ["n=0"]
    assert {(item["code"], item["point"]) for item in report["invalid"]} == {("late", "n=1")}


def test_a_comparison_refuses_them_with_the_reason(doubted):
    done = doubted.bench("compare", "@last:n=0", "@last:n=1", code=2)
    assert "n=1 has no successful trial to compare" in done.stderr
    assert f"are INVALID and refused: {LATE}" in done.stderr
    done = doubted.bench("compare", "@last", "@last")
    assert f"2 of 4 trials of {doubted.run_id()} are INVALID and refused: {LATE}" in done.stderr


def test_a_trace_of_a_point_without_a_valid_trial_says_why_there_is_no_number(doubted):
    done = doubted.bench("trace", "@last:n=1:x", code=2)
    assert f"all that measured are INVALID: {LATE} (2 trials)" in done.stderr
    one = done.stderr.split("bench trace ")[1].split()[0]
    assert f"numbers of trial {one}" in doubted.bench("trace", one).stdout
    assert "no point with n=7; it has 0" in doubted.bench("trace", "@last:n=7:x", code=2).stderr


def test_their_numbers_are_in_the_evidence_and_in_the_tables_with_their_outcome(doubted):
    for trial in doubted.trials():
        odd = trial.spec["parameters"]["n"] == 1
        assert trial.outcome == ("invalid" if odd else "succeeded")
        assert trial.metrics["throughput"]["value"] == (101 if odd else 100)
        assert len(trial.meta["attempts"]) == 1
    sql = "SELECT outcome, count(*) AS n FROM measurement_fact WHERE stat = 'p99.9' GROUP BY 1 ORDER BY 1"
    rows = json.loads(doubted.bench("query", sql, "--json").stdout)["rows"]
    assert rows == [{"outcome": "invalid", "n": 4}, {"outcome": "succeeded", "n": 4}]  # two windows of two trials


def test_a_counted_percentile_walks_back_to_its_histogram(doubted):
    shown = json.loads(doubted.bench("trace", "@last:wait.p99.9", "--json").stdout)
    assert shown["ok"]
    proofs = shown["steps"][3]["details"]
    assert [[(one["n"], one["recomputed"]) for one in proof["histograms"]] for proof in proofs] == [
        [(2000, ["p99.9"])]
    ] * 2
    told = doubted.bench("trace", "@last:wait.p99").stdout
    assert "histograms.json#/histograms/0: a histogram of 2000 values, relative error at most 0.05%" in told
    for trial in doubted.trials():
        exact = (trial.spec["parameters"]["n"] + 1) + 0.001 * (trial.spec["repetition"] + 1999 * 0.99)
        assert trial.metrics["latency_ms"]["p99"] == pytest.approx(exact, rel=2**-11)


def test_documented_questions_leave_invalid_trials_out(doubted):
    both = "measurement_fact JOIN trial_fact USING (trial_id)"
    sql = f"SELECT max(value) AS most FROM {both} WHERE metric = 'rate' AND trial_fact.outcome = 'succeeded'"
    assert json.loads(doubted.bench("query", sql, "--json").stdout)["rows"] == [{"most": 100.0}]


def test_a_percentile_of_samples_walks_back_to_them_and_is_doubted_where_they_are_few(lab):
    lab.run("mischief", workload={"act": "samples"})
    shown = json.loads(lab.bench("trace", "@last:x.p99.9", "--json").stdout)
    assert shown["ok"]
    assert [one["recomputed"] for one in shown["steps"][3]["details"][0]["samples"]] == [["p99.9"]]
    assert "too few samples for p99.9 of x: n=100" in lab.trials()[0].metrics["notes"]


def test_progress_counts_invalid_trials_by_their_own_name(capsys):
    progress = RunProgress()
    progress.logged -= 60
    outcomes = {"succeeded": 1, "invalid": 2, "failed": 1, "timeout": 1}
    progress.update(ProgressReport(done=5, total=5, running=0, outcomes=outcomes))
    assert capsys.readouterr().err == "5/5 trials, 2 failed, 2 INVALID\n"


def test_invalid_trials_are_run_again_on_request_and_only_they(lab):
    (lab.marks / "bad").touch()
    shown = lab.run("certified", code=1, workload={"n": [0, 1]})
    assert shown["failures"] == []
    assert [(item["code"], item["point"]) for item in shown["invalid"]] == [("late", "n=1")]
    before = {trial.folder.name: trial.meta["started"] for trial in lab.trials() if trial.outcome == "succeeded"}
    lab.bench("run", "--resume", "@last", code=1)  # a resume repeats nothing
    assert [len(trial.meta["attempts"]) for trial in lab.trials()] == [1, 1]
    (lab.marks / "bad").unlink()
    lab.bench("run", "s.yaml", "--rerun-failed")
    trials = lab.by("n")
    assert [item["outcome"] for item in trials[1].meta["attempts"]] == ["invalid", "succeeded"]
    assert before == {trials[0].folder.name: trials[0].meta["started"]}
    lab.is_tidy()


@pytest.fixture(scope="module")
def bounded(tmp_path_factory):
    """A run whose times can be off by 1.5 ms: every p99 is INVALID by itself, and so is the mean at n=1."""
    from laboratory import Lab

    lab = Lab(tmp_path_factory.mktemp("bounded"))
    (lab.marks / "off").touch()
    lab.scenario("certified", workload={"n": [0, 1, 2]}, repetitions=2)
    lab.done = lab.bench("run", "s.yaml")
    return lab


def test_the_terminal_shows_invalid_figures_and_how_far_others_can_be_off(bounded):
    rows = {line.split()[0]: line for line in bounded.done.stdout.splitlines() if line.startswith("n=")}
    assert "INVALID" in rows["n=1"] and "INVALID" not in rows["n=0"] + rows["n=2"]
    assert "can be off: wait mean by 1.5\u2009ms at most" in bounded.done.stderr
    assert "figures_invalid" in bounded.done.stderr and "the warnings say why" in bounded.done.stderr
    shown = bounded.bench("show", "@last")
    assert "INVALID" in shown.stdout


def test_the_report_shows_them_where_their_numbers_would_stand(bounded):
    bounded.bench("report")
    folder = bounded.workspace / "reports" / "s"
    report = json.loads((folder / "report.json").read_bytes())["report"]
    assert [[figure["stat"] for figure in point["refused"]] for point in report["points"]] == [
        ["p99"], ["mean", "p99"], ["p99"],
    ]  # fmt: skip
    points = (folder / "report.md").read_text().partition("## Points")[2]
    lines = [line for line in points.splitlines() if line.startswith("| n=")][:3]
    assert [line.count("INVALID") for line in lines] == [1, 2, 1]
    assert "can be off by 1.5" in lines[0]


def test_a_difference_that_the_bounds_hide_is_not_called_one(bounded):
    done = bounded.bench("compare", "@last:n=0", "@last:n=2", "--json")
    table = json.loads(done.stdout)
    verdicts = {(row["metric"], row["stat"]): (row["verdict"], row["error_bound_b"]) for row in table["rows"]}
    assert verdicts["wait", "mean"] == ("within error bounds", 1.5)
    assert verdicts["rate", "value"][1] is None
    assert [text.partition(" is INVALID")[0] for text in table["invalid_metrics"]] == ["wait p99"] * 2
    assert "can be off by 1.5" in bounded.bench("compare", "@last:n=0", "@last:n=2", "--markdown").stdout


def test_gate_history_and_trace_say_that_a_figure_is_invalid(bounded):
    done = bounded.bench("gate", "@last..@last", "--metric", "wait.p99", code=2)
    assert "wait p99 is INVALID in every trial of" in done.stderr
    done = bounded.bench("history", "s/n=1", "--metric", "wait", "--stat", "mean", code=2)
    assert "wait mean has no history: it is INVALID in every trial" in done.stderr
    done = bounded.bench("trace", "@last:wait.p99", code=2)
    assert "no valid 'wait.p99': it is INVALID in every trial" in done.stderr
    assert "run again: the same value" in bounded.bench("trace", "@last:n=0:wait.mean").stdout
    trial = bounded.folders("s")[0].name
    assert "INVALID by themselves" in bounded.bench("trace", trial).stdout
