"""`bench verify` names what has changed."""

import json
import shlex
import shutil
import sqlite3
import subprocess
import sys

import pytest

from benchhouse.api.workspace import Workspace
from benchhouse.runs.execution import to_collect
from benchhouse.schema.layout import WorkspaceFolder
from benchhouse.warehouse.audit import collected_folders


def test_a_changed_file_and_a_missing_folder_are_named(lab_with_run):
    lab = lab_with_run
    assert "2 trials checked: all as sealed" in lab.bench("verify", "@last").stdout
    folder, other = lab.folders()
    path = folder / "logs" / "trial.jsonl"
    data = bytearray(path.read_bytes())
    data[7] ^= 1
    path.write_bytes(data)
    done = lab.bench("verify", "@last", code=1)
    assert f"{folder.name}/logs/trial.jsonl: changed" in done.stdout
    assert "1 fault" in done.stdout
    assert f"{folder.name}/logs/trial.jsonl" in lab.bench("verify", folder, code=1).stdout
    other.rename(other.with_name(".hidden"))
    damage = json.loads(lab.bench("verify", "@last", "--json", code=1).stdout)["damage"]
    assert [item["trial"] for item in damage if item["trial"] != folder.name] == [other.name]


def forget(lab):
    """As after a kill before the run was collected: the tables know nothing of it."""
    shutil.rmtree(WorkspaceFolder(lab.workspace).warehouse)
    to_collect(WorkspaceFolder(lab.workspace), lab.run_id())


def test_all_that_is_sealed_is_verified_whatever_the_tables_say(lab_with_run):
    lab = lab_with_run
    first, second = lab.folders()
    (first / "meta.json").write_bytes(b"")
    second.rename(second.with_name(".hidden"))
    for _ in range(2):
        done = lab.bench("verify", "--all", code=1).stdout
        assert f"{first.name}/meta.json: changed" in done and f"{second.name}/.: missing" in done
        lab.bench("warehouse", "rebuild", code=None)
    forget(lab)
    assert lab.bench("verify", "--all", code=1).stdout.count("/meta.json: changed") == 1


def test_a_run_that_was_killed_before_it_was_collected_is_collected_by_the_next_command(lab_with_run):
    lab = lab_with_run
    assert not list(WorkspaceFolder(lab.workspace).uncollected.iterdir())
    forget(lab)
    done = lab.bench("query", "SELECT count(*) AS trials FROM trial_fact", "--json")
    assert json.loads(done.stdout)["rows"] == [{"trials": 2}] and "was killed before it was collected" in done.stderr
    assert "killed" not in lab.bench("query", "SELECT 1").stderr


def test_a_trial_that_was_sealed_in_the_last_moment_is_collected_too(lab_with_run):
    """The orchestrator was killed before it could note it."""
    lab = lab_with_run
    events = WorkspaceFolder(lab.workspace).run(lab.run_id()).events
    lines = events.read_text().splitlines(keepends=True)
    events.write_text("".join(line for line in lines[:-1] if lab.folders()[0].name not in line))
    forget(lab)
    assert Workspace(lab.workspace).catch_up() == [lab.run_id()]
    assert len(collected_folders(WorkspaceFolder(lab.workspace))) == 2


def test_what_can_not_be_collected_now_is_told_and_collected_later(lab_with_run, monkeypatch):
    lab = lab_with_run
    forget(lab)
    workspace, notes = Workspace(lab.workspace), []

    def refuse(path, *_):
        raise OSError(5, "Input/output error", str(path))

    for place in ("benchhouse.warehouse.rows._sealed_bytes", "benchhouse.warehouse.lake.encode"):
        with monkeypatch.context() as patch:
            patch.setattr(place, refuse)
            assert workspace.catch_up(notes.append) == []
    assert len(notes) == 3 and all("Input/output error" in line for line in notes)
    assert workspace.catch_up(notes.append) == [lab.run_id()]
    assert workspace.catch_up() == []


