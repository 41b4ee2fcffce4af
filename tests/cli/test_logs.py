"""`bench logs`: what trials, their servers and the workers said."""

import contextlib
import hashlib
import json
import os
import pty
import re
import subprocess
import tarfile
import time
from datetime import UTC, datetime, timedelta

import pytest
from laboratory import BENCH, Lab, wait_until
from services.small_server import recipe

TALK = '''
import os, socket, time
from pathlib import Path
from benchhouse import Context, Metric, experiment
from benchhouse.schema.recipe import Recipe

SERVER = """
import os, socket, sys
listener = socket.create_server(("127.0.0.1", int(sys.argv[1])))
print("up with", os.environ.get("DB_PASSWORD", "no password"), flush=True)
while True:
    heard = listener.accept()[0]
    word = heard.recv(100).decode()
    if word:
        print("heard", word, flush=True)
    heard.close()
"""


@experiment("talk", version="1.0", metrics=[Metric(name="x")])
def talk(ctx: Context, n: int = 0, wait: bool = False, name: str = "echo"):
    service = ctx.service(Recipe(name=name, program=("python3",), endpoint="{port}",
                                 command=("{python}", "-c", SERVER, "{port}")))
    for word in ("one", "two"):
        print("saying", word, n, flush=True)
        time.sleep(0.03)
        with socket.create_connection(("127.0.0.1", int(service.endpoint))) as server:
            server.sendall(f"{word} {n}".encode())
            server.recv(1)
        time.sleep(0.03)
    print("\\x1b[31m10%\\r100%\\x1b[0m\\x07", flush=True)
    Path(os.environ["LAB"], f"said-{n}").touch()
    while wait and not Path(os.environ["LAB"], "go").exists():
        time.sleep(0.02)
    ctx.emit("x", n)
'''
ENTRY = "[benchhouse.experiments]\ntalk = talk:talk\n"
SAID = ["saying one", "heard one", "saying two", "heard two"]


def talking(root):
    lab = Lab(root)
    lab.install("talk", "1.0", TALK, ENTRY)
    return lab


@pytest.fixture(scope="module")
def ended(tmp_path_factory):
    """A run of two trials that has ended."""
    lab = talking(tmp_path_factory.mktemp("ended"))
    lab.variables["DB_PASSWORD"] = "hunter2secret"
    lab.run("talk", workload={"n": [0, 1]}, environment={"DB_PASSWORD": "$DB_PASSWORD"})
    return lab


@pytest.fixture
def talkers(tmp_path):
    lab = talking(tmp_path)
    yield lab
    (lab.marks / "go").touch()
    for line in lab.left_running():
        with contextlib.suppress(OSError):
            os.kill(int(line.split()[0]), 9)


def lines(lab, *options):
    return [json.loads(line) for line in lab.bench("logs", "tail", "@last", "--json", *options).stdout.splitlines()]


def packed(lab, *options):
    """Files of the tarball without their common folder, and its manifest."""
    lab.bench("logs", "get", "@last", "-o", lab.root / "logs.tar.gz", *options)
    with tarfile.open(lab.root / "logs.tar.gz") as tar:
        found = {}
        for member in tar.getmembers():
            top, _, path = member.name.partition("/")
            assert member.isreg() and top == f"{lab.run_id()}-logs" and ".." not in path and not path.startswith("/")
            assert (member.uid, member.gid, member.uname) == (0, 0, "")
            found[path] = tar.extractfile(member).read()
    return found, json.loads(found.pop("manifest.json"))


def words(rows):
    return [
        " ".join(row["line"].split()[:2]) for row in rows if row.get("line", "").split()[:1] in (["saying"], ["heard"])
    ]


def test_lines_of_all_components_and_trials_come_in_the_order_of_their_times(ended):
    rows = lines(ended, "-n", 1000)
    assert [row["time"] for row in rows] == sorted(row["time"] for row in rows)
    assert words(rows) == SAID * 2
    assert {row["component"] for row in rows} == {"worker", "experiment", "echo"}
    assert {row["trial_id"] for row in rows} == {trial.folder.name for trial in ended.trials()}
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", row["time"]) for row in rows)


