"""`bench history`, `bench baseline` and `bench gate`, on sealed trials of many runs."""

import json
import random
import sys
from pathlib import Path

import pytest

from benchhouse.schema.layout import WorkspaceFolder

sys.path.insert(0, str(Path(__file__).parents[1] / "warehouse"))

DAYS = 24
STEP = 14


def day(number):
    return f"202603{number + 1:02d}-120000-aaaaaaa"


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """24 daily runs of three trials; on the 15th day the throughput falls by 8%."""
    from trial_maker import make_trial

    from benchhouse.warehouse.ingest import collect

    root = tmp_path_factory.mktemp("history")
    draw = random.Random(5)
    for number in range(DAYS):
        level = 100.0 if number < STEP else 92.0
        values = [level * draw.gauss(1, 0.01) for _ in range(3)]
        folders = [
            make_trial(WorkspaceFolder(root), day(number), at + 1, value=value, minute=60 * number)
            for at, value in enumerate(values)
        ]
        collect(WorkspaceFolder(root), day(number), folders)
    return root


@pytest.fixture
def kept(made):
    """The same workspace without accepted baselines and selftests."""
    yield made
    for name in ("baselines.jsonl", "selftests.jsonl", "alarms.jsonl", "regressions.jsonl"):
        (made / ".bench" / name).unlink(missing_ok=True)


def test_history_alone_lists_what_there_is_a_history_of(bench, made):
    done = bench("history", cwd=made)
    assert done.code == 0
    assert "demo/name=hnsw ef=16" in done.out and "24" in done.out
    assert "bench history CASE" in done.err
    (case,) = json.loads(bench("history", "--json", cwd=made).out)
    assert (case["case"], case["runs"]) == ("demo/name=hnsw ef=16", DAYS)


