"""Engines that list runs with names that lead elsewhere, or tables that are none: nothing is written."""

import pytest
from tables import check_rows

from benchhouse.schema.errors import BenchError
from benchhouse.schema.layout import WorkspaceFolder
from benchhouse.warehouse.engine import read_run
from benchhouse.warehouse.engine_lake import LakeEngine
from benchhouse.warehouse.transfer import transfer

DIGEST = "ab" * 32


class FakeEngine:
    """Lists what it is given, and has a sound-looking answer for each read."""

    name = "postgresql://fake"

    def __init__(self, listed):
        self.listed = listed

    def runs(self):
        return self.listed

    def read(self, run_id):
        raise AssertionError("a run that can't be ours is not read")


def test_a_fake_engine_whose_runs_are_paths_is_refused(tmp_path):
    rows = [
        ("../../../escape", {"trial_fact": DIGEST}),
        ("/etc/cron.d/escape", {"trial_fact": DIGEST}),
        ("a/b", {"trial_fact": DIGEST}),
        ("", {"trial_fact": DIGEST}),
        ("x" * 5000, {"trial_fact": DIGEST}),
        ("a\x00b", {"trial_fact": DIGEST}),
        ("r1", {"../trial_fact": DIGEST}),
        ("r1", {"no_table": DIGEST}),
        ("r1", {"trial_fact": "../../x"}),
        ("r1", {"trial_fact": 7}),
        ("r1", ["trial_fact"]),
        ("r1", None),
    ]
    workspace = WorkspaceFolder(tmp_path / "ws")
    sink = LakeEngine(workspace)

    def check(run_id, files):
        before = sorted(tmp_path.rglob("*"))
        (moved,) = transfer(FakeEngine({run_id: files}), sink)
        assert moved.what == "refused" and "postgresql://fake" in moved.reason and len(moved.reason) < 400
        assert sorted(tmp_path.rglob("*")) == before

    check_rows(check, rows)
    sink.close()


def test_a_fake_entry_of_a_run_is_refused_before_its_tables_are_read():
    entries = [
        ("1", {"trial_fact": DIGEST}, {"trial_fact": DIGEST}),
        (1, {"trial_fact": DIGEST}, {}),
        (1, {"trial_fact": "x"}, {"trial_fact": DIGEST}),
        (1, "trial_fact", "trial_fact"),
    ]

    def check(*entry):
        with pytest.raises(BenchError, match="fake"):
            read_run("fake", "r1", entry, lambda _: pytest.fail("was read"))

    check_rows(check, entries)
