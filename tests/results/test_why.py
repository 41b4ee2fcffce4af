"""From sealed trials to cases: joined on identity, whatever clocks and nodes say."""

import pytest
from faults import FAULTS, QUEUED, TRAINING, make_fault_run
from intermittent import Shape, make_run
from trial_maker import make_trial

from benchhouse.analysis.compare import compare
from benchhouse.analysis.playbooks.values import ComparedNumber, ComparedPoint
from benchhouse.api.why import why
from benchhouse.results.cases import correct_waits
from benchhouse.results.comparisons import compare as compare_workspace
from benchhouse.results.numbers import SEED
from benchhouse.results.request_files import slowest
from benchhouse.results.why import abnormal_nodes
from benchhouse.schema.errors import BenchError
from benchhouse.schema.layout import TrialFolder, WorkspaceFolder
from benchhouse.schema.measurement import Measurement
from benchhouse.warehouse import queries
from benchhouse.warehouse.ingest import collect
from benchhouse.warehouse.query import Warehouse


def fault(cause):
    return next(one for one in FAULTS if one.cause == cause)


@pytest.mark.parametrize("cause", ["storage", "straggler:heat", "capacity"])  # one of each kind of fault
def test_an_injected_fault_is_named_through_the_real_tables(tmp_path, cause):
    workspace, injected = WorkspaceFolder(tmp_path), fault(cause)
    make_fault_run(workspace, "a-good", injected.kind, 11)
    make_fault_run(workspace, "b-slow", injected.kind, 11, injected, 0.7, minute=60)
    first = why(workspace, "b-slow").diagnosed[0]
    assert (first.cause, first.suspect, first.playbook) == (injected.cause, injected.suspect, injected.playbook)


def trials(workspace, run, p99, minute, **more):
    numbers = [
        [Measurement(metric="latency", stat=stat, value=value * (1 + at / 200), unit="ms", direction="lower", n=900)
         for stat, value in (("mean", 10.0), ("p99", p99))]
        for at in range(4)
    ]  # fmt: skip
    folders = [
        make_trial(workspace, run, at + 1, numbers=given, minute=minute, **more) for at, given in enumerate(numbers)
    ]
    collect(workspace, run, folders)
    return folders


def test_without_telemetry_it_says_what_got_worse_and_no_cause(tmp_path):
    workspace = WorkspaceFolder(tmp_path)
    trials(workspace, "a", 20.0, 0)
    trials(workspace, "b", 50.0, 60)
    found = why(workspace, "b")
    (point,) = found.points
    assert [one.name for one in point.numbers] == ["latency p99"]
    assert point.diagnoses == [] and point.moved == []
    assert "no playbook has evidence" in found.headline
    assert point.repro.endswith("effective_config.yaml")


def test_metrics_that_repeat_each_other_count_once(tmp_path):
    workspace = WorkspaceFolder(tmp_path)
    for run, level, minute in (("a", 20.0, 0), ("b", 40.0, 60)):
        numbers = [
            [Measurement(metric=metric, stat="mean", value=factor * level * (1 + at / 200), unit="ms",
                         direction="lower", n=900)
             for metric, factor in (("ttft", 1.0), ("ttft_sent", 0.999), ("e2e", 9.0), ("e2e_sent", 8.0))]
            for at in range(4)
        ]  # fmt: skip
        folders = [make_trial(workspace, run, at + 1, numbers=each, minute=minute) for at, each in enumerate(numbers)]
        collect(workspace, run, folders)
    found = why(workspace, "b")
    (point,) = found.points
    assert sorted(one.metric for one in point.numbers) == ["e2e", "e2e_sent", "ttft"]
    assert found.compared == 3  # and the correction is for as many
    assert "ttft_sent has the values of ttft, and counts once with it." in found.notes
    rows = {row.metric: row for row in compare_workspace(workspace, "a", "b").rows}
    assert len(rows) == 4  # a comparison shows them all
    ttft = next(one for one in point.numbers if one.metric == "ttft")
    assert ttft.p_adjusted < rows["ttft"].p_adjusted


def test_a_stall_is_found_in_the_samples_of_the_trials(tmp_path):
    workspace = WorkspaceFolder(tmp_path)
    for run, p99, minute, held in (("a", 20.0, 0, 5.0), ("b", 50.0, 60, 400.0)):
        for at, folder in enumerate(trials(workspace, run, p99, minute)):
            took = [5.0 + at / 10] * 30 + [held, held + at] + [5.0] * 30
            lines = [f"latency,,{index},{value},ms" for index, value in enumerate(took)]
            TrialFolder(folder).samples.write_text("\n".join(["metric,window,index,value,unit", *lines]) + "\n")
    (point,) = why(workspace, "b").points
    (said,) = point.diagnoses
    assert (said.cause, said.side) == ("stall", "service")
    assert point.trials[0].files == ["samples.csv"]
    assert point.trials[0].slow[:2] == ["line 33: latency 403 ms", "line 32: latency 400 ms"]


def test_the_clock_of_a_node_moves_nothing(tmp_path):
    """A node whose clock is years off gives the same answer; only which run is earlier goes by clocks."""
    found = []
    for minute in (60, -4_000_000):
        workspace = WorkspaceFolder(tmp_path / str(minute))
        make_fault_run(workspace, "a", TRAINING, 3, repetitions=3)
        make_fault_run(workspace, "b", TRAINING, 3, fault("storage"), 0.7, minute=minute, repetitions=3)
        said = why(workspace, "b", "a").points[0].diagnoses[0]
        found.append((said.cause, [one.now for one in said.evidence]))
    assert found[0] == found[1]