def test_a_case_without_a_point_is_named_as_its_scenario(bench, tmp_path):
    from trial_maker import make_trial

    from benchhouse.warehouse.ingest import collect

    workspace = WorkspaceFolder(tmp_path)
    for number, axes in enumerate([(), (), ("ef",), ("ef",)]):  # an axis was added after two days
        folder = make_trial(workspace, day(number), target="", ef=number // 2, axes=axes, minute=number)
        collect(workspace, day(number), [folder])
    assert [case["case"] for case in json.loads(bench("history", "--json").out)] == ["demo", "demo/ef=1"]
    for asked in ("demo", "demo/"):  # the second is how it was told by an older version
        found = json.loads(bench("history", asked, "--json").out)
        assert [run["run_id"] for run in found["runs"]] == [day(0), day(1)]
    assert bench("history", "demo").out.startswith("demo  ")


def test_cases_of_one_name_are_told_apart_by_their_ids(bench, tmp_path):
    from trial_maker import make_trial

    from benchhouse.warehouse.ingest import collect

    for number in range(2):
        folder = make_trial(WorkspaceFolder(tmp_path), day(number), target="", ef=number, axes=(), minute=number)
        collect(WorkspaceFolder(tmp_path), day(number), [folder])
    said = bench("history", "demo")
    assert said.code == 2 and "'demo' fits 2 cases" in said.err
    name = said.err.split("such as:  bench history ")[1].split()[0]
    assert bench("history", name).code == 0


def test_history_finds_the_change_and_names_the_runs_around_it(bench, made):
    done = bench("history", "demo", "--json", cwd=made)
    assert done.code == 0
    found = json.loads(done.out)
    (change,) = found["changes"]
    assert (change["run_before"], change["run_after"]) == (day(STEP - 1), day(STEP))
    assert change["verdict"] == "worse"
    assert change["interval"][0] < -0.08 < change["interval"][1]
    assert found["metric"] == "qps" and len(found["runs"]) == DAYS


def test_history_draws_it_and_ends_with_the_next_command(bench, made):
    done = bench("history", "demo/name=hnsw ef=16", cwd=made)
    assert "|" in done.out and "worse" in done.out
    assert "no selftest here yet" in done.err
    assert done.err.splitlines()[-1].endswith("bench baseline accept 'demo/name=hnsw ef=16' --metric qps")


@pytest.fixture
def series(tmp_path):
    """Makes a workspace of one trial an hour with these values."""
    from trial_maker import make_trial

    from benchhouse.warehouse.ingest import collect

    def maker(values):
        for number, value in enumerate(values):
            run = f"202603{number // 24 + 1:02d}-{number % 24:02d}0000-aaaaaaa"
            collect(
                WorkspaceFolder(tmp_path), run, [make_trial(WorkspaceFolder(tmp_path), run, value=value, minute=number)]
            )

    return maker


def test_a_step_three_runs_ago_is_shown_with_the_runs_around_it(bench, series):
    draw = random.Random(3)
    series([(38.09 if number < 7 else 35.59) * draw.gauss(1, 0.0002) for number in range(10)])
    found = json.loads(bench("history", "demo", "--json").out)
    (change,) = found["changes"]
    assert (change["run_before"], change["run_after"]) == ("20260301-060000-aaaaaaa", "20260301-070000-aaaaaaa")
    after = next(run["mean"] for run in found["runs"] if run["run_id"] == change["run_after"])
    assert after == pytest.approx(35.59, rel=0.002)


def test_a_slow_drift_is_named_and_no_step_is_told(bench, series):
    draw = random.Random(3)
    series([100.0 * (1.0 - 0.001 * number) * draw.gauss(1, 0.005) for number in range(48)])
    done = bench("history", "demo")
    assert "slow drift from " in done.out and "in 48 runs, worse" in done.out
    assert "first run after" not in done.out and "no change of level" not in done.out


@pytest.mark.parametrize("asked", [("history",), ("baseline", "show")])
def test_the_next_command_is_of_the_statistic_that_was_asked_for(bench, made, asked):
    done = bench(*asked, "demo", "--metric", "latency", "--stat", "p99", cwd=made)
    assert done.err.splitlines()[-1].endswith("--metric latency --stat p99")


def test_a_metric_that_lower_is_better_got_worse_by_going_up(bench, made):
    found = json.loads(bench("history", "demo", "--metric", "latency", "--stat", "p99", "--json", cwd=made).out)
    assert [change["verdict"] for change in found["changes"]] == ["worse"]
    assert found["changes"][0]["change"] > 0


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (["dmo"], "did you mean 'demo'"),
        (["demo", "--metric", "qsp"], "did you mean 'qps'"),
        (["demo", "--metric", "latency", "--stat", "p12"], "latency has no p12"),
        (["demo/name=flat"], "no case 'demo/name=flat'"),
        (["demo", "--floor", "lots"], "is not a share"),
    ],
)
def test_what_is_not_there_is_said_with_what_is(bench, made, asked, said):
    done = bench("history", *asked, cwd=made)
    assert done.code == 2
    assert said in done.err


def test_an_empty_workspace_has_no_history(bench, tmp_path):
    done = bench("history", "demo")
    assert done.code == 2 and "no trial has succeeded" in done.err


def test_a_metric_whose_unit_changed_is_refused_not_averaged(bench, tmp_path):
    from trial_maker import make_trial

    from benchhouse.warehouse.ingest import collect
    from benchhouse.warehouse.query import Warehouse
    from benchhouse.warehouse.summaries import Summaries

    workspace = WorkspaceFolder(tmp_path)
    for number in range(2):
        collect(workspace, day(number), [make_trial(workspace, day(number), minute=number)])
    from benchhouse.results import metric_history

    with Warehouse.open(workspace) as warehouse, Summaries.of(warehouse) as summaries:
        case = metric_history.find_case(summaries, "demo")
        rows = summaries.values(case.benchmark_case_id, case.target_name, "qps", "value")
    mixed = [row | {"unit": "1/min" if row["run_id"] == day(1) else row["unit"]} for row in rows]
    from benchhouse.schema.errors import BenchError

    with pytest.raises(BenchError, match="its unit changed"):
        metric_history._refuse_mixed(mixed, "qps", "value")


