"""Do the playbooks name the right cause, and none where nothing is wrong?

    python benchmarks/playbooks.py [--faults 44] [--healthy 40] [--seed 20261116] [--workers 2] [--no-real] [--json]

Injected: every fault of tests/results/faults.py, in turn at several strengths, each in a run of five trials a host:
their sealed folders and telemetry are written by the real writers and collected as ever; `bench why` compares it with a
healthy run of the same kind. Bar: the first cause named is the injected one, and the suspect where there is one, in at
least 90%. Healthy: further runs of the same kinds with the same noise; bar: no diagnosis in at least 95%. The rules
were made on seed 1, and one of them after the real throttled program was missed; what is reported is another seed's.

Real: a program that is throttled by its cgroup's CPU limit, a server that stalls as a whole, one that holds half of
its clients and one that is stopped by a signal, and a slow shard, each run by `bench run` on this machine beside a good
run and one that is as good. They count with the others. The rule for stalls was made after the first was missed; the
second was not known then. The rule that counts trials was written by someone who knew what the first two had shown, so
they prove nothing of it; the server that is stopped by a signal was added afterwards.
"""

import argparse
import http.server
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchhouse.api.why import why
from benchhouse.schema.layout import WorkspaceFolder

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "results"))
from faults import FAULTS, KINDS, Kind, make_fault_run  # type: ignore[import-not-found]

RIGHT_BAR, QUIET_BAR = 0.90, 0.95
STRENGTHS = (0.0, 0.35, 0.7, 1.0)

EXPERIMENT = '''
import os, threading, time, urllib.request
from concurrent.futures import ThreadPoolExecutor
from pydantic import BaseModel
from benchhouse.schema.experiment import Metric, experiment

LATENCY = Metric(name="latency", unit="ms", direction="lower")
STEP = Metric(name="step_time", unit="ms", direction="lower")


class Target(BaseModel):
    name: str = "planted"


class Workload(BaseModel):
    url: str = ""
    flag: str = ""


def work(ms):
    end = time.thread_time() + ms / 1e3
    while time.thread_time() < end:
        pass


@experiment("planted.bursts", version="1.0", metrics=[LATENCY])
def bursts(target: Target, workload: Workload, ctx):
    """Short bursts of small requests: a CPU limit below a burst stops only the requests at its end."""
    for _ in range(20):
        for _ in range(60):
            began = time.perf_counter()
            work(0.15)
            ctx.emit("latency", (time.perf_counter() - began) * 1e3)
        time.sleep(0.1)


@experiment("planted.asks", version="1.0", metrics=[LATENCY])
def asks(target: Target, workload: Workload, ctx):
    """Clients that ask a server, four at a time."""
    lock = threading.Lock()

    def client(number):
        for _ in range(60):
            began = time.perf_counter()
            urllib.request.urlopen(f"{workload.url}{number}", timeout=60).read()
            with lock:
                ctx.emit("latency", (time.perf_counter() - began) * 1e3)
            time.sleep(0.03)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(client, range(4)))


@experiment("planted.shards", version="1.0", metrics=[STEP])
def shards(target: Target, workload: Workload, ctx):
    """Steps that end with the slowest of four shards, each told by its window."""
    slow = 2.5 if os.path.exists(workload.flag) else 1.0
    for _ in range(25):
        began = time.perf_counter()
        for shard in range(4):
            own = time.perf_counter()
            time.sleep(0.02 * (slow if shard == 2 else 1.0))
            ctx.emit("step_time", (time.perf_counter() - own) * 1e3, window=f"shard:{shard}")
        ctx.emit("step_time", (time.perf_counter() - began) * 1e3)
'''
_NAMES = ("bursts", "asks", "shards")
_PROGRAMS = {"half": "asks", "stopped": "asks"}

SERVER = """
import http.server, time
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        time.sleep(0.001)
        self.send_response(200)
        self.send_header("Content-Length", "4")
        self.end_headers()
        self.wfile.write(b"good")
    def log_message(self, *_):
        pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(server.server_address[1], flush=True)
server.serve_forever()
"""


@dataclass(frozen=True)
class Answer:
    """One run: what is wrong with it, and what was said."""

    run: str
    real: bool
    wanted: tuple[str, str] | None
    said: tuple[str, str] | None

    @property
    def right(self) -> bool:
        return self.wanted == self.said


