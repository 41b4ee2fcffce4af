"""Scheduler events, probes and profiler reports of a trial: each kind from a folder and a record that have it."""

import json
import sys
from pathlib import Path

from benchhouse.evidence.folder import read_meta, read_spec
from benchhouse.schema.layout import TrialFolder, WorkspaceFolder
from benchhouse.schema.trial import Guarantee
from benchhouse.warehouse.query import Warehouse
from benchhouse.worker.raw_evidence import raw_evidence

sys.path.append(str(Path(__file__).parents[1] / "warehouse"))


def made(tmp_path, **meta):
    from trial_maker import make_trial

    folder = TrialFolder(make_trial(WorkspaceFolder(tmp_path), submitted="2026-03-01T11:59:00.000+00:00"))
    return read_spec(folder), read_meta(folder).model_copy(update=meta), folder


def lines(tmp_path, **meta):
    return [json.loads(line) for line in raw_evidence(*made(tmp_path, **meta)).splitlines()]


def test_a_trial_without_any_of_it_has_no_file(tmp_path):
    assert raw_evidence(*made(tmp_path)) == ""


def test_the_batch_system_s_events_are_in_order_with_their_job(tmp_path):
    slurm = {"job_id": "7", "job_start": "1772366390", "nodes": "n[1-2]", "partition": "gpu", "restarts": "0"}
    events = lines(tmp_path, slurm=slurm, slurm_job_id="7_1")
    assert [event["name"] for event in events] == ["submitted", "job_started", "trial_started", "trial_ended"]
    assert events[1]["time"] == "2026-03-01T11:59:50.000+00:00"
    assert {(event["kind"], event["job"]) for event in events} == {("scheduler_event", "7_1")}
    assert events[-1]["says"] == "succeeded"


def test_a_requeued_job_says_so(tmp_path):
    assert "requeued" in [event["name"] for event in lines(tmp_path, slurm={"job_id": "7", "restarts": "2"})]


def test_the_table_has_probes_and_reports(tmp_path):
    probe = Guarantee(name="dedicatedNodes", observed=False, says="others used 9.0% of its processors", value=0.09)
    spec, meta, folder = made(tmp_path, guarantees=[probe])
    (folder.profiles / "rank0").mkdir(parents=True)
    (folder.profiles / "rank0" / "trace.json").write_text("{}")
    folder.raw_evidence.write_text(raw_evidence(spec, meta, folder))
    with Warehouse.open(WorkspaceFolder(tmp_path)) as warehouse:
        rows = warehouse.query("SELECT * FROM raw_evidence_fact ORDER BY kind").dicts()
    report, seen = rows
    assert (report["kind"], report["name"], report["bytes"]) == ("profiler_report", "rank0/trace.json", 2)
    assert (folder.path / report["file"]).is_file()
    assert (seen["kind"], seen["name"], seen["ok"], seen["value"]) == (
        "validation_probe",
        "dedicatedNodes",
        False,
        0.09,
    )
    assert {row["trial_id"] for row in rows} == {spec.trial_id}