def test_an_accepted_baseline_holds_later_runs_to_it(bench, kept):
    from benchhouse.evidence import journals
    from benchhouse.results import history

    workspace = WorkspaceFolder(kept)
    assert bench("baseline", "accept", "demo", "--why", "release 2.1", cwd=kept).code == 0
    record = json.loads(bench("baseline", "show", "demo", "--json", cwd=kept).out)
    assert record["run_id"] == day(DAYS - 1) and record["n"] == DAYS - STEP
    assert record["level"] == pytest.approx(92.0, rel=0.02)
    # As if it had been accepted before the step, at the level of that time.
    (line, *_), _ = journals.read(workspace.baseline_journal, type(history.baselines(workspace)[0]))
    earlier = line.model_copy(update={"run_id": day(STEP - 1), "level": 100.0})
    journals.append(workspace.baseline_journal, earlier, "")
    done = bench("history", "demo", cwd=kept)
    assert done.code == 3
    assert "WORSE by" in done.out and f"noticed at {day(STEP)[:6]}" in done.out
    assert bench("baseline", "clear", "demo", cwd=kept).code == 0
    assert json.loads(bench("baseline", "list", "--json", cwd=kept).out) == []
    assert bench("baseline", "clear", "demo", cwd=kept).code == 2


def test_a_rule_can_not_walk_the_baseline(bench, kept):
    from benchhouse.evidence import journals
    from benchhouse.results import history

    workspace = WorkspaceFolder(kept)
    refused = bench("baseline", "accept", "demo", "--unless-worse", "2%", cwd=kept)
    assert refused.code == 2 and "no person has accepted" in refused.err
    bench("baseline", "accept", "demo", cwd=kept)
    assert bench("baseline", "accept", "demo", "--unless-worse", "2%", cwd=kept).code == 0
    by_person = history.baselines(workspace)[0].model_copy(update={"by": "person", "rule": "", "level": 100.0})
    journals.append(workspace.baseline_journal, by_person, "")
    by_rule = by_person.model_copy(update={"by": "rule", "rule": "walks", "level": 93.0})
    journals.append(workspace.baseline_journal, by_rule, "")
    # Only 1% below what the rule accepted last, but 8% below what a person did.
    walked = bench("baseline", "accept", "demo", "--unless-worse", "2%", cwd=kept)
    assert walked.code == 3 and "worse than what was accepted" in walked.err


def test_torn_and_foreign_lines_in_the_journal_are_left_out(bench, kept):
    bench("baseline", "accept", "demo", cwd=kept)
    with (kept / ".bench" / "baselines.jsonl").open("ab") as file:
        file.write(b'{"time": "half a li')
    assert bench("baseline", "accept", "demo", cwd=kept).code == 0
    assert len(json.loads(bench("baseline", "list", "--json", cwd=kept).out)) == 1
    assert len((kept / ".bench" / "baselines.jsonl").read_text().splitlines()) == 3


def test_the_gate_stops_a_regression_with_exit_code_3(bench, made):
    done = bench("gate", f"{day(STEP - 1)}..{day(STEP)}", "--mde", "3%", "--metric", "qps", "--json", cwd=made)
    found = json.loads(done.out)
    assert (done.code, found["judgement"]) == (3, "regression")
    assert found["rows"][0]["worse"] > 0.05


def test_the_gate_says_when_it_can_not_tell_and_what_would_help(bench, made):
    done = bench("gate", f"{day(0)}..{day(1)}", "--mde", "0.5%", cwd=made)
    assert done.code == 6
    assert "gate: can't tell" in done.out
    assert "repetitions: " in done.err and "no selftest here yet" in done.err
    assert bench("gate", f"{day(0)}..{day(1)}", "--mde", "0.5%", "--undecided", "pass", cwd=made).code == 0


def test_the_gate_passes_what_is_not_worse_by_what_matters(bench, made):
    assert bench("gate", f"{day(0)}..{day(1)}", "--mde", "20%", cwd=made).code == 0
    assert bench("gate", f"{day(STEP)}..{day(0)}", "--mde", "3%", cwd=made).code == 0  # better


