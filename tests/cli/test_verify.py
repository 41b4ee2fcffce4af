"""`bench verify` names what has changed."""

import json
import sqlite3

from benchhouse.schema.layout import WorkspaceFolder


def test_an_untouched_run_is_as_sealed(lab):
    lab.run("once", workload={"n": [0, 1]})
    assert "2 trials checked: all as sealed" in lab.bench("verify", "@last").stdout


def test_a_flipped_byte_is_named_with_trial_and_file(lab):
    lab.run("once", workload={"n": [0, 1]})
    folder = lab.folders()[0]
    path = folder / "logs" / "trial.jsonl"
    data = bytearray(path.read_bytes())
    data[7] ^= 1
    path.write_bytes(data)
    done = lab.bench("verify", "@last", code=1)
    assert f"{folder.name}/logs/trial.jsonl: changed" in done.stdout
    assert "1 fault" in done.stdout
    assert f"{folder.name}/logs/trial.jsonl" in lab.bench("verify", folder, code=1).stdout


def test_a_folder_that_is_gone_is_named(lab):
    lab.run("once", workload={"n": [0, 1]})
    folder = lab.folders()[0]
    folder.rename(folder.with_name(".hidden"))
    (damage,) = json.loads(lab.bench("verify", "@last", "--json", code=1).stdout)["damage"]
    assert damage["trial"] == folder.name


def test_set_aside_attempts_are_verified_too(lab):
    lab.run("mischief", workload={"act": "flaky"})
    assert json.loads(lab.bench("verify", "@last", "--json").stdout) == {"checked": 3, "damage": []}
    (first,) = [path for path in lab.folders() if path.name.endswith(".attempt-1")]
    (first / "meta.json").write_bytes(b"")
    (damage,) = json.loads(lab.bench("verify", "@last", "--json", code=1).stdout)["damage"]
    assert (damage["trial"], damage["file"]) == (first.name, "meta.json")


def test_tables_of_an_older_version_are_no_fault_and_the_next_command_is_named(lab):
    lab.run("once", workload={"n": [0]})
    assert json.loads(lab.bench("verify", "--all", "--json").stdout)["outdated"] == []
    with sqlite3.connect(WorkspaceFolder(lab.workspace).warehouse / "catalog.sqlite") as db:
        db.execute("UPDATE files SET schema_version = 1")
    done = lab.bench("verify", "--all")
    assert "all as sealed" in done.stdout
    assert "no damage" in done.stderr and "bench warehouse rebuild" in done.stderr
    lab.bench("warehouse", "rebuild")
    assert "rebuild" not in lab.bench("verify", "--all").stderr


def test_a_catalog_that_is_wrong_is_a_fault_and_the_next_command_mends_it(lab):
    lab.run("once", workload={"n": [0]})
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
