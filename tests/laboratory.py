"""A workspace of its own, an experiment that misbehaves on request, and the real `bench` as a subprocess."""

import contextlib
import functools
import json
import os
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from warm_bench import READING_VERBS, RUN_VERBS, SERVICE_VERBS, ForkedBench, WarmBench

from benchhouse.evidence.verify import verify
from benchhouse.schema.layout import TrialFolder, WorkspaceFolder

BENCH = [sys.executable, "-m", "benchhouse"]
NEWEST_COMMANDS: deque["subprocess.Popen[str]"] = deque(maxlen=3)
warm_bench = functools.cache(WarmBench)

MISCHIEF = '''
import ctypes, importlib, math, os, signal, subprocess, sys, time
from pathlib import Path
from benchhouse import Context, Data, Deprecated, Metric, experiment
from benchhouse.schema.histogram import Histogram


def touch(name):
    Path(os.environ["LAB"], name).touch()


def daemon(seconds):
    """Two forks and a new session: nobody's child any more."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            time.sleep(seconds)
        os._exit(0)


def leave_daemons(ctx):
    daemon(300)
    subprocess.Popen(["sleep", "300"], start_new_session=True)
    ctx.emit("x", 1)


def stubborn(ctx):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    subprocess.Popen(["sleep", "300"])
    if os.fork() == 0:
        time.sleep(300)
    time.sleep(300)


def fill(ctx, size):
    block = bytearray(os.urandom(1 << 20)) * 16
    held = []
    while sum(map(len, held)) < size:
        held.append(bytes(block))
    ctx.emit("x", 1)


def shout(ctx, size):
    line = b"x" * 1023 + b"\\n"
    for _ in range(size // 65536):
        os.write(1, line * 64)
    ctx.emit("x", 1)


def flaky(ctx, name, good_after):
    count = len(list(Path(os.environ["LAB"]).glob(f"{name}-*")))
    touch(f"{name}-{count}")
    if count < good_after:
        ctx.fail("busy", "the service is away", retryable=True)
    ctx.emit("x", count)


def burn(ctx):
    while True:
        math.factorial(2000)


class Unspeakable(Exception):
    def __str__(self):
        raise RuntimeError("no words")


def unspeakable(ctx):
    raise Unspeakable


def loud_error(ctx):
    print("last words on stdout")
    print("last words on stderr", file=sys.stderr)
    raise ValueError("a known mistake")


def odd_artifacts(ctx):
    os.mkfifo(ctx.artifacts / "pipe")
    (ctx.artifacts / "link").symlink_to("/etc/passwd")
    (ctx.artifacts / "a b\\nc \\u00e9.txt").write_text("kept")
    Path(os.fsdecode(os.fsencode(ctx.artifacts) + b"/\\xff.bin")).write_text("kept")
    (ctx.artifacts / "sealed").mkdir()
    (ctx.artifacts / "sealed" / "locked").write_text("kept")
    (ctx.artifacts / "sealed" / "locked").chmod(0)
    ctx.emit("x", 1)


def odd_facts(ctx):
    loop = []
    loop.append(loop)
    ctx.metadata(nan=math.nan, inf=math.inf, word="NaN", odd={(1, 2): {3}}, broken="\\ud800", loop=loop)
    ctx.metadata(when=Path("/a"))
    ctx.warn(7, None)
    ctx.emit("x", 1)


def clock_back(ctx):
    real = time.time
    time.time = lambda: real() - 86400
    ctx.emit("x", 1)


def tell_secret(ctx, password):
    for mark in ("told", f"told-{ctx.artifacts.parent.name}"):
        Path(os.environ["LAB"], mark).write_text(password)
    print("the password is", password)
    print("again", password, file=sys.stderr, end="")
    ctx.metadata(note=f"<{password}>", **{password: 1})
    ctx.warn("careful", password)
    (ctx.artifacts / "dump.bin").write_bytes(b"\\0" * 100 + password.encode() + b"\\xff tail")
    raise ValueError(f"refused: {password}")


def doubtful(ctx, then):
    ctx.emit("x", 2.5)
    ctx.invalid("late", "the requests were 40 ms late; ask for fewer")
    ctx.invalid("starved", "the client had no CPU left")
    ctx.invalid("late", "the requests were 40 ms late; ask for fewer")
    return then(ctx)


def slow(ctx, seconds):
    touch(f"slow-{os.getpid()}")
    time.sleep(seconds)
    ctx.emit("x", seconds)


ACTS = {
    "ok": lambda ctx: ctx.emit("x", 1.5),
    "site_variable": lambda ctx: ctx.emit("x", float(os.environ["FROM_SITE"])),
    "fail": lambda ctx: ctx.fail("no_gpu", "there is none"),
    "raise": loud_error,
    "exit": lambda ctx: os._exit(7),
    "sys_exit": lambda ctx: sys.exit("gone"),
    "segfault": lambda ctx: ctypes.string_at(0),
    "killed": lambda ctx: os.kill(os.getpid(), signal.SIGKILL),
    "undeclared": lambda ctx: ctx.emit("y", 1),
    "nan": lambda ctx: ctx.emit("x", math.nan),
    "inf": lambda ctx: ctx.emit("x", -math.inf),
    "huge_int": lambda ctx: ctx.emit("x", 10**400),
    "word": lambda ctx: ctx.emit("x", "12"),
    "none": lambda ctx: ctx.emit("x", None),
    "unit": lambda ctx: ctx.emit("x", 1, unit="s"),
    "silent": lambda ctx: None,
    "own_pydantic": lambda ctx: ctx.emit("x", len(importlib.import_module("pydantic.plugin._loader").__file__)),
    "nonsense": lambda ctx: [1, 2],
    "overflow": lambda ctx: [ctx.emit("x", sign * 1.7e308) for sign in (1, -1, 1)] and None,
    "memory_error": lambda ctx: bytearray(1 << 60),
    "unspeakable": unspeakable,
    "endless_message": lambda ctx: (_ for _ in ()).throw(ValueError("m" * 5_000_000)),
    "stubborn": stubborn,
    "eat": lambda ctx: ctx.emit("x", len(b"x" * (100 << 20))),
    "burn": burn,
    "burn_below": lambda ctx: subprocess.run([sys.executable, "-c", "while True: pass"]),
    "fill": lambda ctx: fill(ctx, 2 << 30),
    "fill_below": lambda ctx: subprocess.run([sys.executable, "-c", "x = b'x' * (1 << 30)"], check=True),
    "daemon": leave_daemons,
    "shout": lambda ctx: shout(ctx, 1 << 28),
    "odd_artifacts": odd_artifacts,
    "odd_facts": odd_facts,
    "clock_back": clock_back,
    "flaky": lambda ctx: flaky(ctx, "flaky", 2),
    "flaky_for_ever": lambda ctx: flaky(ctx, "for_ever", 1000),
    "kill_worker": lambda ctx: os.kill(os.getppid(), signal.SIGKILL),
    "invalid": lambda ctx: doubtful(ctx, lambda ctx: None),
    "invalid_fail": lambda ctx: doubtful(ctx, lambda ctx: ctx.fail("no_gpu", "there is none")),
    "invalid_raise": lambda ctx: doubtful(ctx, loud_error),
    "invalid_silent": lambda ctx: ctx.invalid("late", "and nothing measured"),
    "histogram": lambda ctx: ctx.distribution("x", Histogram(range(1_000_000, 1_000_000_001, 1_000_000))),
    "samples": lambda ctx: [ctx.emit("x", value) for value in range(1, 101)] and None,
}


@experiment("mischief", version="1.0", metrics=[Metric(name="x", unit="ms", direction="lower", role="latency")])
def mischief(act: str, ctx: Context, n: int = 0):
    return ACTS[act](ctx)


@experiment("once", version="1.0", metrics=[Metric(name="x", unit="s")])
def once(ctx: Context, n: int = 0):
    """Fails while the file `bad` is there."""
    if Path(os.environ["LAB"], "bad").exists() and n % 2:
        ctx.fail("bad", "the file is there")
    ctx.emit("x", n)


@experiment("certified", version="1.0", metrics=[
    Metric(name="wait", unit="ms", direction="lower", role="latency"),
    Metric(name="rate", unit="1/s", direction="higher", role="throughput"),
])
def certified(ctx: Context, n: int = 0, values: int = 2000):
    """Counts in histograms, doubts itself at odd n while the file `bad` is there, its figures while `off` is."""
    base = 1_000_000 * (n + 1) + 1000 * ctx.repetition
    ctx.distribution("wait", Histogram(base + 1000 * at for at in range(values)))
    ctx.distribution("wait", Histogram([base]), window="first")
    ctx.emit("rate", 100.0 + n)
    if Path(os.environ["LAB"], "bad").exists() and n % 2:
        ctx.invalid("late", f"requests were {40 + ctx.repetition} ms late; ask for fewer a second")
        ctx.invalid("starved", "the client had no CPU left")
    if Path(os.environ["LAB"], "off").exists():
        beyond = ["mean", "p99"] if n % 2 else ["p99"]
        ctx.bound("wait", {"mean": 1.5, "p50": 1.5, "p99": 50.0}, beyond)
        ctx.warn("figures_invalid", f"a late client can have changed {', '.join(beyond)} of wait: these are INVALID")


def held(n):
    try:
        return n >= int(Path(os.environ["LAB"], "hold").read_text() or 0)
    except FileNotFoundError:
        return False


@experiment("slow", version="1.0", metrics=[Metric(name="x", unit="s")])
def slow_one(ctx: Context, seconds: float = 0.2, n: int = 0, spin: bool = False):
    began = time.monotonic()
    Path(os.environ["LAB"], f"slow-{n}-{ctx.repetition}").write_text(str(os.getpid()))
    while held(n):
        time.sleep(0.02)
    while spin and time.process_time() < seconds:
        pass
    time.sleep(max(0.0, began + seconds - time.monotonic()))
    ctx.emit("x", seconds)
    ctx.metadata(began=began, ended=time.monotonic())


@experiment("secretive", version="1.0", metrics=[Metric(name="x")])
def secretive(target: dict, ctx: Context, environ: bool = False):
    tell_secret(ctx, os.environ["DB_PASSWORD"] if environ else target["password"])


GONE = Deprecated(reason="it was wrong", replaced_by="new")


@experiment("old", version="0.9", metrics=[Metric(name="x")], deprecated=GONE)
def old(ctx: Context):
    ctx.emit("x", 1)


def plain(n: int = 2):
    if n < 0:
        return {"x": n, "bad name!": 3}
    return {"double": 2 * n, "half": n / 2, "word": "yes", "list": [1], "flag": True, "nothing": None}

'''
ENTRIES = """[benchhouse.experiments]
mischief = mischief:mischief
once = mischief:once
certified = mischief:certified
slow = mischief:slow_one
secretive = mischief:secretive
old = mischief:old
plain = mischief:plain
"""