def test_the_newest_lines_are_shown_of_what_is_asked_for(ended):
    every = lines(ended, "-n", 1000)
    assert lines(ended, "-n", 3) == every[-3:]
    assert lines(ended, "-n", 0) == []
    assert len(lines(ended)) == min(20, len(every))
    echo = [row for row in every if row["component"] == "echo"]
    assert lines(ended, "--component", "echo") == echo
    assert lines(ended, "--component", "echo", "-n", 2) == echo[-2:]
    trial = every[0]["trial_id"]
    assert lines(ended, "--trial", trial[:8], "-n", 1000) == [row for row in every if row["trial_id"] == trial]
    middle = every[len(every) // 2]["time"]
    assert lines(ended, "--since", middle, "-n", 1000) == [row for row in every if row["time"] >= middle]
    assert lines(ended, "--until", middle, "-n", 1000) == [row for row in every if row["time"] < middle]
    assert lines(ended, "--since", "1h", "-n", 1000) == every
    assert lines(ended, "--until", "1h") == []


def test_people_see_time_trial_component_and_words_and_no_commands_to_their_terminal(ended):
    shown = ended.bench("logs", "tail", "s", "-n", 1000).stdout
    assert re.search(r"^\d\d:\d\d:\d\d\.\d{3} [0-9a-f]{8} experiment saying one 0$", shown, re.MULTILINE)
    assert re.search(r" echo       heard two 1$", shown, re.MULTILINE)
    assert re.search(r" worker     trial ended outcome=succeeded duration_s=", shown)
    assert "experiment 100%\n" in shown and "\x1b" not in shown and "\x07" not in shown


def test_components_have_colours_on_a_terminal(ended):
    ours, theirs = pty.openpty()
    environment = ended.environment() | {"NO_COLOR": "", "TERM": "xterm"}
    command = [*BENCH, "logs", "tail", "@last", "-n", "30"]
    subprocess.run(command, stdout=theirs, cwd=ended.workspace, env=environment, check=True)
    os.close(theirs)
    shown = b""
    with contextlib.suppress(OSError):
        while piece := os.read(ours, 65536):
            shown += piece
    os.close(ours)
    found = dict(reversed(pair) for pair in re.findall(rb"(\x1b\[\d+m)(echo|experiment|worker) *\x1b\[0m", shown))
    assert len(found) == 3 and len(set(found.values())) == 3


def test_options_that_select_nothing_are_refused(ended):
    for options, part in (
        (("--component", "ehco"), "did you mean 'echo'?"),
        (("--trial", "zzz"), "'zzz'"),
        (("--since", "yesterday"), "'yesterday'"),
        (("--since", "2026-13-01"), "2026-13-01"),
        (("--since", "5m", "--until", "10m"), "--until"),
        (("-n", "-1"), "-1"),
    ):
        assert part in ended.bench("logs", "tail", "@last", *options, code=2).stderr, options


def test_a_tarball_has_everything_and_says_what(ended):
    worker_log = ended.workspace / ".bench" / "runs" / ended.run_id() / "worker_logs" / "x.1.log"
    worker_log.write_text("a crash with AKIAIOSFODNN7EXAMPLE\n")
    try:
        found, manifest = packed(ended)
    finally:
        worker_log.unlink()
    trials = [f"trials/{trial.folder.name}.1" for trial in ended.trials()]
    names = ["echo.log", "stderr.log", "stdout.log", "trial.jsonl"]
    wanted = {f"{trial}/{name}" for trial in trials for name in names if name != "stderr.log"}
    assert set(found) == wanted | {"events.jsonl", "worker_logs/x.1.log"}
    assert found["worker_logs/x.1.log"] == b"a crash with [redacted]\n"
    for trial in ended.trials():
        raw = (trial.folder / "logs" / "echo.log").read_bytes()
        assert found[f"trials/{trial.folder.name}.1/echo.log"] == raw and b"up with [redacted]\n" in raw
    assert b"hunter2secret" not in b"".join(found.values())
    assert {item["path"]: item["sha256"] for item in manifest["files"]} == {
        path: hashlib.sha256(content).hexdigest() for path, content in found.items()
    }
    assert {item["path"]: item["lines"] for item in manifest["files"]} == {
        path: content.count(b"\n") for path, content in found.items()
    }
    assert manifest["left_out"] == [] and manifest["scenario"] == "s"


def test_the_same_logs_make_the_same_bytes(ended):
    made = []
    for name in ("a.tar.gz", "b.tar.gz"):
        ended.bench("logs", "get", "@last", "-o", ended.root / name)
        made.append((ended.root / name).read_bytes())
        time.sleep(1.1 * (len(made) < 2))  # times of files in an archive are whole seconds
    assert made[0] == made[1]


def test_a_tarball_is_named_after_its_run(ended):
    done = ended.bench("logs", "get")
    assert done.stdout == f"{ended.run_id()}-logs.tar.gz\n" and "lines" in done.stderr
    (ended.workspace / done.stdout.strip()).unlink()
    told = json.loads(ended.bench("logs", "get", "--json", "--component", "echo").stdout)
    assert len(told["files"]) == 4 and told["components"] == ["echo"]
    (ended.workspace / told["output"]).unlink()


def test_a_tarball_has_only_what_is_asked_for(ended):
    first = ended.trials()[0].folder.name
    found, _ = packed(ended, "--component", "echo", "--trial", first[:8])
    assert set(found) == {f"trials/{first}.1/echo.log", f"trials/{first}.1/trial.jsonl"}
    told = [json.loads(line) for line in found[f"trials/{first}.1/trial.jsonl"].splitlines()]
    assert {row["component"] for row in told} == {"echo"}
    every = lines(ended, "-n", 1000)
    middle = every[len(every) // 2]["time"]
    found, manifest = packed(ended, "--since", middle)
    told = [
        json.loads(line) for path, text in found.items() if path.startswith("trials/") for line in text.splitlines()
    ]
    assert sorted(row["time"] for row in told) == [row["time"] for row in every if row["time"] >= middle]
    assert all(path.endswith(".jsonl") for path in found)
    assert any(line.endswith("stdout.log: its lines have no times") for line in manifest["left_out"])
    assert set(packed(ended, "--component", "orchestrator")[0]) == {"events.jsonl"}


def test_a_zone_is_a_zone(ended):
    every = lines(ended, "-n", 1000)
    began = datetime.fromisoformat(every[0]["time"])
    east = (began + timedelta(hours=2)).replace(tzinfo=None).isoformat() + "+02:00"
    assert lines(ended, "--since", east, "-n", 1000) == every
    assert lines(ended, "--since", began.astimezone(UTC).replace(tzinfo=None).isoformat(), "-n", 1000) == every


def test_a_tarball_that_can_not_be_written_leaves_nothing(ended):
    done = ended.bench("logs", "get", "-o", ended.root / "nowhere" / "x.tar.gz", code=1)
    assert "can't write" in done.stderr
    done = ended.bench("logs", "get", "--until", "10h", "-o", ended.root / "none.tar.gz", code=2)
    assert "has no logs that match" in done.stderr
    assert not [path.name for path in ended.root.iterdir() if "none" in path.name]


def test_the_evidence_is_as_it_was_sealed(ended):
    assert ended.damage() == []
    assert not (ended.trials()[0].folder / "artifacts").exists()


def test_logs_of_a_running_trial_are_shown_and_packed_and_stay_after_kill_9(talkers):
    run = talkers.start("run", talkers.scenario("talk", workload={"wait": True}))
    talkers.wait_for_mark("said-0")
    wait_until(lambda: words(lines(talkers, "-n", 100)) == SAID, "all to be said")
    found, manifest = packed(talkers)
    assert {item["sealed"] for item in manifest["files"] if item["trial_id"]} == {False}
    assert any(path.endswith("/echo.log") for path in found)
    run.kill()
    run.wait()
    wait_until(lambda: not talkers.left_running(), "everything to end")
    assert words(lines(talkers, "-n", 100)) == SAID
    assert any(path.endswith("/echo.log") for path in packed(talkers)[0])


def test_following_shows_each_line_once_and_ends_with_the_run(talkers):
    run = talkers.start("run", talkers.scenario("talk", workload={"n": [0, 1, 2], "wait": True}))
    talkers.wait_for_mark("said-0")
    tail = talkers.start("logs", "tail", "@last", "--follow", "--json", "-n", 1000)
    (talkers.marks / "go").touch()
    assert run.wait(120) == 0
    out, err = tail.communicate(timeout=120)
    assert tail.returncode == 0, err
    shown = out.splitlines()
    assert sorted(shown) == sorted(json.dumps(row, separators=(",", ":")) for row in lines(talkers, "-n", 1000))
    assert words(map(json.loads, shown)) == SAID * 3


def test_a_server_that_is_attached_to_the_run_is_heard_too(talkers):
    (talkers.workspace / "recipes").mkdir()
    (talkers.workspace / "recipes" / "small.yaml").write_text(json.dumps(recipe("answer")))
    services = {"web": {"recipe": "small", "mode": "attached"}}
    talkers.run("talk", services=services)
    rows = lines(talkers, "-n", 1000)
    (attached,) = {row["component"] for row in rows if not row["trial_id"]} - {"worker"}
    assert [row["time"] for row in rows] == sorted(row["time"] for row in rows)
    found, _ = packed(talkers, "--component", attached)
    assert set(found) == {f"services/web/{attached}.log", "services/web/trial.jsonl"}
    talkers.bench("logs", "tail", "--component", attached, "--trial", talkers.trials()[0].folder.name, code=2)


def test_a_server_whose_name_cannot_be_the_name_of_a_log_is_refused(talkers):
    names = {"../x": "ValidationError", "stdout": "bad_recipe_name"}
    talkers.run("talk", code=1, workload={"name": list(names)})
    trials = talkers.by("name")
    for name, code in names.items():
        assert trials[name].code == code and name in trials[name].meta["failure"]["message"]
        files = sorted(path.name for path in (trials[name].folder / "logs").iterdir())
        assert files == ["stderr.log", "stdout.log", "trial.jsonl"], name


LOUD = """
import os

def loud(n: int = 0):
    for _ in range(32):
        os.write(1, (b"x" * 1023 + b"\\n") * 64)
    return {"x": 1}
"""


def test_the_cap_of_a_scenario_holds_for_each_log(lab):
    lab.install("loud", "1.0", LOUD, "[benchhouse.experiments]\nloud = loud:loud\n")
    lab.run("loud", logs={"cap": "100kB"})
    (trial,) = lab.trials()
    assert (trial.folder / "logs" / "stdout.log").stat().st_size < 100_000 + (66 << 10)
    assert "cap: 100000" in (trial.folder / "effective_config.yaml").read_text()


def test_pruning_takes_old_logs_that_are_no_evidence_and_nothing_else(lab_with_run):
    lab = lab_with_run
    before = {path: path.read_bytes() for path in (lab.workspace / "results").rglob("*") if path.is_file()}
    state = lab.workspace / ".bench"
    old, new = state / "runs" / lab.run_id() / "worker_logs" / "old.1.log", state / "monitors" / "new" / "part.parquet"
    quiet = state / "services" / "quiet" / "logs" / "server.log"
    ended = state / "services" / "ended" / "logs" / "server.log"
    for path in (old, new, quiet, ended):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("said\n")
    month = time.time() - 40 * 86400
    for path in (old, quiet, ended, quiet.parent, ended.parent):
        os.utime(path, (month, month))
    with quiet.open("ab"):  # by a server that runs and says little
        would = json.loads(lab.bench("logs", "prune", "--older-than", "30d", "--dry-run", "--json").stdout)
        assert old.exists() and ended.exists()
        done = lab.bench("logs", "prune", "--older-than", "30d")
    gone = [str(path.relative_to(lab.workspace)) for path in (old, ended.parent)]
    assert would["removed"] == gone and done.stdout.splitlines() == gone
    assert [path.exists() for path in (old, ended, quiet, new)] == [False, False, True, True]
    assert {path: path.read_bytes() for path in (lab.workspace / "results").rglob("*") if path.is_file()} == before
    assert lab.bench("verify").returncode == 0
    assert "is not a duration" in lab.bench("logs", "prune", "--older-than", "soon", code=2).stderr


@pytest.mark.parametrize("elsewhere", [False, True])
def test_logs_of_slurm_jobs_are_packed_and_pruned_once_their_run_is_over(lab_with_run, elsewhere):
    lab = lab_with_run
    (lab.workspace / "site.yaml").write_text("site: x\nkeep_logs: 30d\n")
    run = lab.workspace / ".bench" / "runs" / lab.run_id()
    month, job = time.time() - 40 * 86400, f"bench-{lab.run_id()}-0001"
    logs = lab.root / "logs" / "lab" if elsewhere else run / "logs"  # as the site says, or beside the ledger
    logs.mkdir(parents=True)
    if elsewhere:
        (run / "logs").symlink_to(logs)
    for name in (f"{job}_12.out", f"{job}_12.err", f"{job}_13.out", "bench-other-0001_9.out"):
        (logs / name).write_text("words\n")
    for name in (f"{job}_12.out", f"{job}_12.err", "bench-other-0001_9.out"):
        os.utime(logs / name, (month, month))
    lab.bench("logs", "get", "--component", "slurm", "-o", "logs.tar.gz")
    with tarfile.open(lab.workspace / "logs.tar.gz") as tar:
        packed = sorted(name.rpartition("/")[2] for name in tar.getnames() if "/jobs/" in name)
    assert packed == [f"{job}_12.err", f"{job}_12.out", f"{job}_13.out"]
    events = (run / "events.jsonl").read_text()
    (run / "events.jsonl").write_text(events + '{"time": "2026-01-01T00:00:00.000Z", "event": "resumed"}\n')
    assert lab.bench("logs", "prune").stdout == ""  # jobs may be in the queue
    (run / "events.jsonl").write_text(events)
    assert [line.rpartition("/")[2] for line in lab.bench("logs", "prune").stdout.splitlines()] == [
        f"{job}_12.err",
        f"{job}_12.out",
    ]
    assert {path.name for path in logs.iterdir()} == {f"{job}_13.out", "bench-other-0001_9.out"}
    assert lab.bench("verify").returncode == 0


def test_without_an_age_the_site_must_say_how_long_logs_are_kept(lab):
    done = lab.bench("logs", "prune", code=2)
    assert "site 'local' does not say how long logs are kept" in done.stderr and "--older-than 30d" in done.stderr
