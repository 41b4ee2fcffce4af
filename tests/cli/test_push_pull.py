"""`bench warehouse push`, `bench warehouse pull` and `bench query --engine`."""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "warehouse"))
from engines_at_hand import filled, new_database


def test_a_team_pushes_asks_and_pulls(bench, tmp_path, postgres_server):
    ada, bob = filled(tmp_path / "ada").root, tmp_path / "bob"
    bob.mkdir()
    address = new_database(postgres_server.endpoint)

    planned = json.loads(bench("warehouse", "push", address, "--dry-run", "--json", cwd=ada).out)
    assert planned["dry_run"]
    assert [one["what"] for one in planned["runs"]] == ["new", "new"]
    pushed = bench("warehouse", "push", address, "--run", "@last", cwd=ada)
    assert pushed.code == 0
    assert pushed.out == "run-b: new, 92 rows in 10 tables\n"
    assert f"1 run moved, every digest checked\nnext:  bench query --engine {address} SQL" in pushed.err
    again = bench("warehouse", "push", address, cwd=ada)
    assert "1 run moved, every digest checked, 1 there already" in again.err

    asked = json.loads(
        bench("query", "--engine", address, "SELECT count(*) AS n FROM trial_fact", "--json", cwd=bob).out
    )
    assert asked["rows"] == [{"n": 28}]
    assert asked["query"]["engine"] == "postgresql"
    assert len(asked["query"]["inputs"]) == 2
    refused = bench("query", "--engine", address, "DELETE FROM trial_fact", cwd=bob)
    assert refused.code == 2
    assert "only one SELECT" in refused.err

    assert bench("warehouse", "pull", address, cwd=bob).code == 0
    mine, theirs = (
        bench("query", "--csv", "SELECT * FROM measurement_fact ORDER BY ALL", cwd=cwd).out for cwd in (ada, bob)
    )
    assert mine == theirs
    assert bench("compare", "run-a", "run-b", cwd=bob).code == 0


def test_what_would_be_lost_is_refused_with_exit_code_1(bench, tmp_path):
    from trial_maker import make_trial

    from benchhouse.schema.layout import WorkspaceFolder
    from benchhouse.warehouse.ingest import collect

    for name, repetitions in (("ada", (1, 2)), ("bob", (2, 3))):
        workspace = WorkspaceFolder(tmp_path / name)
        collect(workspace, "run-a", [make_trial(workspace, "run-a", at) for at in repetitions])
    done = bench("warehouse", "push", "../bob", cwd=tmp_path / "ada")
    assert done.code == 1
    assert "refused" in done.out
    assert "bring them the other way first, or --replace" in done.out
    assert bench("warehouse", "push", "../bob", "--replace", cwd=tmp_path / "ada").code == 0


def test_a_run_that_is_not_there_and_the_own_folder_are_told(bench, tmp_path):
    ada = filled(tmp_path / "ada").root
    assert "no run 'run-z'" in bench("warehouse", "push", "..", "--run", "run-z", cwd=ada).err
    assert "both source and destination" in bench("warehouse", "push", ".", cwd=ada).err
    assert "has no run run-z" in bench("warehouse", "pull", "ada", "--run", "run-z").err


def test_a_run_that_was_pulled_is_reported_and_verified_and_what_needs_its_ledger_says_so(bench, tmp_path):
    bob = filled(tmp_path / "bob").root  # its tables and folders, as a pull leaves them
    reported = bench("report", "@last", cwd=bob)
    assert reported.code == 0, reported.err
    assert Path(reported.out.strip()).is_file()
    assert bench("verify", "@last", cwd=bob).out == "14 trials checked: all as sealed\n"
    metrics = next((bob / "results").glob("*/*/metrics.csv"))
    metrics.write_text(metrics.read_text() + "more\n")
    damaged = [bench("verify", run, cwd=bob) for run in ("@last", "@last-1")]
    assert sorted(done.code for done in damaged) == [0, 1]
    stands = bench("status", "@last", cwd=bob)
    assert stands.code == 1, "one trial failed"
    assert "pulled" in stands.out and "14 of 14: 1 failed, 13 succeeded" in stands.out
    assert "run-b" in bench("show", "@last", cwd=bob).out
    for verb in (["stop", "@last"], ["run", "--resume", "@last"]):
        refused = bench(*verb, cwd=bob)
        assert refused.code == 2
        assert "run run-b was not made in this workspace: its ledger is not here" in refused.err