ENDINGS = {  # of the acts of `mischief`: outcome and code; None where a trial is lost
    "ok": ("succeeded", ""),
    "silent": ("failed", "no_metrics"),
    "fail": ("failed", "no_gpu"),
    "raise": ("error", "ValueError"),
    "exit": ("error", "exit"),
    "sys_exit": ("error", "SystemExit"),
    "segfault": ("error", "SIGSEGV"),
    "killed": ("error", "SIGKILL"),
    "undeclared": ("failed", "undeclared_metric"),
    "nan": ("failed", "not_finite"),
    "inf": ("failed", "not_finite"),
    "huge_int": ("failed", "not_finite"),
    "word": ("failed", "not_a_number"),
    "none": ("failed", "not_a_number"),
    "unit": ("failed", "unit_mismatch"),
    "nonsense": ("failed", "bad_return"),
    "overflow": ("error", None),
    "memory_error": ("out_of_memory", "memory_limit"),
    "unspeakable": ("error", "Unspeakable"),
    "endless_message": ("error", "ValueError"),
    "odd_artifacts": ("succeeded", ""),
    "odd_facts": ("succeeded", ""),
    "clock_back": ("succeeded", ""),
    "daemon": ("succeeded", ""),
    "flaky": ("succeeded", ""),
    "flaky_for_ever": ("failed", "busy"),
    "samples": ("succeeded", ""),
    "invalid": ("invalid", "late"),
    "invalid_fail": ("failed", "no_gpu"),
    "invalid_raise": ("error", "ValueError"),
    "invalid_silent": ("failed", "no_metrics"),
    "histogram": ("succeeded", ""),
    "kill_worker": None,
}


