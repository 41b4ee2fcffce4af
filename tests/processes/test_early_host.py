"""`bench run` forks its worker host ahead of time: the same program, environment and folder as a new process."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from laboratory import children, wait_until

from benchhouse.processes.owner import OWNER

ASK = """
import json, os, sys, time
from pathlib import Path
from benchhouse.processes.early_host import make_ready, take_early_host
{before}
make_ready()
{between}
host = take_early_host((sys.executable, "-P"))
if host is None:
    print("none")
    sys.exit()
ready = json.loads(host.stdout.readline())
shown = Path(f"/proc/{{host.pid}}")
variables = dict(item.split("=", 1) for item in (shown / "environ").read_text().split(chr(0)) if "=" in item)
print(json.dumps({{
    "ready": ready["ready"] == host.pid, "command": (shown / "cmdline").read_text().split(chr(0))[:4],
    "folder": os.readlink(shown / "cwd"), "owner": variables.get("BENCHHOUSE_OWNER", ""), "pid": host.pid,
    "session": os.getsid(host.pid) == host.pid, "again": take_early_host((sys.executable, "-P")) is None,
}}))
host.stdin.close()
print(host.wait(60))
"""


def ask(tmp_path, before="", between="", **variables):
    environment = {key: value for key, value in os.environ.items() if key != OWNER} | variables
    done = subprocess.run(
        [sys.executable, "-c", ASK.format(before=before, between=between)],
        cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_it_shows_itself_as_the_worker_host_with_its_owners_mark(tmp_path):
    told, code = ask(tmp_path)
    told = json.loads(told)
    assert told["ready"] and told["session"] and told["again"]
    assert told["command"] == ["python", "-m", "benchhouse.worker", "--host"]
    assert told["owner"].startswith("p") and "-s" in told["owner"]
    assert code == "0", "when its input ends, it ends"


def test_trials_of_bench_run_are_forked_from_it(lab):
    process = lab.start("run", lab.scenario("mischief", workload={"act": "stubborn"}))
    try:
        wait_until(lambda: any(children(host) for host in children(process.pid)), 120)
        shown = [Path(f"/proc/{host}/cmdline").read_text().split("\0")[:4] for host in children(process.pid)]
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=120)
    assert shown == [["python", "-m", "benchhouse.worker", "--host"]], "a new process would show its interpreter's path"


def test_nothing_in_the_folder_that_it_was_started_in_is_imported(tmp_path):
    (tmp_path / "resource.py").write_text("raise SystemExit('shadowed')")
    told, code = ask(tmp_path)
    assert json.loads(told)["ready"] and code == "0"


def test_it_has_the_folder_of_the_moment_it_is_taken(tmp_path):
    (tmp_path / "other").mkdir()
    told, _ = ask(tmp_path, between='os.chdir("other")')
    assert json.loads(told)["folder"] == str((tmp_path / "other").resolve())


def test_beside_a_thread_or_below_another_orchestrator_there_is_none(tmp_path):
    thread = "import threading; threading.Thread(target=time.sleep, args=(60,), daemon=True).start()"
    assert ask(tmp_path, before=thread) == ["none"]
    assert ask(tmp_path, **{OWNER: "p1-s1-n1"}) == ["none"]


def test_one_that_was_killed_while_it_waited_is_not_taken(tmp_path):
    killed = "from benchhouse.schema import early_host; early_host._waiting.kill(); early_host._waiting.wait(60)"
    assert ask(tmp_path, between=killed) == ["none"]


def test_it_ends_with_an_orchestrator_that_never_asks(tmp_path):
    script = "from benchhouse.schema import early_host as e\ne.make_ready()\nprint(e._waiting.pid)"
    environment = {key: value for key, value in os.environ.items() if key != OWNER}
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=True)
    gone = Path(f"/proc/{int(done.stdout)}")
    wait_until(lambda: not gone.exists() or b"State:\tZ" in (gone / "status").read_bytes(), 120)
