import json

import pytest
import trial_maker

from benchhouse.report import html, markdown
from benchhouse.report.data import gather
from benchhouse.report.figures import figure_files
from benchhouse.report.files import write_report
from benchhouse.report.payload import payload
from benchhouse.results.environment import limits_in_words
from benchhouse.results.lineage import trace
from benchhouse.schema.errors import BenchError
from benchhouse.schema.layout import WorkspaceFolder
from benchhouse.warehouse.ingest import collect


def test_gather_reads_numbers_from_tables_and_circumstances_from_evidence(collected):
    data = gather(collected, ["run-a"])
    assert data.scenario == "demo"
    assert data.runs[0].outcomes == {"succeeded": 20, "error": 1, "warm-up": 1}
    assert [point.axes for point in data.points][:2] == [{"target": "flat", "ef": 16}, {"target": "flat", "ef": 64}]
    assert data.points[0].label == "flat ef=16"
    qps = data.points[0].numbers[0] if data.points[0].numbers[0].metric == "qps" else data.points[0].numbers[-1]
    assert (qps.cell.n, qps.direction, qps.primary) == (5, "higher", True)
    assert qps.low < qps.cell.value < qps.high
    assert data.environments[0].hosts == ["node1"]
    assert data.environments[0].git_commit == "c" * 40


def test_points_without_a_successful_trial_are_named(collected):
    collect(collected, "run-a", [trial_maker.make_trial(collected, "run-a", ef=256, outcome="error", minute=9)])
    data = gather(collected, ["run-a"])
    assert data.without_number == ["hnsw ef=256 (failed)"]
    told = "4 points: target (2) × ef (2); without a valid number: hnsw ef=256 (failed)"
    assert told in html.render(data)
    assert "without a valid number: hnsw ef=256 (failed)" in markdown.render(data)
    assert payload(data)["missing"] == data.without_number  # which the charts of the page tell
    for chart in (figure.svg for figure in figure_files(data).values()):
        assert "1 without a valid number" in chart and "hnsw ef=256 (failed)" in chart


def test_targets_are_ranked_at_equal_points_and_loads_not_at_all(collected):
    data = gather(collected, ["run-a"])
    assert data.rankings == []
    assert [case.case for case in data.cases] == ["ef=16", "ef=64"]
    for case, ef in zip(data.cases, (16, 64), strict=True):
        for ranking in case.rankings:
            assert {data.points[item.point].axes["ef"] for item in ranking.standings} == {ef}
            assert {data.points[item.point].target_name for item in ranking.standings} == {"flat", "hnsw"}
    page, text = html.render(data), markdown.render(data)
    assert (
        "Side by side under identical load" in page and "### Side by side under identical load\n\n#### ef=16\n" in text
    )
    assert "between the 4 points" not in page + text


def test_the_only_test_that_several_targets_were_put_to_is_shown(collected):
    alone = [trial_maker.make_trial(collected, "run-b", at, ef=16 * at, target="flat", minute=at) for at in (1, 2)]
    collect(collected, "run-b", [*alone, trial_maker.make_trial(collected, "run-b", 3, ef=16, minute=3)])
    data = gather(collected, ["run-b"])
    assert (data.rankings, [case.case for case in data.cases]) == ([], ["ef=16"])
    assert "Side by side under identical load" in html.render(data)


def test_what_is_not_told_apart_is_not_called_best(collected):
    folders = [
        trial_maker.make_trial(collected, "run-b", at, ef=ef, target=target, value=100.0 + at, minute=20)
        for ef in (16, 64)
        for target in ("flat", "hnsw")
        for at in (1, 2, 3)
    ]
    collect(collected, "run-b", folders)
    page = html.render(gather(collected, ["run-b"]))
    assert "qps highest with flat, not for certain" in page
    assert "best with" not in page


def test_whiskers_end_at_zero_for_a_metric_that_is_never_below(tmp_path):
    workspace = WorkspaceFolder(tmp_path / "ws")
    values = (0.1, 0.1, 9.0)
    folders = [trial_maker.make_trial(workspace, "run-a", at, value=value) for at, value in enumerate(values, 1)]
    collect(workspace, "run-a", folders)
    (qps,) = (number for number in gather(workspace, ["run-a"]).points[0].numbers if number.metric == "qps")
    assert qps.low == 0.0 < qps.cell.value < qps.high


