"""What the batch system said of waiting trials is read again after the run."""

import json

from benchhouse.runs.batch import read_waits
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
