"""What the batch system or the cluster said of waiting trials is read while they wait, and after the run."""

import json

from benchhouse.executors.kubernetes_waits import Wait, WaitBook
from benchhouse.runs.waits import read_waits, waiting_slots
from benchhouse.schema.layout import RunFolder


def test_each_reason_counts_the_jobs_that_it_was_said_of(tmp_path):
    folder = RunFolder(tmp_path)
    assert read_waits(folder) == {}
    folder.jobs.mkdir()
    rows = [
        ("7_0", "PENDING", "Priority"), ("7_1", "PENDING", "Priority"), ("7_0", "PENDING", "Resources"),
        ("7_0", "PENDING", "Priority"), ("7_0", "RUNNING", "None"), ("7_1", "PENDING", ""),
        ("7_2", "FAILED", "Resources"),
    ]  # fmt: skip
    lines = [json.dumps({"time": "t", "task": task, "state": state, "reason": why}) for task, state, why in rows]
    (folder.jobs / "states.jsonl").write_text("\n".join([*lines, '{"task": "7_3", "sta', "[]", "null"]) + "\n")
    assert read_waits(folder) == {"Priority": 2, "Resources": 1}


def test_slots_wait_until_they_run_and_those_of_an_earlier_session_no_longer(tmp_path):
    folder = RunFolder(tmp_path)
    assert waiting_slots(folder) == []
    WaitBook(folder.waits).note("old", "PENDING", Wait("InsufficientResources", "waits for a node: 2 Insufficient cpu"))
    book = WaitBook(folder.waits)
    for slot in ("first", "second", "third"):
        book.note(slot, "PENDING")
    for _ in range(3):  # the same word again is no news
        book.note("second", "PENDING", Wait("TriggeredScaleUp", "waits for a node, which the autoscaler is starting"))
    book.note("first", "RUNNING")
    second, third = waiting_slots(folder)
    assert (second.slot, second.reason, third.slot, third.says) == ("second", "TriggeredScaleUp", "third", "")
    assert second.says.startswith("waits for a node") and second.waited_s >= 0
    assert len(folder.waits.read_text().splitlines()) == 8, "a line of session, and one a change"
    assert read_waits(folder) == {"InsufficientResources": 1, "TriggeredScaleUp": 1}
