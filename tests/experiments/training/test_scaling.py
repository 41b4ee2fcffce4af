"""`workload.ranks` as the axis of scaling, and the columns of a training, with planted steps."""

import json
import sys

import pytest
from experiments.training.test_run import HEAD

TRAINER = (
    HEAD
    + """
for step in range(8):
    began = 1000 + step * (0.1 + 0.01 * (world - 1))
    emit({"step": step, "t_start": began, "t_end": began + 0.1 + 0.01 * (world - 1), "tokens": 50, "flops": 1e6})
"""
)


def test_ranks_scale_and_the_table_has_mfu_and_hours(bench, tmp_path):
    (tmp_path / "train.py").write_text(TRAINER)
    scenario = {
        "scenario": "ranks", "experiment": "training.run", "repetitions": 1, "scaling": "weak",
        "target": {"argv": [sys.executable, str(tmp_path / "train.py")], "name": "t"},
        "workload": {"ranks": [1, 2], "warmup": 0, "peak": {"flops": 1e8}},
    }  # fmt: skip
    (tmp_path / "ranks.yaml").write_text(json.dumps(scenario))
    done = bench("run", "ranks.yaml", "--json")
    assert done.code == 0, done.err
    compared = json.loads(bench("compare", "@last", "--along", "ranks", "--json").out)
    (curve,) = compared["curves"]
    assert [stage["efficiency"] for stage in curve["stages"]] == pytest.approx([1.0, 0.1 / 0.11])
    hours = "time_to_train_hours * 3600 - time_to_train_s AS off"
    query = f"SELECT mfu_pct, {hours} FROM training_outcome_fact WHERE phase = '' ORDER BY 1 DESC"
    rows = json.loads(bench("query", query, "--json").out)["rows"]
    assert [row["mfu_pct"] for row in rows] == pytest.approx([10.0, 100 / 11])  # a million FLOPs in 0.1 s, of 10^8
    assert [row["off"] for row in rows] == pytest.approx([0, 0], abs=1e-6)