def test_intervals_of_runs_that_a_rule_ended_are_wider_and_the_report_says_so(tmp_path):
    workspace = WorkspaceFolder(tmp_path / "ws")
    folders = [trial_maker.make_trial(workspace, "run-a", at, value=100.0 + at % 3) for at in range(1, 7)]
    collect(workspace, "run-a", folders)

    def width():
        data = gather(workspace, ["run-a"])
        (qps,) = (number for number in data.points[0].numbers if number.metric == "qps")
        return qps.high - qps.low, data.headline[-1]

    plain, _ = width()
    scenario = workspace.run("run-a").scenario
    scenario.parent.mkdir(parents=True, exist_ok=True)
    scenario.write_text("repetitions: {until: {ci: 2%, max: 30}}\n")
    widened, told = width()
    assert 1.02 < widened / plain < 1.2
    assert told == "Repetitions ended by a rule: intervals are made at 0.956, so that they cover 0.95."


def test_metrics_come_in_the_order_in_which_the_experiment_gave_them(collected):
    emitted = [item.metric for item in trial_maker.measure(1.0)]
    told = [number.metric for number in gather(collected, ["run-a"]).points[0].numbers]
    assert list(dict.fromkeys(told)) == list(dict.fromkeys(emitted))


def test_warmups_never_enter_a_number_or_the_order_of_execution(collected):
    data = gather(collected, ["run-a"])
    assert len(data.trials) == 21
    assert all(1.0 not in number.values for point in data.points for number in point.numbers)
    assert [trial.started for trial in data.trials] == sorted(trial.started for trial in data.trials)


def test_percentile_from_few_samples_is_marked_with_what_it_needs(collected):
    numbers = gather(collected, ["run-a"]).points[0].numbers
    assert {number.name: number.shaky for number in numbers if number.metric == "latency"} == {
        "latency p50": "",
        "latency p99": "p99 from 20 samples; 100 are needed",
    }


def test_limits_say_what_was_asked_and_what_holds_it():
    limits = {
        "asked": {"wall": 120.0, "cpu": 60.0, "memory": 2 << 30, "processes": 9},
        "enforced_by": {"wall": "worker timer", "cpu_s": "RLIMIT_CPU", "memory": "cgroup v2"},
    }
    assert limits_in_words(limits) == {
        "wall": "120 s, held by worker timer",
        "cpu": "60 s, held by RLIMIT_CPU",
        "memory": "2.0 GiB, held by cgroup v2",
        "processes": "9, held by nothing",
    }


def test_failure_carries_its_code_folder_and_rerun_line(collected):
    failure = gather(collected, ["run-a"], rerun=lambda run, trial: f"again {run} {trial.path.name}").failures[0]
    assert (failure.outcome, failure.code, failure.message) == ("error", "boom", "it broke")
    assert failure.rerun == f"again run-a {failure.trial_id}"
    assert (collected.root / failure.folder / "manifest.json").is_file()


def test_warnings_are_grouped_by_code_with_counts(collected):
    groups = gather(collected, ["run-a"]).warnings
    assert [(group.code, group.count, group.messages) for group in groups] == [("small-n", 22, ["few samples"])]


def test_report_numbers_lead_back_to_their_evidence(collected):
    data = gather(collected, ["run-a"])
    page = write_report(collected, data)
    assert page == collected.reports / "demo" / "run-a" / "index.html"
    assert sorted(path.name for path in page.parent.iterdir()) == ["charts", "index.html", "report.json", "report.md"]
    for cell in json.loads((page.parent / "report.json").read_text())["cells"][:3]:
        assert trace(collected, cell["ref"]).ok


def test_the_same_tables_give_the_same_bytes(collected):
    page = write_report(collected, gather(collected, ["run-a"]))
    before = {path.name: path.read_bytes() for path in page.parent.rglob("*") if path.is_file()}
    write_report(collected, gather(collected, ["run-a"]))
    assert {path.name: path.read_bytes() for path in page.parent.rglob("*") if path.is_file()} == before


def test_lost_evidence_costs_the_environment_not_the_numbers(collected):
    for meta in collected.results.glob("*/*/meta.json"):
        meta.unlink()
    data = gather(collected, ["run-a"])
    assert data.environments == []
    assert len(data.points) == 4


