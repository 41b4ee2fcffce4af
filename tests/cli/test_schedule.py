"""`bench schedule` and `bench agent`: a real agent with a slot that is due, killed and started again."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from services.hook import hears

from benchhouse.automation.schedules.store import opened
from benchhouse.schema.layout import WorkspaceFolder
from benchhouse.schema.schedules import Schedule

BENCH = [sys.executable, "-m", "benchhouse"]
SCENARIO = 'scenario: nap\nexperiment: command\ntarget: {name: s, argv: [sleep, "0.1"]}\n'


def run_bench(folder: Path, *words: str, code: int = 0) -> str:
    done = subprocess.run([*BENCH, "-C", str(folder), *words], capture_output=True, text=True, timeout=120, cwd=folder)
    assert done.returncode == code, done.stderr
    return done.stdout + done.stderr


def slots(folder: Path) -> list[dict]:
    return json.loads(run_bench(folder, "schedule", "show", "nap", "--json"))["slots"]


def test_an_agent_that_is_killed_again_and_again_runs_the_slot_that_is_due_once(tmp_path):
    (tmp_path / "nap.yaml").write_text(SCENARIO)
    with opened(WorkspaceFolder(tmp_path)) as store:  # a minute ago: a slot is due now
        store.add(Schedule(name="nap", scenario="nap.yaml", cron="* * * * *", cadence="minutely"), time.time() - 61)
    deadline, delay_s = time.monotonic() + 240, 1.0
    while not any(slot["state"] == "succeeded" for slot in slots(tmp_path)):
        assert time.monotonic() < deadline
        with (tmp_path / "agent.log").open("a") as log:
            agent = subprocess.Popen([*BENCH, "-C", str(tmp_path), "agent"], stderr=log)
        try:
            agent.wait(timeout=delay_s)
        except subprocess.TimeoutExpired:
            agent.send_signal(signal.SIGKILL)
            agent.wait()
        delay_s += 5.0  # the first are killed before they have begun anything
    run_bench(tmp_path, "schedule", "pause", "nap")
    known = slots(tmp_path)
    runs = sorted(path.name for path in (tmp_path / ".bench" / "runs").iterdir())
    assert runs == sorted(slot["run_id"] for slot in known if slot["run_id"])
    record = json.loads((tmp_path / ".bench" / "runs" / runs[0] / "run.json").read_text())
    assert record["scheduled"] == {"schedule": "nap", "due": known[-1]["due"], "cadence": "minutely"}
    assert f"nap, due {known[-1]['due']}" in run_bench(tmp_path, "show", runs[0])


def test_run_now_and_what_fails_is_told_to_a_channel(tmp_path):
    with hears() as (address, heard):
        rule = "{name: slow, case: nap, metric: wall, above: 9, tell: [me]}"
        (tmp_path / "alarms.yaml").write_text(f"alarms: [{rule}]\nchannels: {{me: {{webhook: {address}}}}}\n")
        (tmp_path / "nap.yaml").write_text(SCENARIO)
        run_bench(tmp_path, "schedule", "add", "nap.yaml", "--cron", "0 2 1 1 *", "--tell", "me", "--tell-after", "2")
        (tmp_path / "nap.yaml").unlink()
        for _ in range(2):
            assert "could not be begun" in run_bench(tmp_path, "schedule", "run-now", "nap", code=2)
        run_bench(tmp_path, "agent", "--once")
        run_bench(tmp_path, "agent", "--once")
    texts = [message["text"] for message in heard if "schedule" in message["alarm"]]
    assert len(texts) == 1 and "has failed 2 times in a row" in texts[0]
    assert "schedule nap" in run_bench(tmp_path, "alarms", "log")
    (tmp_path / "nap.yaml").write_text(SCENARIO)
    run_id = run_bench(tmp_path, "schedule", "run-now", "nap").splitlines()[0]
    assert (tmp_path / ".bench" / "runs" / run_id / "run.json").is_file()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nap.yaml", "--cron", "0 0 31 2 *"], "no schedule"),
        (["nap.yaml", "--cron", "0 0 * * *", "--timezone", "Mars/Olympus"], "no time zone"),
        (["nap.yaml", "--cron", "0 0 * * *", "--window", "noon"], "no hours"),
        (["nap.yaml", "--cron", "0 0 * * *", "--name", "../up"], "can't be a name"),
        (["nap.yaml", "--cron", "0 0 * * *", "--tell", "ops"], "no alarms.yaml"),
        (["absent.yaml", "--cron", "0 0 * * *"], "absent.yaml"),
    ],
)
def test_what_could_not_be_carried_out_is_refused(tmp_path, bench, words, message):
    (tmp_path / "nap.yaml").write_text(SCENARIO)
    result = bench("schedule", "add", *words)
    assert result.code == 2 and message in result.err


@pytest.mark.parametrize("keeper", ["service", "timer"])
@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_units_are_accepted_by_systemd(tmp_path, monkeypatch, keeper):
    """Also where the folder has a blank, a percent sign and a dollar."""
    root = tmp_path / "a b%d $HOME"
    root.mkdir()
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    written = run_bench(root, "schedule", "install", keeper)
    units = sorted((tmp_path / "systemd" / "user").iterdir())
    assert len(units) == (1 if keeper == "service" else 2) and all(str(unit) in written for unit in units)
    checked = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *map(str, units)], capture_output=True, text=True,
        env=os.environ | {"SYSTEMD_LOG_LEVEL": "warning"},
    )  # fmt: skip
    assert checked.returncode == 0 and not [line for line in checked.stderr.splitlines() if "bench-agent" in line]
    assert "a b%%d $$HOME" in units[0].read_text()
    run_bench(root, "schedule", "install", keeper, "--remove")
    assert not list((tmp_path / "systemd" / "user").iterdir())


@pytest.mark.skipif(shutil.which("crontab") is None, reason="Debian's cron is not installed")
def test_the_line_is_accepted_by_cron(tmp_path):
    """Only looked at (`crontab -n`): nobody's crontab is changed."""
    root = tmp_path / "a b%d $HOME"
    root.mkdir()
    printed = run_bench(root, "schedule", "install", "crontab", "--dry-run")
    lines = "".join(line + "\n" for line in printed.splitlines() if line.startswith(("#", "*")))
    assert "a b\\%d $HOME" in lines and lines.count("\n") == 2
    for text, code in ((lines, 0), (lines.replace("* * * * *", "61 * * * *"), 1)):
        (tmp_path / "crontab").write_text(text)
        checked = subprocess.run(["crontab", "-n", str(tmp_path / "crontab")], capture_output=True, text=True)
        assert checked.returncode == code, checked.stderr


def test_scrontab_has_the_options_of_slurm_and_the_command(tmp_path):
    (tmp_path / "nap.yaml").write_text(SCENARIO)
    printed = run_bench(tmp_path, "schedule", "render", "nap.yaml", "--cron", "0 2 * * *", "--on", "scrontab")
    assert printed.splitlines()[0] == "#SCRON --job-name=bench-nap"
    assert printed.splitlines()[-1].startswith("0 2 * * * ") and printed.strip().endswith(str(tmp_path / "nap.yaml"))
