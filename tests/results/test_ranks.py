"""Ranks in the report: what is drawn is what a sealed trial told, and the one that stands out is said."""

import pytest
from trial_maker import flip_byte, make_trial

from benchhouse.evidence.folder import read_spec, seal
from benchhouse.report.data import gather
from benchhouse.report.rank_section import rank_chart, rank_section
from benchhouse.schema.layout import TrialFolder, WorkspaceFolder
from benchhouse.schema.ranks import RankRow, RankTimes
from benchhouse.warehouse.ingest import collect


def table(*own_ms, quantity="own_step_time", straggler=""):
    rows = [RankRow(rank=rank, node=f"n{rank // 2}", times_ms=[time, time]) for rank, time in enumerate(own_ms)]
    return RankTimes(quantity=quantity, first_steps=[10, 20], ranks=rows, straggler=straggler)


def sealed(workspace, times):
    folder = TrialFolder(make_trial(workspace, sealed=False))
    folder.artifacts.mkdir(exist_ok=True)
    (folder.artifacts / "ranks.json").write_text(times if isinstance(times, str) else times.model_dump_json())
    path = seal(folder, read_spec(folder), "succeeded")
    collect(workspace, "run-a", [path])
    return path


def test_the_slow_rank_is_said_with_its_node_and_drawn_darkest(tmp_path):
    workspace = WorkspaceFolder(tmp_path)
    path = sealed(workspace, table(40, 41, 40, 60, straggler="rank 3 on n1 is slow"))
    (ranks,) = gather(workspace, ["run-a"]).ranks
    assert ranks.folder.endswith(path.name) and ranks.chosen == "the only trial"
    drawn = str(rank_chart(ranks))
    assert drawn.count("<rect") == 8 and drawn.count('opacity="1.00"') == 2
    assert "rank 3 n1, from step 20: 60 ms" in drawn
    assert "rank 3 on n1 is slow" in rank_section([ranks])


def test_ranks_that_tell_no_waits_are_drawn_with_a_word_of_caution(tmp_path):
    for at, quantity in enumerate(("own_step_time", "step_time")):
        workspace = WorkspaceFolder(tmp_path / str(at))
        sealed(workspace, table(40, 41, 42, quantity=quantity))
        (ranks,) = gather(workspace, ["run-a"]).ranks
        assert ("they hide who is slow" in rank_section([ranks])) == bool(at)


@pytest.mark.parametrize(
    "times", ["{}", "no JSON", table(40), RankTimes(quantity="step_time", first_steps=[], ranks=[])]
)
def test_what_is_no_table_of_ranks_is_not_shown(tmp_path, times):
    workspace = WorkspaceFolder(tmp_path)
    sealed(workspace, times)
    assert gather(workspace, ["run-a"]).ranks == []


def test_a_table_that_is_not_what_was_sealed_is_not_shown(tmp_path):
    workspace = WorkspaceFolder(tmp_path)
    flip_byte(sealed(workspace, table(40, 41, 60)) / "artifacts" / "ranks.json")
    assert gather(workspace, ["run-a"]).ranks == []