@pytest.fixture
def bounded(tmp_path):
    """Three runs whose qps can be off by 10: the second is 8% lower, and of the third every one is INVALID."""
    from trial_maker import make_trial

    from benchhouse.schema.measurement import Measurement
    from benchhouse.warehouse.ingest import collect

    for number, (level, valid) in enumerate([(100.0, True), (92.0, True), (50.0, False)]):
        measured = [
            Measurement(metric="qps", stat="value", value=level + at / 10, unit="1/s", direction="higher",
                        error_bound=10.0, valid=valid)
            for at in range(5)
        ]  # fmt: skip
        plain = Measurement(metric="recall", stat="value", value=0.9, unit="1", direction="higher")
        folders = [
            make_trial(WorkspaceFolder(tmp_path), day(number), at + 1, numbers=[one, plain], minute=60 * number)
            for at, one in enumerate(measured)
        ]
        collect(WorkspaceFolder(tmp_path), day(number), folders)
    return tmp_path


def test_the_gate_calls_no_regression_what_the_error_bounds_hide(bench, bounded):
    done = bench("gate", f"{day(0)}..{day(1)}", "--metric", "qps", "--json", cwd=bounded)
    assert (done.code, json.loads(done.out)["judgement"]) == (6, "can't tell")
    assert json.loads(done.out)["repetitions_needed"] is None


def test_the_gate_can_not_tell_of_a_figure_that_is_invalid_and_says_so(bench, bounded):
    done = bench("gate", f"{day(0)}..{day(2)}", "--metric", "qps", "--metric", "recall", cwd=bounded)
    assert done.code == 6
    assert f"not judged: qps is INVALID in every trial of {day(2)}" in done.err


def test_a_history_says_which_runs_gave_no_number(bench, bounded):
    from trial_maker import make_trial

    from benchhouse.warehouse.ingest import collect

    for number, outcome in ((3, "invalid"), (4, "error")):
        folder = make_trial(WorkspaceFolder(bounded), day(number), 1, outcome=outcome, minute=60 * number)
        collect(WorkspaceFolder(bounded), day(number), [folder])
    told = json.loads(bench("history", "demo", "--metric", "qps", "--json", cwd=bounded).out)
    assert f"Left out, as no trial gave a valid number: {day(3)} (INVALID), {day(4)} (failed)." in told["notes"]


def test_a_history_leaves_out_a_run_whose_figure_is_invalid_and_says_so(bench, bounded):
    told = json.loads(bench("history", "demo", "--metric", "qps", "--json", cwd=bounded).out)
    assert [run["run_id"] for run in told["runs"]] == [day(0), day(1)]
    assert f"Left out, as it is INVALID in every trial: {day(2)}." in told["notes"]


@pytest.mark.parametrize("asked", [["a"], ["..b"], ["a.."], ["@last..@last", "--mde", "300%"], ["@last..nobody"]])
def test_a_gate_that_makes_no_sense_is_bad_input(bench, made, asked):
    assert bench("gate", *asked, cwd=made).code == 2


def test_verdicts_cite_the_last_selftest(bench, kept):
    from benchhouse.evidence import journals
    from benchhouse.schema.quality import SelftestMetric, SelftestRecord

    metric = SelftestMetric(
        metric="qps", stat="value", pairs=40, false_positives=2, rate=0.05, rate_low=0.006, rate_high=0.169, cv=0.01,
        smallest_effect=0.031,
    )  # fmt: skip
    record = SelftestRecord(
        time="2026-03-01T00:00:00Z", host="node1", scenario="demo", run_id="r", plan_digest="p", repetitions=3,
        confidence=0.95, metrics=[metric],
    )  # fmt: skip
    journals.append(WorkspaceFolder(kept).selftest_journal, record, "")
    cited = "2 of 40 A/A comparisons looked different"
    for asked in (
        ["compare", day(0), day(1)],
        ["gate", f"{day(0)}..{day(1)}", "--undecided", "pass"],
        ["history", "demo"],
    ):
        done = bench(*asked, cwd=kept)
        assert cited in done.err and "3.1%" in done.err, asked
    assert "node1" in bench("selftest", "--last", cwd=kept).err


