import json

import pytest
from tables import check_table
from trial_maker import make_trial

from benchhouse.evidence.folder import read_meta, read_spec
from benchhouse.schema.layout import TrialFolder
from benchhouse.warehouse.rows import make_rows


@pytest.fixture
def row_of(workspace):
    folder = TrialFolder(make_trial(workspace))
    spec, meta = read_spec(folder), read_meta(folder)

    def make(meta_changes=None, **changes):
        changed = meta.model_copy(update=meta_changes or {})
        return make_rows(spec.model_copy(update=changes), changed, [], "0" * 64, "results/demo/x").trial

    return make


@check_table(
    "axes, values, point",
    [
        ([], {}, ""),
        (["ef"], {"ef": 64}, "ef=64"),
        (["workload.ef", "target.index"], {"workload.ef": 64, "target.index": "hnsw"}, "ef=64 index=hnsw"),
        (["size", "target.size"], {"size": 1, "target.size": 2}, "size=1 target.size=2"),
        (["index"], {"index": "hnsw"}, "index=hnsw"),
        (["options.depth"], {"options.depth": 0.5}, "options.depth=0.5"),
        (["flag"], {"flag": False}, "flag=false"),
        (["mix"], {"mix": [1, 2]}, "mix=[1,2]"),
        (["missing"], {"missing": None}, "missing=null"),
        (["target"], {"target": {"index": "hnsw", "name": "a", "size": 2}}, "target=a"),
    ],
)
def test_axes_are_found_in_parameters_and_target(row_of, axes, values, point):
    row = row_of(
        axes=axes,
        parameters={"ef": 64, "size": 1, "options": {"depth": 0.5}, "flag": False, "mix": [1, 2]},
        target={"name": "a", "index": "hnsw", "size": 2},
    )
    assert json.loads(row["axes"]) == values
    assert row["point"] == point


@check_table(
    "target, name",
    [
        ({"name": "hnsw", "m": 3}, "hnsw"),
        ({"url": "http://x", "m": 3, "more": {"a": 1}, "none": None}, "m=3 url=http://x"),
        ({}, ""),
        ({"text": "x" * 100}, "text=" + "x" * 74 + "…"),
    ],
)
def test_a_target_has_a_readable_name(row_of, target, name):
    assert row_of(target=target)["target_name"] == name


def test_times_are_utc_with_milliseconds_and_usage_may_be_missing(row_of):
    row = row_of({"started": "2026-03-01T14:00:00.123456+02:00", "usage": {}})
    assert row["started"].isoformat(timespec="milliseconds") == "2026-03-01T12:00:00.123"
    assert (row["cpu_s"], row["peak_memory_bytes"]) == (None, None)
