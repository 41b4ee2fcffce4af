"""A disk that is full, a folder that can't be written, paths that nobody expects."""

import contextlib
import json
import os
import shutil
import subprocess

import pytest


@contextlib.contextmanager
def mounted(folder, *options):
    """A tmpfs there; skips where this user may not mount."""
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", ",".join(options), "tmpfs", str(folder)], capture_output=True)
    if done.returncode:
        pytest.skip(f"can't mount a tmpfs here: {done.stderr.decode().strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def make_room(folder, size):
    subprocess.run(["mount", "-o", f"remount,size={size}", str(folder)], check=True)


def test_a_full_disk_ends_the_run_clearly_and_resume_works_once_there_is_room(lab):
    with mounted(lab.workspace, "size=400k"):
        scenario = lab.scenario("once", workload={"n": list(range(30))})
        done = lab.bench("run", scenario, code=1)
        assert "No space left on device" in done.stderr
        assert "bench run --resume" in done.stderr
        assert "Traceback" not in done.stderr
        finished = {path.name: (path / "manifest.json").read_bytes() for path in lab.folders()}
        assert 2 <= len(finished) < 30
        lab.is_tidy()
        make_room(lab.workspace, "40m")
        lab.bench("run", scenario)
        assert len(lab.trials()) == 30
        assert {
            name: (lab.workspace / "results/s" / name / "manifest.json").read_bytes() for name in finished
        } == finished
        lab.is_tidy()


def test_a_trial_whose_artifacts_fill_the_disk_ends_the_run_clearly(lab):
    lab.install("hog", "1.0", HOG, "[benchhouse.experiments]\nhog = hog:hog\n")
    with mounted(lab.workspace, "size=2m"):
        done = lab.bench("run", lab.scenario("hog", workload={"megabytes": [0, 8]}), code=1)
        good = [trial for trial in lab.trials() if trial.outcome == "succeeded"]
        assert [trial.spec["parameters"]["megabytes"] for trial in good] == [0]
        assert "No space left on device" in done.stderr
        lab.is_tidy()


HOG = """
from benchhouse import Context

def hog(megabytes: int, ctx: Context):
    with (ctx.artifacts / "data").open("wb") as file:
        for _ in range(megabytes):
            file.write(bytes(1 << 20))
    return {"x": megabytes}
"""


def test_a_workspace_with_no_room_at_all_is_told_before_anything_starts(lab):
    with mounted(lab.workspace, "size=16k"):
        scenario = lab.scenario("once")
        (lab.workspace / "filler").write_bytes(b"x" * 4096)
        with contextlib.suppress(OSError):
            (lab.workspace / "filler2").write_bytes(b"x" * 65536)
        done = lab.bench("run", scenario, code=1)
        assert "No space left on device" in done.stderr
        assert "Traceback" not in done.stderr


def test_a_read_only_results_folder_is_named(lab):
    scenario = lab.scenario("once", workload={"n": [0, 1]})
    lab.bench("run", scenario)
    with mounted(lab.workspace / "results", "ro"):
        done = lab.bench("run", scenario, code=1)
    assert "Read-only file system" in done.stderr
    assert str(lab.workspace / "results") in done.stderr
    assert "Traceback" not in done.stderr
    assert len(lab.trials()) == 2
    lab.bench("run", scenario)
    lab.is_tidy()


def test_a_read_only_workspace_is_named(lab):
    scenario = lab.scenario("once")
    text = scenario.read_text()
    with mounted(lab.workspace, "size=1m"):
        scenario.write_text(text)
        subprocess.run(["mount", "-o", "remount,ro", str(lab.workspace)], check=True)
        done = lab.bench("run", scenario, code=1)
    assert "Read-only file system" in done.stderr
    assert "bench -C DIR" in done.stderr


@contextlib.contextmanager
def read_only(folder):
    """The same content, on a tmpfs that nobody may write."""
    saved = folder.with_name(f"{folder.name}-saved")
    shutil.copytree(folder, saved)
    with mounted(folder, "size=20m"):
        shutil.copytree(saved, folder, dirs_exist_ok=True)
        subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=True)
        yield
    shutil.rmtree(saved)


def test_a_verb_that_writes_names_the_read_only_folder_and_advises_what_can_help(lab):
    lab.bench("run", lab.scenario("once"))
    failures = []
    for collected in (True, False):
        if not collected:
            shutil.rmtree(lab.workspace / ".bench" / "warehouse")
        with read_only(lab.workspace):
            for verb in ("init", "warehouse rebuild", "collect", "report"):
                done = lab.bench(*verb.split(), code=None)
                expected = "can't write" in done.stderr and str(lab.workspace) in done.stderr
                expected = expected and "bench -C DIR" in done.stderr
                if done.returncode != 1 or not expected or "Traceback" in done.stderr or "rebuild" in done.stderr:
                    failures.append((verb, collected, done.returncode, done.stderr))
    assert not failures


def test_reports_that_can_not_be_written_are_named(lab):
    lab.bench("run", lab.scenario("once"))
    (lab.workspace / "reports").mkdir()
    with mounted(lab.workspace / "reports", "ro"):
        done = lab.bench("report", code=1)
    assert f"can't write {lab.workspace / 'reports'}: Read-only file system" in done.stderr
    assert f"then: bench report {lab.run_id()}" in done.stderr


def test_a_workspace_with_an_odd_name_works(lab):
    name = "-a dash, a space, new\nline, ünïcödé 試験, quo'te\"$HOME"
    folder = lab.root / name
    folder.mkdir()
    lab.workspace = folder
    lab.scenario("once", workload={"n": [0, 1]})
    lab.bench("run", "s.yaml")
    assert len(lab.trials()) == 2
    assert json.loads(lab.bench("verify", "@last", "--json").stdout) == {"checked": 2, "damage": []}
    lab.bench("-C", f"../{name}/../{name}", "run", "s.yaml")
    assert len(lab.trials()) == 4
    lab.is_tidy()


def test_an_unreadable_cache_and_home_do_not_stop_a_run(lab):
    lab.scenario("once")
    (lab.root / "cache").write_text("a file where a folder is wanted")
    lab.bench("run", "s.yaml")
    assert os.listdir(lab.root / "tmp") == []