@dataclass
class Trial:
    """One sealed folder, read."""

    folder: Path
    meta: dict[str, Any] = field(init=False)
    metrics: dict[str, Any] = field(init=False)
    spec: dict[str, Any] = field(init=False)

    def __post_init__(self) -> None:
        self.meta, self.metrics, self.spec = (
            json.loads((self.folder / name).read_bytes()) for name in ("meta.json", "metrics.json", "trial.json")
        )

    @property
    def outcome(self) -> str:
        return self.meta["outcome"]

    @property
    def code(self) -> str:
        return (self.meta["failure"] or {}).get("code", "")

    @property
    def packages(self) -> dict[str, str]:
        return json.loads((self.folder / "packages.json").read_bytes())

    def stdout(self) -> str:
        return (self.folder / "logs" / "stdout.log").read_text(errors="replace")


@dataclass
class Lab:
    """Everything that a run may touch lies below `root`: workspace, cache, temporary files, fake packages."""

    root: Path
    workspace: Path = field(init=False)
    variables: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.workspace = self.root / "ws"
        for name in ("ws", "site", "tmp", "marks"):
            (self.root / name).mkdir()
        self.install("mischief", "1.0", MISCHIEF, ENTRIES)

    def install(self, name: str, version: str, code: str, entry_points: str) -> None:
        (self.root / "site" / f"{name}.py").write_text(code)
        info = self.root / "site" / f"{name}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        (info / "entry_points.txt").write_text(entry_points)

    @property
    def marks(self) -> Path:
        """Where experiments leave marks that are no evidence."""
        return self.root / "marks"

    @property
    def own_variables(self) -> dict[str, str]:
        """What its trials need, for executors that do not carry our environment: `environment` of a site."""
        return {"LAB": str(self.marks), "PYTHONPATH": str(self.root / "site")}

    def environment(self) -> dict[str, str]:
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("BENCH", "SLURM"))}
        return kept | {
            "PYTHONPATH": os.pathsep.join(filter(None, [str(self.root / "site"), os.environ.get("PYTHONPATH")])),
            "BENCH_CACHE_DIR": str(self.root / "cache"),
            "TMPDIR": str(self.root / "tmp"),
            "LAB": str(self.marks),
            "NO_COLOR": "1",
            **self.variables,
        }

    def scenario(self, experiment: str, name: str = "s", **more: Any) -> Path:
        path = self.workspace / f"{name}.yaml"
        content = {"scenario": name, "experiment": experiment, "retries": {"backoff": 0.05}} | more
        path.write_text(json.dumps(content))
        return path

    def start(self, *args: object, **options: Any) -> "subprocess.Popen[str]":
        process = subprocess.Popen(
            [*BENCH, *map(str, args)], cwd=self.workspace, env=self.environment(), text=True, encoding="utf-8",
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, **options,
        )  # fmt: skip
        NEWEST_COMMANDS.append(process)
        return process

    def fork(self, *args: object) -> ForkedBench:
        """Start `bench` as a fork of a process that has imported it: for servers whose own start is not the subject."""
        return warm_bench().start(tuple(map(str, args)), self.workspace, self.environment())

    def bench(self, *args: object, code: int | None = 0, timeout_s: float = 240) -> "subprocess.CompletedProcess[str]":
        verb, *more = args
        if (
            verb in READING_VERBS
            or (verb in SERVICE_VERBS and "start" not in more)
            or self._runs_without_keepers(*args)
        ):
            done = warm_bench().call(tuple(map(str, args)), self.workspace, self.environment(), timeout_s)
        else:
            process = self.start(*args)
            try:
                out, err = process.communicate(timeout=timeout_s)
            finally:
                process.kill()
            done = subprocess.CompletedProcess(args, process.returncode, out, err)
        if code is not None:
            assert done.returncode == code, f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done

    def _runs_without_keepers(self, verb: object, *more: object) -> bool:
        """Services that outlive a trial are kept by forks of `bench`: those `left_running` must know from afresh."""
        if verb not in RUN_VERBS or not more:
            return False
        scenarios = [self.workspace / str(more[0])]
        if "--resume" in more:
            scenarios = list(self.workspace.glob(".bench/runs/*/scenario.yaml"))
        if not scenarios or not all(path.is_file() for path in scenarios):
            return False
        return not any(word in path.read_text() for path in scenarios for word in ("services", "uses"))

    def run(self, experiment: str, code: int | None = 0, **scenario: Any) -> dict[str, Any]:
        """Run a scenario to its end; what `--json` says."""
        done = self.bench("run", self.scenario(experiment, **scenario), "--json", code=code)
        return json.loads(done.stdout)

    def folders(self, scenario: str = "s") -> list[Path]:
        """Whatever stands in the results folder without a dot."""
        home = self.workspace / "results" / scenario
        return sorted(path for path in home.iterdir() if not path.name.startswith(".")) if home.is_dir() else []

    def trials(self, scenario: str = "s") -> list[Trial]:
        return [Trial(path) for path in self.folders(scenario) if ".attempt-" not in path.name]

    def by(self, parameter: str, scenario: str = "s") -> dict[Any, Trial]:
        return {trial.spec["parameters"][parameter]: trial for trial in self.trials(scenario)}

    def run_id(self) -> str:
        return sorted(path.name for path in (self.workspace / ".bench" / "runs").iterdir())[-1]

    def events(self) -> list[dict[str, Any]]:
        path = self.workspace / ".bench" / "runs" / self.run_id() / "events.jsonl"
        text = path.read_text() if path.exists() else ""  # a run that has just been made has none yet
        found = []
        for line in text.splitlines():
            with contextlib.suppress(ValueError):
                found.append(json.loads(line))
        return found

    def damage(self, scenario: str = "s") -> list[Any]:
        return [item for path in self.folders(scenario) for item in verify(TrialFolder(path))]

    def left_running(self) -> list[str]:
        """Processes of this lab's runs, found by what they were started with."""
        mark = f"LAB={self.marks}".encode()
        found = []
        for path in Path("/proc").iterdir():
            if path.name.isdigit() and int(path.name) != os.getpid():
                with contextlib.suppress(OSError):
                    if mark in (path / "environ").read_bytes().split(b"\0"):
                        command = (path / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                        found.append(f"{path.name} {command}")
        return found

    def cgroups(self) -> list[Path]:
        """Cgroup folders of this lab's trials."""
        ids = {path.name[:8] for path in self.folders()}
        found = [Path(place, name) for place, names, _ in os.walk("/sys/fs/cgroup") for name in names]
        return [path for path in found if path.name.startswith("benchhouse-") and path.name.split("-")[1] in ids]

    def is_tidy(self) -> None:
        """Nothing runs, nothing lies about, everything with a name is whole."""
        wait_until(lambda: not self.left_running(), "processes to end", 60)
        assert not self.cgroups()
        assert not list((self.root / "tmp").iterdir())
        assert not (self.workspace / "results" / "s" / ".partial").exists() or not list(
            (self.workspace / "results" / "s" / ".partial").iterdir()
        )
        assert self.damage() == []

    def hold(self, first: int) -> None:
        """Trials of `slow` from n = `first` on go on running until they are released, however slow the machine is."""
        (self.marks / "hold").write_text(str(first))

    def release(self) -> None:
        (self.marks / "hold").unlink()

    def wait_for_lost(self, count: int) -> None:
        """Until the run has noticed that so many trials are gone."""
        wait_until(
            lambda: [event.get("outcome") for event in self.events()].count("lost") >= count, f"{count} lost", 280
        )

    def wait_for_mark(self, pattern: str, count: int = 1) -> list[Path]:
        wait_until(lambda: len(list(self.marks.glob(pattern))) >= count, f"{count} {pattern}")
        return sorted(self.marks.glob(pattern))

    def workspace_object(self) -> WorkspaceFolder:
        return WorkspaceFolder(self.workspace)


def wait_until(true: Callable[[], object], what: str, limit_s: float = 120) -> None:
    """Return once the check succeeds; otherwise fail after the limit, with the output of the newest commands.

    An expensive check runs at most a quarter of the time: it takes CPU time from the process that the test waits for.
    """
    began = time.monotonic()
    deadline = began + limit_s
    while not true():
        looked = time.monotonic()
        assert looked < deadline, f"waited {limit_s:g} s for {what}{_output_of_newest_commands()}"
        time.sleep(max(0.02, 3 * (looked - began)))
        began = time.monotonic()


def _output_of_newest_commands() -> str:
    """Kill the commands that tests started last and have not read yet, and return what each of them printed."""
    outputs = []
    for process in NEWEST_COMMANDS:
        if process.stdout is None or process.stdout.closed:
            continue
        state = "was still running" if process.poll() is None else f"ended with {process.returncode}"
        process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):  # a program that it started may hold its output open
            printed, warnings = process.communicate(timeout=10)
            outputs.append(f"\n{process.args} {state}:\n{printed[-4000:]}{warnings[-4000:]}")
    return "".join(outputs)


