"""What of a run an exporter is given, made of sealed trials."""

from trial_maker import make_trial

from benchhouse.api.workspace import Workspace
from benchhouse.results.exported_run import gather
from benchhouse.schema.measurement import Measurement
from benchhouse.warehouse.ingest import collect


def test_numbers_are_those_of_the_points_and_a_failed_trial_is_told(collected):
    run = gather(collected, "run-a")
    rows = {(row.label, row.metric, row.stat): row for row in Workspace(collected.root).points("run-a")}
    told = {(point.name, item.metric, item.stat): item for point in run.points for item in point.figures}
    assert told.keys() == rows.keys()
    for key, item in told.items():
        row = rows[key]
        assert (item.mean, item.interval, list(item.values), item.ref) == (row.mean, row.interval, row.values, row.ref)
        assert (item.unit, item.direction, list(item.trials)) == (row.unit, row.direction, row.trials)
    assert any("1 of" in line and "INVALID or failed" in line for line in run.left_out)
    assert all(point.files and not point.lost_files for point in run.points)


def test_evidence_that_is_not_as_it_was_sealed_does_not_leave(collected):
    changed = next(collected.results.rglob("metrics.json"))
    changed.write_text(changed.read_text() + " ")
    lost = [line for point in gather(collected, "run-a").points for line in point.lost_files]
    assert len(lost) == 1 and "is not what was sealed" in lost[0]


def test_a_run_that_nobody_collected_is_nothing(collected):
    assert gather(collected, "run-b") is None


def test_a_name_that_stands_for_two_numbers_is_told_and_left_out(collected):
    numbers = [
        [Measurement(metric=name, stat="value", value=1.0, unit=unit) for name, unit in (("qps", unit), ("x", "1"))]
        for unit in ("1/s", "1/min")
    ]
    folders = [make_trial(collected, "run-u", at, numbers=own) for at, own in enumerate(numbers, start=1)]
    collect(collected, "run-u", folders)
    run = gather(collected, "run-u")
    assert any("qps is two different numbers" in line for line in run.left_out)
    assert {item.name for point in run.points for item in point.figures} == {"x"}