def test_a_ledger_that_can_not_be_read_is_no_all_clear(lab_with_run, monkeypatch):
    lab = lab_with_run

    def refuse(*_):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("benchhouse.runs.ledger.Ledger.events", refuse)
    with pytest.raises(OSError, match="Input/output"):
        Workspace(lab.workspace).verify()


def test_an_experiment_sees_that_its_run_is_to_be_collected(lab, monkeypatch):
    """Whatever becomes of the orchestrator from then on."""
    monkeypatch.setattr("benchhouse.api.execution.collect", lambda *_, **__: sys.exit(9))
    with pytest.raises(SystemExit):
        Workspace(lab.workspace).run(lab.scenario("command", target={"argv": ["true"]}, workload={"executions": 1}))
    (run_id,) = (path.name for path in WorkspaceFolder(lab.workspace).uncollected.iterdir())
    assert Workspace(lab.workspace).catch_up() == [run_id]


def test_on_a_disk_that_may_only_be_read_nothing_is_called_damaged(lab_with_run):
    lab = lab_with_run
    place = shlex.quote(str(lab.workspace))
    mounted = f"mount --bind {place} {place} && mount -o remount,bind,ro {place}"
    if subprocess.run(["unshare", "--mount", "sh", "-c", mounted], capture_output=True).returncode:
        pytest.skip("this user may not mount")
    bench = f"{shlex.quote(sys.executable)} -m benchhouse -C {place} verify --all"
    done = subprocess.run(["unshare", "--mount", "sh", "-c", f"{mounted} && {bench}"], capture_output=True, text=True)
    assert "2 trials checked: all as sealed" in done.stdout, done.stderr


def test_set_aside_attempts_keep_their_logs_and_are_verified(lab):
    lab.run("mischief", workload={"act": "flaky"})
    rows = [json.loads(line) for line in lab.bench("logs", "tail", "@last", "--json", "-n", 100).stdout.splitlines()]
    assert sum(row.get("message") == "trial started" for row in rows) == 3
    files = json.loads(lab.bench("logs", "get", "--json").stdout)["files"]
    assert len({item["path"].split("/")[1] for item in files if item["path"].startswith("trials/")}) == 3
    assert json.loads(lab.bench("verify", "@last", "--json").stdout) == {"checked": 3, "damage": []}
    (first,) = [path for path in lab.folders() if path.name.endswith(".attempt-1")]
    (first / "meta.json").write_bytes(b"")
    (damage,) = json.loads(lab.bench("verify", "@last", "--json", code=1).stdout)["damage"]
    assert (damage["trial"], damage["file"]) == (first.name, "meta.json")


def test_tables_of_an_older_version_are_no_fault_and_the_next_command_is_named(lab_with_run):
    lab = lab_with_run
    assert json.loads(lab.bench("verify", "--all", "--json").stdout)["outdated"] == []
    with sqlite3.connect(WorkspaceFolder(lab.workspace).warehouse / "catalog.sqlite") as db:
        db.execute("UPDATE files SET schema_version = 1")
    done = lab.bench("verify", "--all")
    assert "all as sealed" in done.stdout
    assert "no damage" in done.stderr and "bench warehouse rebuild" in done.stderr
    lab.bench("warehouse", "rebuild")
    assert "rebuild" not in lab.bench("verify", "--all").stderr


def test_a_catalog_that_is_wrong_is_a_fault_and_the_next_command_mends_it(lab_with_run):
    lab = lab_with_run
    with sqlite3.connect(WorkspaceFolder(lab.workspace).warehouse / "catalog.sqlite") as db:
        db.execute("UPDATE files SET rows = 77 WHERE table_name = 'measurement_fact'")
    assert "bench warehouse rebuild" in lab.bench("verify", "--all", code=1).stderr
    lab.bench("warehouse", "rebuild")
    assert "all as sealed" in lab.bench("verify", "--all").stdout


def test_where_nothing_was_sealed_nothing_is_said_to_be_whole(bench, tmp_path):
    done = bench("verify", "--all", cwd=tmp_path)
    assert done.code == 1
    assert "as sealed" not in done.out
    assert "there was no sealed trial to check" in done.err
