"""Experiments that leave links, devices, or far too much in their trial folders."""

import os
import subprocess

from tables import check_rows

HOSTILE = """
import os, socket, stat, sys
from pathlib import Path
from benchhouse import Context

def pipe_result(ctx):
    # The experiment hands its result over in this file, next to the folder that it works in.
    result = Path.cwd().with_name("result.json")
    result.unlink(missing_ok=True)
    os.mkfifo(result)

def links(ctx):
    home = ctx.artifacts.parent
    for name in ("telemetry", "samples", "histograms", "meta.json", "metrics.json", "metrics.csv", "manifest.json"):
        (home / name).symlink_to(OUTSIDE)
    (ctx.artifacts / "up").symlink_to("../../../../..")
    (ctx.artifacts / "absolute").symlink_to("/etc")

def folders_for_files(ctx):
    home = ctx.artifacts.parent
    for name in ("meta.json", "metrics.json", "metrics.csv", "manifest.json", "packages.json", "evidence.json"):
        (home / name / "inner").mkdir(parents=True)
    (home / "trial.json").unlink()
    (home / "trial.json").mkdir()

def files_for_folders(ctx):
    home = ctx.artifacts.parent
    for name in ("telemetry", "samples", "histograms"):
        (home / name).write_text("a file")
    ctx.artifacts.rmdir()
    ctx.artifacts.write_text("a file")

def special(ctx):
    os.mkfifo(ctx.artifacts / "pipe")
    socket.socket(socket.AF_UNIX).bind(os.path.relpath(ctx.artifacts / "socket"))
    if os.geteuid() == 0:
        os.mknod(ctx.artifacts / "zero", stat.S_IFCHR | 0o666, os.makedev(1, 5))

def replaced(ctx):
    # The whole trial folder becomes a link to somebody's own folder.
    home = ctx.artifacts.parent
    home.rename(Path(OUTSIDE).parent.with_name("moved"))
    home.symlink_to(Path(OUTSIDE).parent)

def deep(ctx):
    os.chdir(ctx.artifacts)
    for _ in range(3000):
        os.mkdir("d" * 20)
        os.chdir("d" * 20)
    Path("file").write_text("x")
    os.chdir("/")

def sparse(ctx):
    with (ctx.artifacts / "sparse").open("wb") as file:
        file.truncate(1 << 40)

def many(ctx):
    for number in range(3000):
        (ctx.artifacts / str(number)).touch()

def many_logs(ctx):
    for number in range(3000):
        (ctx.artifacts.parent / "logs" / str(number)).touch()

def removed(ctx):
    import shutil
    shutil.rmtree(ctx.artifacts.parent)

def hostile(ctx: Context, what: str):
    globals()[what](ctx)
    return {"x": 1}
"""
ENTRY = "[benchhouse.experiments]\nhostile = hostile:hostile\n"
ROWS = [
    ("links", "succeeded", ""),
    ("folders_for_files", "succeeded", ""),
    ("files_for_folders", "error", "Is a directory"),
    ("special", "succeeded", ""),
    ("pipe_result", "timeout", "ended after"),
    ("deep", "failed", "nested deeper"),
    ("many", "failed", "limits.files"),
    ("many_logs", "failed", "limits.files"),
    ("sparse", "failed", "limits.disk"),
    ("replaced", "failed", "replaced"),
]


def test_whatever_an_experiment_leaves_its_trial_is_sealed_and_nothing_else_is_touched(lab, tmp_path, request):
    outside = tmp_path / "own" / "file"
    outside.parent.mkdir()
    outside.write_text("mine")
    outside.chmod(0o200)
    os.mkfifo(outside.with_name("pipe"))
    lab.install("hostile", "1.0", f"OUTSIDE = {str(outside)!r}\n{HOSTILE}", ENTRY)
    what = [*(row[0] for row in ROWS), "removed"]
    limits = {"wall": 5, "files": 2000, "disk": "1GB"}
    more = {"limits": limits, "retries": {"max_retries": 0}}
    request.addfinalizer(lambda: subprocess.run(["rm", "-rf", lab.workspace]))  # pytest can't remove a deep folder
    done = lab.bench("run", lab.scenario("hostile", workload={"what": what}, **more), code=1)
    assert "Traceback" not in done.stderr
    trials = lab.by("what")

    def check(what, outcome, reason):
        trial = trials[what]
        failure = trial.meta["failure"] or {"message": ""}
        assert (trial.outcome, reason in failure["message"]) == (outcome, True), failure
        assert sum(1 for _ in trial.folder.rglob("*")) < 30
        if failure.get("code") == "folder_limit":
            assert not (trial.folder / "artifacts").exists()

    check_rows(check, ROWS)
    lost = [event for event in lab.events() if event.get("outcome") == "lost"]
    assert len(lost) == 1, "a trial without its folder"
    assert "removed" not in trials
    assert lab.damage() == []
    assert sorted(os.listdir(outside.parent)) == ["file", "pipe"]
    assert outside.stat().st_mode & 0o777 == 0o200 and outside.read_text() == "mine"
    lab.is_tidy()
