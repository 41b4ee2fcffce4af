import sqlite3

import pytest
from trial_maker import make_run

from benchhouse.schema.errors import BenchError
from benchhouse.warehouse import catalog as catalog_module
from benchhouse.warehouse.catalog import MIGRATIONS, TableCatalog
from benchhouse.warehouse.ingest import collect, open_catalog, rebuild
from benchhouse.warehouse.query import Warehouse


def test_a_catalog_of_an_unknown_newer_version_is_refused(workspace):
    collect(workspace, "run-a", make_run(workspace))
    with sqlite3.connect(workspace.warehouse / "catalog.sqlite") as db:
        db.execute(f"PRAGMA user_version = {len(MIGRATIONS) + 1}")
    for act in (Warehouse.open, rebuild, lambda workspace: collect(workspace, "run-a", [])):
        with pytest.raises(BenchError, match=f"catalog version {len(MIGRATIONS) + 1}, .* up to {len(MIGRATIONS)}"):
            act(workspace)


def test_an_older_catalog_is_migrated_where_it_lies(workspace, monkeypatch):
    collect(workspace, "run-a", make_run(workspace))
    monkeypatch.setattr(
        catalog_module,
        "MIGRATIONS",
        (*MIGRATIONS, lambda db: db.execute("ALTER TABLE runs RENAME COLUMN ended TO over")),
    )
    with TableCatalog.open(workspace) as catalog:
        assert catalog.runs()[0].run_id == "run-a"
        assert catalog._db.execute("PRAGMA user_version").fetchone() == (len(MIGRATIONS) + 1,)
        assert catalog._db.execute("SELECT count(over) FROM runs").fetchone() == (1,)


def test_the_catalog_uses_a_write_ahead_log_and_waits(workspace):
    with open_catalog(workspace) as catalog:
        assert catalog._db.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert catalog._db.execute("PRAGMA busy_timeout").fetchone() == (60_000,)


def test_a_file_that_vanished_before_it_was_registered_is_noticed(workspace):
    collect(workspace, "run-a", make_run(workspace))
    with open_catalog(workspace) as catalog:
        run, files = catalog.runs()[0], catalog.files(["trial_fact"], ["run-a"])
        (workspace.warehouse / files[0].file).unlink()
        assert not catalog.replace_run(run, files, [], instead_of=files)
        assert not catalog.replace_run(run, files, [], instead_of=[])
        assert catalog.trial_ids("", 100), "nothing was changed"


def test_prefixes_find_trials(workspace):
    folders = make_run(workspace)
    collect(workspace, "run-a", folders)
    with open_catalog(workspace) as catalog:
        for folder in folders:
            assert catalog.trial_ids(folder.name[:8], 5) == [folder.name]
            assert catalog.run_of(folder.name) == "run-a"
        assert catalog.trial_ids("zzzz", 5) == []


def refuse(*_, **__):
    raise sqlite3.OperationalError("unable to open database file")


def test_a_catalog_that_can_not_be_opened_is_named_and_not_made_again(workspace, monkeypatch):
    collect(workspace, "run-a", make_run(workspace))
    monkeypatch.setattr("sqlite3.connect", refuse)
    with pytest.raises(BenchError, match=r"catalog\.sqlite: unable to open") as found:
        Warehouse.open(workspace)
    assert "rebuild" not in found.value.hint


def test_a_full_disk_is_told_as_such_and_the_catalog_stays_as_it_was(workspace):
    collect(workspace, "run-a", make_run(workspace))
    with open_catalog(workspace) as catalog:
        catalog._db.execute("PRAGMA max_page_count = 1")
        with pytest.raises(BenchError, match=r"can't write .*full"):
            catalog.publish("reports/a", (f"{at:064}" for at in range(10_000)), [])
        assert catalog.refs("0", 5) == []


def test_a_table_that_can_not_be_read_just_now_is_not_taken_for_damaged(workspace, monkeypatch):
    collect(workspace, "run-a", make_run(workspace))

    def refuse(path):
        raise OSError(5, "Input/output error", path)

    monkeypatch.setattr("benchhouse.warehouse.catalog.file_digest", refuse)
    with Warehouse.open(workspace) as warehouse, pytest.raises(OSError, match="Input/output error"):
        warehouse.query("SELECT count(*) FROM trial_fact")