def main() -> int:
    options = _parse()
    with tempfile.TemporaryDirectory(prefix="bench-playbooks-") as folder:
        answers = injected(Path(folder), options.faults, options.healthy, options.seed, options.workers)
        answers += [] if options.no_real else real(Path(folder) / "real")
    faults = [one for one in answers if one.wanted]
    healthy = [one for one in answers if not one.wanted]
    right, quiet = (sum(one.right for one in group) / max(1, len(group)) for group in (faults, healthy))
    ok = right >= RIGHT_BAR and quiet >= QUIET_BAR and len(faults) >= 40 and len(healthy) >= 40
    wrong = [one for one in answers if not one.right]
    if options.json:
        told = [{"run": one.run, "real": one.real, "wanted": one.wanted, "said": one.said} for one in wrong]
        figures = {"faults": len(faults), "right": right, "healthy": len(healthy), "quiet": quiet, "wrong": told}
        print(
            json.dumps(figures | {"seed": options.seed, "real": sum(one.real for one in answers), "ok": ok}, indent=2)
        )
    else:
        for one in wrong:
            print(f"wrong: {one.run}: {one.said or 'nothing'}, and it was {one.wanted or 'nothing'}")
        for real_one in (one for one in answers if one.real):
            print(f"real: {real_one.run}: {real_one.said or 'nothing'}: {'right' if real_one.right else 'WRONG'}")
        print(f"{len(faults)} faults: the right cause first in {right:.1%} (bar {RIGHT_BAR:.0%})")
        print(f"{len(healthy)} healthy runs: no diagnosis in {quiet:.1%} (bar {QUIET_BAR:.0%})")
        print("met" if ok else "MISSED")
    return 0 if ok else 1


def injected(root: Path, faults: int, healthy: int, seed: int, workers: int) -> list[Answer]:
    """Faults and healthy runs, each against a healthy base of its kind; the answers don't depend on `workers`."""
    parts = [(root / f"made{at}", faults, healthy, seed, at, workers) for at in range(workers)]
    with ProcessPoolExecutor(workers) as pool:
        return [answer for answers in pool.map(_part, parts) for answer in answers]