def children(pid: int) -> list[int]:
    found: list[int] = []
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            found += map(int, (task / "children").read_text().split())
    return found


def chain(bench_pid: int) -> tuple[int, int, int]:
    """The host, one worker and one experiment below a running `bench run`."""

    def look() -> tuple[int, int, int] | None:
        for host in children(bench_pid):
            for worker in children(host):
                for experiment in children(worker):
                    return host, worker, experiment
        return None

    wait_until(look, "an experiment to run")
    found = look()
    assert found
    return found


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    made = Lab(tmp_path)
    yield made
    for line in made.left_running():  # a failed test leaves nothing either
        with contextlib.suppress(OSError):
            os.kill(int(line.split()[0]), signal.SIGKILL)


@contextlib.contextmanager
def stopped(after: float | Callable[[], bool], pause_s: float) -> Iterator[None]:
    """A child stops this process after so many seconds, or once that is so, as a machine does that has something better
    to do."""
    child = os.fork()
    if child == 0:
        if callable(after):
            while not after():
                time.sleep(0.02)
        else:
            time.sleep(after)
        os.kill(os.getppid(), signal.SIGSTOP)
        time.sleep(pause_s)
        os.kill(os.getppid(), signal.SIGCONT)
        os._exit(0)
    try:
        yield
    finally:
        os.waitpid(child, 0)  # never killed: it could leave this process stopped