def test_run_that_was_never_collected_is_named(collected):
    with pytest.raises(BenchError, match="no collected trial of run run-z"):
        gather(collected, ["run-z"])


LATE = ("late", "requests were 41 ms late; ask for fewer")


@pytest.fixture
def doubted(collected):
    """Run run-a, and an invalid trial at a good point, and a point with none but invalid trials."""
    made = [
        trial_maker.make_trial(collected, "run-a", 8, outcome="invalid", value=9e9, reason=LATE, minute=6),
        trial_maker.make_trial(collected, "run-a", 1, ef=99, outcome="invalid", value=9e9, reason=LATE, minute=7),
        trial_maker.make_trial(
            collected, "run-a", 2, ef=99, outcome="invalid", value=9e9, reason=("starved", "no CPU"), minute=8
        ),
    ]
    collect(collected, "run-a", made)
    return collected


def test_invalid_trials_are_refused_by_every_number_and_named_with_their_reason(doubted):
    data = gather(doubted, ["run-a"])
    assert max(number.maximum for point in data.points for number in point.numbers) < 9e8
    assert {point.axes["ef"] for point in data.points} == {16, 64}
    assert data.without_number == ["hnsw ef=99 (INVALID)"]
    assert [item.outcome for item in data.failures] == ["error"]
    assert sorted((item.code, item.point) for item in data.invalid) == [
        ("late", "name=hnsw ef=16"),
        ("late", "name=hnsw ef=99"),
        ("starved", "name=hnsw ef=99"),
    ]
    why = "late: requests were 41 ms late; ask for fewer (2 trials); starved: no CPU"
    failed, invalid = data.headline[-2:]
    assert failed == "1 trial has no number: see Failures."
    assert invalid == f"3 trials are INVALID and enter no number: {why}"
    assert {number.cell.n for point in data.points for number in point.numbers} == {5}


def test_page_and_markdown_show_invalid_trials_in_a_section_of_their_own(doubted):
    data = gather(doubted, ["run-a"])
    page, text = html.render(data), markdown.render(data)
    for words in ("Invalid trials (3)", "INVALID · late · name=hnsw ef=99", "3 INVALID"):
        assert words in page
        assert words in text
    assert "Failures (1)" in page
    clean = data.model_copy(update={"invalid": []})
    assert "Invalid trials" not in html.render(clean) + markdown.render(clean)


def test_a_run_of_none_but_invalid_trials_says_so(tmp_path):
    workspace = WorkspaceFolder(tmp_path / "ws")
    collect(workspace, "run-i", [trial_maker.make_trial(workspace, "run-i", 1, outcome="invalid", reason=LATE)])
    data = gather(workspace, ["run-i"])
    assert data.points == []
    assert data.headline == [
        "No trial produced a number that holds.",
        "1 trial is INVALID and enters no number: late: requests were 41 ms late; ask for fewer",
    ]
    assert "No trial failed." in html.render(data)


def test_a_report_of_two_scenarios_leaves_their_own_reports_alone(collected):
    collect(collected, "run-b", trial_maker.make_run(collected, "run-b", scenario="other"))
    own = {
        name: write_report(collected, gather(collected, [run])) for name, run in (("demo", "run-a"), ("other", "run-b"))
    }
    before = {name: page.read_bytes() for name, page in own.items()}
    both = write_report(collected, gather(collected, ["run-b", "run-a"]))
    assert both.parent.parent.name == "demo+other"
    assert {name: page.read_bytes() for name, page in own.items()} == before
    cell = json.loads((both.parent / "report.json").read_text())["cells"][0]
    assert trace(collected, cell["ref"]).ok


def test_a_report_of_very_many_scenarios_still_has_a_folder(tmp_path):
    workspace = WorkspaceFolder(tmp_path / "ws")
    names = [f"{at:02d}-" + "long" * 12 for at in range(9)]
    for name in names:
        collect(workspace, f"run-{name[:2]}", [trial_maker.make_trial(workspace, f"run-{name[:2]}", scenario=name)])
    page = write_report(workspace, gather(workspace, [f"run-{name[:2]}" for name in names]))
    assert page.parent.parent.name.startswith(f"{names[0]}+8-")
