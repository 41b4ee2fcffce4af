"""`bench import`: files of other tools become runs, once each."""

import json
import signal
from pathlib import Path

import pytest
from laboratory import warm_bench

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


def test_what_is_wrong_in_a_folder_keeps_nothing_else_back(lab):
    folder = lab.workspace / "old"
    folder.mkdir()
    (folder / "a.json").write_bytes(HYPERFINE.read_bytes()[:700])
    (folder / "b.json").write_bytes(HYPERFINE.read_bytes())
    (folder / "c.gz").write_bytes(b"\x1f\x8bno")
    (folder / "loadgen.txt").write_bytes((DATA / "loadgen-6.0.17-server_detail.txt").read_bytes())
    for part in ("1", "1.1"):
        (folder / f"pgbench_log.{part}").write_bytes((DATA / "pgbench-15.18_log.10584").read_bytes())
    done = lab.bench("import", ".", code=2)
    assert "b.json: 2 cases of hyperfine, imported" in done.stdout and "pgbench_log.1: 1 case" in done.stdout
    assert "doubtful: LoadGen itself calls this result INVALID" in done.stdout
    assert "not imported: old/a.json:" in done.stderr and "not imported: old/c.gz: can't be read" in done.stderr
    again = json.loads(lab.bench("import", lab.workspace, "--json", code=2).stdout)
    assert [run["before"] for run in again["runs"]] == [True] * 3, "evidence and state are no results of other tools"
    assert [Path(file["file"]).name for file in again["refused"]] == ["a.json", "c.gz"]


def test_what_is_so_of_one_case_alone_names_it(lab):
    done = lab.bench("import", DATA / "google-benchmark-1.9.5-complexity.json")
    assert "doubtful: no device (broken)" in done.stdout
    assert "no samples (sum): the file has aggregates of it alone" in done.stdout


def test_a_mapping_says_that_it_is_a_table(lab):
    done = lab.bench("import", DATA / "table.csv", "--mapping", DATA / "table-mapping.yaml")
    assert "cases of mytool" in done.stdout


def test_a_torn_file_leaves_nothing(lab):
    torn = lab.workspace / "torn.json"
    torn.write_bytes(HYPERFINE.read_bytes()[:700])
    done = lab.bench("import", torn, code=2)
    assert "torn.json" in done.stderr and "nothing was imported" in done.stderr
    assert not (lab.workspace / ".bench" / "runs").exists()


def test_importers_are_listed(lab):
    assert "hyperfine --export-json" in lab.bench("list", "importers").stdout


@pytest.mark.parametrize(
    "step",
    [
        "benchhouse.runs.imports._copy",  # while what was read is written
        "benchhouse.api.importing.prepare",  # it is kept, with the id of its run
        "benchhouse.api.importing.open_run",  # the run is planned
        "benchhouse.api.execution.carry_out",  # the run is open
        "benchhouse.api.execution.collect",  # the trial is sealed
    ],
)
def test_an_import_that_was_killed_ends_in_one_run(lab, step):
    killed = warm_bench().call(("import", str(HYPERFINE)), lab.workspace, lab.environment(), 120, kill_at=step)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    done = json.loads(lab.bench("import", HYPERFINE, "--json").stdout)["runs"][0]
    assert (done["complete"], done["cases"]) == (True, 2)
    again = json.loads(lab.bench("import", HYPERFINE, "--json").stdout)["runs"][0]
    assert (again["run_id"], again["before"]) == (done["run_id"], True)
    assert [path.name for path in (lab.workspace / ".bench" / "runs").iterdir()] == [done["run_id"]]
    assert len(list((lab.workspace / ".bench" / "imports").iterdir())) == 1
    assert len(lab.trials("hyperfine")) == 2
    assert "as sealed" in lab.bench("verify", "@last").stdout


def test_a_name_with_control_characters_reaches_no_terminal(lab):
    path = lab.workspace / "escape.json"
    path.write_text(HYPERFINE.read_text().replace("seq 1000", "a\\u001b[2J\\u0000b\\u202e ../../x"))
    shown = [lab.bench("import", path), lab.bench("show", "@last"), lab.bench("report", "@last")]
    for done in shown:
        assert not {"\x1b", "\0", "\u202e"} & set(done.stdout + done.stderr)
