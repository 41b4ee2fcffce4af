"""`bench import`: files of other tools become runs, once each."""

import json
from pathlib import Path

DATA = Path(__file__).parents[1] / "importers" / "data"
HYPERFINE = DATA / "hyperfine-1.15.0.json"


def test_a_file_becomes_a_run_that_traces_to_its_samples_and_is_imported_once(lab):
    done = json.loads(lab.bench("import", HYPERFINE, "--json").stdout)
    (run,) = done["runs"]
    assert (run["kind"], run["cases"], run["before"], run["complete"]) == ("hyperfine", 2, False, True)
    assert all(abs(item["ours"] - item["theirs"]) < 1e-9 for item in run["figures"])
    again = json.loads(lab.bench("import", HYPERFINE, "--json").stdout)["runs"][0]
    assert (again["run_id"], again["before"]) == (run["run_id"], True)
    trials = lab.trials("hyperfine")
    assert len(trials) == 2
    for trial in trials:
        assert "measured by hyperfine" in trial.meta["warnings"][0]["message"]
        assert (trial.folder / "artifacts" / HYPERFINE.name).read_bytes() == HYPERFINE.read_bytes()
    traced = lab.bench("trace", "@last:target=seq 1000:wall_ms@hyperfine.mean").stdout
    assert "samples, which give mean again, bit for bit" in traced and "every step holds" in traced
    assert "as sealed" in lab.bench("verify", "@last").stdout


def test_our_own_numbers_stand_beside_and_are_not_compared(lab):
    lab.bench("import", HYPERFINE)
    lab.bench("time", "--no-shell", "-r", 2, "-w", 0, "seq 1000")
    done = lab.bench("compare", "hyperfine:target=seq 1000", "time")
    assert "side by side, not compared" in done.stderr
    assert "wall_ms@hyperfine mean" in done.stderr and "taken off the time that a shell takes" in done.stderr
    table = json.loads(lab.bench("compare", "hyperfine:target=seq 1000", "time", "--json").stdout)
    assert not table["rows"] and {row["metric_b"] for row in table["beside"]} >= {"wall_ms"}


def test_a_folder_gives_a_run_for_each_file_that_is_known(lab):
    folder = lab.workspace / "old"
    folder.mkdir()
    (folder / "a.json").write_bytes(HYPERFINE.read_bytes())
    (folder / "b.txt").write_text("notes")
    done = lab.bench("import", folder)
    assert "a.json: 2 cases of hyperfine, imported: run " in done.stdout
    assert "1 file no importer knows" in done.stderr and "b.txt" in done.stderr


def test_a_torn_file_leaves_nothing(lab):
    torn = lab.workspace / "torn.json"
    torn.write_bytes(HYPERFINE.read_bytes()[:700])
    done = lab.bench("import", torn, code=2)
    assert "torn.json" in done.stderr and "nothing was imported" in done.stderr
    assert not (lab.workspace / ".bench" / "runs").exists()


def test_importers_are_listed(lab):
    assert "hyperfine --export-json" in lab.bench("list", "importers").stdout