def _part(given: tuple[Path, int, int, int, int, int]) -> list[Answer]:
    """Every `workers`-th of them, in a workspace of its own."""
    root, faults, healthy, seed, first, workers = given
    root.mkdir(parents=True)
    workspace, bases, answers = WorkspaceFolder(root), dict[str, str](), list[Answer]()

    def base(kind: Kind) -> str:
        if kind.name not in bases:
            bases[kind.name] = f"base-{kind.name}"
            make_fault_run(workspace, bases[kind.name], kind, seed)
        return bases[kind.name]

    for at in range(first, faults, workers):
        fault, strength = FAULTS[at % len(FAULTS)], STRENGTHS[(at // len(FAULTS) + at) % len(STRENGTHS)]
        run = f"fault-{at:03d}"
        make_fault_run(workspace, run, fault.kind, seed, fault, strength, minute=60 + at)
        named = f"{fault.name} at {strength:g}"
        answers.append(Answer(named, False, (fault.cause, fault.suspect), _asked(workspace, run, base(fault.kind))))
    for at in range(first, healthy, workers):
        kind, run = KINDS[at % len(KINDS)], f"healthy-{at:03d}"
        make_fault_run(workspace, run, kind, seed, minute=5000 + at)
        answers.append(Answer(f"healthy {kind.name} {at}", False, None, _asked(workspace, run, base(kind))))
    return answers


def _asked(workspace: WorkspaceFolder, run: str, base: str) -> tuple[str, str] | None:
    found = why(workspace, run, base).diagnosed
    return (found[0].cause, found[0].suspect) if found else None


def real(root: Path) -> list[Answer]:
    """Five faults on this machine, each beside two good runs of the same program."""
    root.mkdir()
    _install(root / "site")
    answers = []
    flag = root / "slow"
    with _server() as (url, stall, half), _stopped_server() as (own_url, stopped):
        metrics = {"prometheus": [{"url": url + "metrics", "name": "server"}]}
        plans: list[tuple[str, dict[str, object], dict[str, object], tuple[str, str]]] = [
            ("bursts", {"limits": {"cpus": 2}}, {"limits": {"cpus": 0.06}}, ("cpu_throttling", "")),
            ("asks", {"workload": {"url": url}, "monitors": metrics}, {}, ("stall", "")),
            ("half", {"workload": {"url": url}}, {}, ("stall", "")),
            ("stopped", {"workload": {"url": own_url}}, {}, ("stall", "")),
            ("shards", {"workload": {"flag": str(flag)}}, {}, ("straggler:slow_member", "shard 2")),
        ]
        for name, good, bad, wanted in plans:
            base = _bench(root, name, good)
            again = _bench(root, name, good)
            planted = {"half": half, "stopped": stopped}.get(name, stall)
            planted.set()
            flag.touch()
            slow = _bench(root, name, good | bad)
            planted.clear()
            flag.unlink()
            workspace = WorkspaceFolder(root)
            answers.append(Answer(f"real {name}", True, wanted, _asked(workspace, slow, base)))
            answers.append(Answer(f"real {name}, healthy", True, None, _asked(workspace, again, base)))
    return answers


def _bench(root: Path, name: str, more: dict[str, object]) -> str:
    scenario = {
        "scenario": name, "experiment": f"planted.{_PROGRAMS.get(name, name)}",
        "target": {"name": "planted"}, "repetitions": 5,
        "monitors": {}, "workload": {},
    } | more  # fmt: skip
    monitors = {"interval": "0.2s"} | dict(scenario["monitors"])  # type: ignore[call-overload]
    path = root / f"{name}.yaml"
    path.write_text(json.dumps(scenario | {"monitors": monitors}))  # JSON is YAML
    environment = os.environ | {"PYTHONPATH": str(root / "site"), "BENCH_CACHE_DIR": str(root / "cache")}
    done = subprocess.run(
        [sys.executable, "-m", "benchhouse", "run", path.name, "--json"],
        cwd=root, env=environment, capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    if done.returncode:
        raise SystemExit(f"bench run {name} exited with {done.returncode}\n{done.stdout}{done.stderr}")
    runs = sorted(path.name for path in WorkspaceFolder(root).runs.iterdir())
    return runs[-1]


def _install(site: Path) -> None:
    """A package that looks installed: a module and its dist-info."""
    info = site / "planted-1.0.dist-info"
    info.mkdir(parents=True)
    (site / "planted.py").write_text(EXPERIMENT)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: planted\nVersion: 1.0\n")
    lines = [f"planted.{name} = planted:{name}" for name in _NAMES]
    (info / "entry_points.txt").write_text("[benchhouse.experiments]\n" + "\n".join(lines) + "\n")


@contextmanager
def _server() -> Iterator[tuple[str, threading.Event, threading.Event]]:
    """A server on loopback that tells how many requests wait, as vLLM does: with the first event it stalls at times,
    with the second it holds the clients 0 and 1 for a quarter of a second now and then."""
    stall, half, busy, waiting = threading.Event(), threading.Event(), threading.Lock(), [0]

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path == "/metrics":
                text = f"# TYPE vllm:num_requests_waiting gauge\nvllm:num_requests_waiting {waiting[0]}\n"
            else:
                into_s = time.monotonic() % 1.5
                if half.is_set() and self.path in ("/0", "/1") and into_s < 0.25:
                    time.sleep(0.25 - into_s)
                waiting[0] += 1
                with busy:
                    waiting[0] -= 1
                    time.sleep(0.4 if stall.is_set() and time.monotonic() % 2.0 < 0.02 else 0.001)
                text = "good"
            self.send_response(200)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/", stall, half
    finally:
        server.shutdown()
        server.server_close()


@contextmanager
def _stopped_server() -> Iterator[tuple[str, threading.Event]]:
    """A server in a process of its own, which is stopped for 0.15 s every 0.85 s while the event is set."""
    stopped, ended = threading.Event(), threading.Event()
    server = subprocess.Popen([sys.executable, "-c", SERVER], stdout=subprocess.PIPE, text=True)

    def stop() -> None:
        while not ended.wait(0.7):
            if stopped.is_set():
                server.send_signal(signal.SIGSTOP)
                time.sleep(0.15)
                server.send_signal(signal.SIGCONT)

    stopping = threading.Thread(target=stop, daemon=True)
    stopping.start()
    try:
        assert server.stdout is not None
        yield f"http://127.0.0.1:{int(server.stdout.readline())}/", stopped
    finally:
        ended.set()
        stopping.join()
        server.kill()
        server.wait()


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--faults", type=int, default=44)
    parser.add_argument("--healthy", type=int, default=40)
    parser.add_argument("--seed", type=int, default=20_261_116)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--no-real", action="store_true", help="Leave out those on this machine.")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