def test_a_metric_whose_unit_changed_is_refused(tmp_path):
    workspace = WorkspaceFolder(tmp_path)
    trials(workspace, "a", 20.0, 0)
    changed = [Measurement(metric="latency", stat="p99", value=0.05, unit="s", direction="lower", n=900)]
    folders = [make_trial(workspace, "b", at, numbers=changed, minute=60) for at in (1, 2, 3)]
    collect(workspace, "b", folders)
    with pytest.raises(BenchError, match="its unit is ms in a and s in b"):
        why(workspace, "b", "a")


def test_the_wait_is_corrected_for_all_that_was_compared():
    wait = ComparedNumber(metric="queue_s", stat="value", unit="s", direction="lower", base=1, now=60, verdict="worse")
    waits = [wait.model_copy(update={"p_adjusted": p}) for p in (0.002, 0.02, None)]
    cases = [ComparedPoint(point=str(at), numbers=[], wait=one) for at, one in enumerate([*waits, None])]
    first, second, unknown, none = correct_waits(cases, compared=7)
    assert first.wait.p_adjusted == pytest.approx(0.002 * 10) and first.wait.worse
    assert second.wait.p_adjusted == pytest.approx(0.02 * 9) and not second.wait.worse
    assert unknown.wait.p_adjusted is None and none.wait is None


def test_a_wait_among_many_numbers_needs_more_to_be_worse(tmp_path):
    """The p-value that `bench why` shows is at least that of the one test times all that was compared."""
    workspace, injected = WorkspaceFolder(tmp_path), fault("capacity")
    make_fault_run(workspace, "a", QUEUED, 11)
    make_fault_run(workspace, "b", QUEUED, 11, injected, 0.7, minute=60)
    found = why(workspace, "b")
    wait = next(one for point in found.points for one in point.numbers if one.metric == "queue_s")
    with Warehouse.open(workspace) as warehouse:
        rows = queries.trials(warehouse, ["a", "b"]).dicts()
    sides = [[row["queue_s"] for row in rows if row["run_id"] == run] for run in ("a", "b")]
    alone = compare(*sides, direction="lower", seed=SEED).p_value
    assert wait.p_adjusted == pytest.approx(alone * (found.compared + 1))


def test_the_slowest_requests_are_named(tmp_path):
    import pyarrow as pa
    from pyarrow import parquet

    folder = TrialFolder(tmp_path)
    folder.artifacts.mkdir()
    due = [0.0, 0.1, 0.2, 0.3]
    columns = {"index": [0, 1, 2, 3], "measured": [True, True, True, False], "due_s": due,
               "ended_s": [0.01, 0.61, 0.22, 9.9], "error": [None, None, "timeout", None]}  # fmt: skip
    parquet.write_table(pa.table(columns), folder.artifacts / "requests.parquet")
    file, lines = slowest(folder)
    assert file == "artifacts/requests.parquet"
    assert lines[0] == "request 1: due at 0.100 s, took 510.0 ms"
    assert lines[1].endswith("timeout") and len(lines) == 3


def test_damaged_requests_are_left_to_verify_and_seconds_are_shown(tmp_path):
    folder = TrialFolder(tmp_path)
    folder.artifacts.mkdir()
    (folder.artifacts / "requests.parquet").write_bytes(b"PAR1 no")
    head = "second,sent,completed,errors,in_flight,due,good\n"
    (folder.artifacts / "intervals.csv").write_text(head + "0,5,5,0,0,5,5\n1,5,1,0,4,5,1\n")
    assert slowest(folder) == ("artifacts/intervals.csv", ["second 1: 4 in flight, 1 completed, 0 errors"])


def test_a_fault_that_misses_a_trial_is_named_through_the_real_tables(tmp_path):
    workspace, shape = WorkspaceFolder(tmp_path), Shape(clients=4, each=60, usual_s=0.008, pause_s=0.008)
    make_run(workspace, "a-good", 5, "healthy", shape, 5, 0)
    make_run(workspace, "b-slow", 5, "throttling", shape, 5, 4, minute=60)
    (point,) = why(workspace, "b-slow").points
    first = point.diagnoses[0]
    assert (first.cause, first.certainty) == ("cpu_throttling", "weak")
    (shown,) = first.evidence
    assert shown.hits == 4 and min(shown.now[:4]) > 10 * shown.now[4]
    assert {one.trial_id for one in point.trials} <= set(shown.trials[:4])  # those that were hit are shown
    assert "repetitions: 10" in first.next[0]


def test_nodes_that_stood_out_within_trials_are_told_the_most_frequent_first():
    heat, wait = "abnormal_node: n2 is not as the others: heat", "abnormal_node: n3 is not as the others: it waits"
    rows = [{"warnings": warnings} for warnings in ([heat], [wait, "exposed: web"], [wait], None)]
    assert abnormal_nodes(rows) == [
        "In 2 of 4 trials n3 is not as the others: it waits",
        "In 1 of 4 trials n2 is not as the others: heat",
    ]
