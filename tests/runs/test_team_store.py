"""What is known of a team's store that is followed: here the folder of another workspace."""

from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from engines_at_hand import filled

import benchhouse
from benchhouse.runs.team_store import Followed
from benchhouse.schema.errors import BenchError, NotFoundError
from benchhouse.schema.layout import WorkspaceFolder
from benchhouse.warehouse.engine_lake import LakeEngine


@pytest.fixture
def lead(tmp_path):
    """A workspace that follows that of Ada."""
    filled(tmp_path / "ada")
    (tmp_path / "lead").mkdir()
    (tmp_path / "lead" / "workspace.yaml").write_text("warehouse: {share: ../ada}\n")
    return benchhouse.open(tmp_path / "lead")


def test_a_look_brings_what_is_new_and_says_how_much(lead, tmp_path):
    assert lead.warehouse.followed() is None
    first, again = lead.warehouse.look(), lead.warehouse.look()
    assert (first.runs, first.new, again.new, again.problem) == (2, 2, 0, "")
    assert [run.status().state for run in lead.runs()] == ["pulled", "pulled"]
    assert lead.warehouse.followed() == again
    (tmp_path / "ada").rename(tmp_path / "moved")
    away, still = lead.warehouse.look(), lead.warehouse.look()
    assert "no such folder" in away.problem and away.since == still.since == still.away_since()
    assert (still.answered, still.runs) == (again.answered, 2)
    (tmp_path / "lead" / "workspace.yaml").write_text("warehouse: {shard: x}\n")
    assert "shard" in lead.warehouse.look().problem
    (tmp_path / "moved").rename(tmp_path / "ada")
    (tmp_path / "lead" / "workspace.yaml").write_text("warehouse: {share: ../ada}\n")
    assert lead.warehouse.look().away_since() == ""


def test_a_store_that_says_nothing_is_away_too():
    def last_heard(ago_s):
        heard = (datetime.now(UTC) - timedelta(seconds=ago_s)).isoformat(timespec="milliseconds")
        return Followed(engine="x", every_s=30, answered=heard)

    assert last_heard(100).away_since() == ""
    assert (late := last_heard(200)).away_since() == late.answered


def test_evidence_that_is_elsewhere_is_said_to_be_there(lead, tmp_path):
    lead.warehouse.look()
    run = lead["run-a"]
    assert {trial.here for trial in run.trials()} == {False}
    for fetch in (False, True):  # no store of evidence is named
        with pytest.raises(NotFoundError, match="is not here") as refused:
            run.evidence(run.trials()[0].name, fetch=fetch)
        assert f"file://{tmp_path}/ada/results/demo" in refused.value.hint


def test_names_from_elsewhere_lead_out_of_no_folder(lead, tmp_path):
    with closing(LakeEngine(WorkspaceFolder(tmp_path / "ada"))) as ada, closing(LakeEngine(lead.folder)) as lake:
        run = ada.read("run-a")
        tables = {
            name: table.set_column(at, table.schema.field(at), pa.array(["../../ada/results/demo"] * len(table)))
            for name, table in run.tables.items()
            for at in (table.schema.get_field_index("scenario"),)
            if at >= 0
        }
        assert lake.write(replace(run, tables=run.tables | tables, parquet={}), None)
    for read in (lead["run-a"].trials, lambda: lead["run-a"].evidence("x", fetch=True)):
        with pytest.raises(BenchError, match="not the names of a scenario and a trial"):
            read()