def test_compare_counts_outliers_whatever_is_done_with_them(bench, tmp_path):
    from trial_maker import make_trial

    from benchhouse.warehouse.ingest import collect

    workspace = WorkspaceFolder(tmp_path)
    for number, run in enumerate((day(0), day(1))):
        values = [100.0, 101.0, 99.0, 100.5, 99.5, 100.0 if number else 10.0]
        folders = [make_trial(workspace, run, at, value=value, minute=number) for at, value in enumerate(values)]
        collect(workspace, run, folders)
    kept = bench("compare", day(0), day(1), "--metric", "qps")
    assert "Outliers: keep; 1 value more than 5 robust deviations off: kept (1 of qps)" in kept.err
    left = bench("compare", day(0), day(1), "--metric", "qps", "--outliers", "mad", "--json")
    found = json.loads(left.out)
    assert (found["rows"][0]["n_a"], found["rows"][0]["n_b"]) == (5, 6)
    assert any("LEFT OUT" in note for note in found["notes"])


def test_rounds_are_paired_by_themselves_and_runs_one_after_the_other_are_not(bench, tmp_path):
    from trial_maker import make_trial

    from benchhouse.warehouse.ingest import collect

    workspace = WorkspaceFolder(tmp_path)

    def trials(run, targets, late, **more):
        return [
            make_trial(
                workspace, run, at, target=target, value=(100.0 + 20 * at) * factor * (1 + 0.001 * (at % 2)),
                minute=10 * at + late, **more,
            )
            for at in range(1, 7)
            for target, factor in targets
        ]  # fmt: skip

    collect(workspace, day(0), trials(day(0), (("flat", 1.0), ("hnsw", 1.02)), 0))
    sides = "@last:name=flat", "@last:name=hnsw"
    plain = json.loads(bench("compare", *sides, "--metric", "qps", "--no-paired", "--json").out)
    assert plain["rows"][0]["verdict"] == "no evidence of a difference"
    assert not any("aired" in note for note in plain["notes"])
    for asked in ((), ("--paired",)):
        paired = json.loads(bench("compare", *sides, "--metric", "qps", *asked, "--json").out)
        assert paired["rows"][0]["verdict"] == "better"
        assert paired["rows"][0]["method"] == "paired t, 6 rounds"
        assert any(note.startswith("Paired: ") for note in paired["notes"])
    collect(workspace, day(1), trials(day(1), (("flat", 1.02),), 5))  # between the trials of the other run
    turned = json.loads(bench("compare", day(0) + ":name=flat", day(1), "--metric", "qps", "--json").out)
    assert turned["rows"][0]["method"] == "paired t, 6 rounds"
    collect(workspace, day(2), trials(day(2), (("flat", 1.02),), 600))
    apart = day(0) + ":name=flat", day(2)
    found = json.loads(bench("compare", *apart, "--metric", "qps", "--json").out)
    assert "Not paired: one side ran after the other." in found["notes"]
    refused = bench("compare", *apart, "--paired")
    assert refused.code == 2 and "did not take turns" in refused.err


def test_few_rounds_are_paired_only_when_asked(bench, tmp_path):
    from trial_maker import make_trial

    from benchhouse.warehouse.ingest import collect

    workspace = WorkspaceFolder(tmp_path)
    folders = [
        make_trial(workspace, day(0), at, target=target, value=100.0 + at, minute=10 * at)
        for at in range(1, 4)
        for target in ("flat", "hnsw")
    ]
    collect(workspace, day(0), folders)
    sides = "@last:name=flat", "@last:name=hnsw", "--metric", "qps", "--json"
    found = json.loads(bench("compare", *sides).out)
    assert "Not paired: qps has 3 rounds in common, 5 are needed." in found["notes"]
    assert json.loads(bench("compare", *sides, "--paired").out)["rows"][0]["method"] == "paired t, 3 rounds"


def test_what_was_judged_noticed_and_accepted_is_a_row_to_query(bench, kept):
    from benchhouse.evidence import journals
    from benchhouse.results import history

    def ask(sql):
        return json.loads(bench("query", sql, "--json", cwd=kept).out)["rows"]

    workspace = WorkspaceFolder(kept)
    (kept / ".bench" / "regressions.jsonl").unlink(missing_ok=True)  # other gates of this file
    for runs, mde in ((f"{day(STEP - 1)}..{day(STEP)}", "3%"), (f"{day(2)}..{day(3)}", "50%")):
        bench("gate", runs, "--mde", mde, "--metric", "qps", cwd=kept)
    judged = ask("SELECT run_id, base_run_id, judgement, worse, n FROM regression_fact ORDER BY time")
    assert [(row["run_id"], row["judgement"], row["n"]) for row in judged] == [
        (day(STEP), "regression", 3), (day(3), "good", 3),
    ]  # fmt: skip
    assert 0.04 < judged[0]["worse"] < 0.12 and judged[0]["base_run_id"] == day(STEP - 1)
    bench("baseline", "accept", "demo", "--why", "2.1", cwd=kept)
    earlier = history.baselines(workspace)[0].model_copy(update={"run_id": day(STEP - 1), "level": 100.0})
    with workspace.baseline_journal.open("a") as file:
        file.write('{"time": "half a li')  # torn by a kill: such a line must not hide the others
    journals.append(workspace.baseline_journal, earlier, "")
    for _ in range(2):  # the same alarm seen twice is one row
        assert bench("history", "demo", cwd=kept).code == 3
    (alarm,) = ask("SELECT * FROM alarm_fact")
    assert alarm["since_run_id"] >= day(STEP) and alarm["worse"] is True and alarm["change"] < -0.04
    assert [(row["run_id"], row["why"]) for row in ask("SELECT run_id, why FROM baseline_fact ORDER BY run_id")] == [
        (day(STEP - 1), "2.1"), (day(DAYS - 1), "2.1"),
    ]  # fmt: skip


def test_an_alarm_that_can_not_be_kept_is_still_told(bench, kept):
    from benchhouse.evidence import journals
    from benchhouse.results import history

    workspace = WorkspaceFolder(kept)
    bench("baseline", "accept", "demo", cwd=kept)
    earlier = history.baselines(workspace)[0].model_copy(update={"run_id": day(STEP - 1), "level": 100.0})
    journals.append(workspace.baseline_journal, earlier, "")
    workspace.alarm_journal.mkdir()
    try:
        done = bench("history", "demo", cwd=kept)
        assert done.code == 3 and "the verdict was not kept" in done.err
    finally:
        workspace.alarm_journal.rmdir()


def test_with_few_runs_history_suggests_what_works(bench, tmp_path):
    from trial_maker import make_trial

    from benchhouse.warehouse.ingest import collect

    workspace = WorkspaceFolder(tmp_path)
    for number, expected in ((0, "9 more runs"), (1, "8 more runs")):
        collect(
            workspace, day(number), [make_trial(workspace, day(number), at + 1, value=100.0 + at) for at in range(3)]
        )
        for verb in (("history",), ("baseline", "show")):
            told = bench(*verb, "demo").err
            assert expected in told and "baseline accept" not in told
            assert "bench gate" in told
    assert bench("gate", f"{day(0)}..{day(1)}").code in (0, 6), "what it suggests is no mistake"


def test_versions_of_an_experiment_are_told_apart(bench, made):
    (case,) = json.loads(bench("history", "--json", cwd=made).out)
    assert case["version"] and case["experiment"]
    assert f"{case['experiment']} {case['version']}" in bench("history", cwd=made).out
    assert f"{case['experiment']} {case['version']}" in bench("history", "demo", cwd=made).out
