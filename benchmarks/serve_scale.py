"""How quick `bench serve` is on a large store, asked for everything that it can be asked.

    python benchmarks/serve_scale.py [--store DIR] [--runs 1000] [--seconds 180] [--rate 20] [--json]

The store (`scale_store.py`) has 1,000 runs, 100,000 trials and 10 million measurements; it is made once in `--store`.
Every page and every reading verb is asked, by the server's own tables of them: one that is new is asked too, and one
whose parameter has no sample here fails. First each alone (wall and CPU time of the server), then all in a random
order, open loop, so many a second. Runs, cases, trials and traced numbers are other ones each time; the SQL, the plan
and the leaderboard are the same ones, as a dashboard's are, and the server may know their answers. Every path is asked
as often as every other, far more often the dear ones than people would; no caller sends an ETag.

Bars: p95 in the mix of every page 300 ms, of every verb 150 ms; memory 400 MB; start 1 s; front page 150 kB as sent.
EXEMPT names what by nature computes much, with the reason; it is asked alone, and told. Exits 1 when a bar is missed.
"""

import argparse
import http.client
import itertools
import json
import random
import re
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import psutil  # type: ignore[import-untyped]
from scale_store import Size, made

from benchhouse.api.workspace import Workspace
from benchhouse.serve import app
from benchhouse.serve.verbs import VERBS

BARS = {"page": 0.300, "verb": 0.150}
MOST_MB, MOST_START_S, MOST_FRONT_KB = 400, 1.0, 150
EXEMPT = {
    "/api/verify": "hashes all evidence and tables of the workspace",
    "/api/runs/{run}/verify": "hashes every file of a run",
    "/api/claims/{claim}/verify": "hashes evidence, computes the number again",
    "/compare": "1,000 comparisons, each a bootstrap; of one metric: /api/compare",
    "/api/runs/{run}/why": "compares 1,000 numbers, each by a bootstrap",
    "/views": "compares 1,000 numbers, each by a bootstrap",
    "/api/gate": "compares all primary numbers, each by a bootstrap",
    "/api/runs/{run}/report": "a whole document, written for offline use",
}
MORE = {  # questions beside the bare one
    "/": ("since=168h",),
    "/runs": ("scenario=sweep-3",),
    "/api/runs": ("limit=500",),
}
SAMPLES = Path.home() / ".cache" / "benchhouse-tests" / "scale-store"


@dataclass
class Kind:
    """One path with all that was measured of it; seconds."""

    name: str
    is_page: bool
    method: str = "GET"
    queries: tuple[str, ...] = ("",)
    fields: tuple[str, ...] = ()
    alone_s: list[float] = field(default_factory=list)
    alone_cpu_s: list[float] = field(default_factory=list)
    mix_s: list[float] = field(default_factory=list)
    statuses: dict[int, int] = field(default_factory=lambda: defaultdict(int))

    @property
    def bar_s(self) -> float:
        return BARS["page" if self.is_page else "verb"]


class Values:
    """Samples for parameters, by name: what is in the store."""

    def __init__(self, workspace: Workspace, chance: random.Random) -> None:
        runs = workspace.runs(made_here=True)
        self.chance, self.cases = chance, [case.case for case in workspace.cases()]
        self.runs = [run.id for run in runs]
        sealed = [(run.id, trial.name, trial) for run in runs[-3:] for trial in run.trials()[:20]]
        refs = [f"{run}:name={name},ef=64:phase{at:02d}_latency.{stat}"
                for run in self.runs[-20:] for name, at, stat in (("hnsw", 0, "p99"), ("flat", 1, "mean"))]  # fmt: skip
        servers = [server.id for server in workspace.servers.running()]
        self.known: dict[str, list[str]] = {
            "claim": [claim.id for claim in workspace.claims.list()], "file": ["metrics.json", "meta.json"],
            "case": self.cases, "benchmark": ["search"], "format": ["scenario", "trial", "metrics"],
            "contract": [item.contract for item in workspace.contracts.list()], "recipe": ["postgres", "chroma"],
            "experiment": ["vector.search", "command"], "name": ["vector.search", "command"],
            "package": [], "request": [], "evaluation": [], "schedule": [], "server": servers,
            "site": [item.site for item in workspace.sites.profiles() if item.site[0] != "("],
            "older": self.runs[-3:-2], "newer": self.runs[-2:-1], "from": self.runs[-3:-2], "to": self.runs[-2:-1],
            "scenario": ["scenario: s\nexperiment: command\ntarget: {name: t, shell: 'true'}\nrepetitions: 2\n"],
            "ref": refs,
            "audience": ["product", "engineering"],
            "sql": ["SELECT scenario, count(*) FROM trial_fact GROUP BY 1"],
        }  # fmt: skip
        self.sealed = sealed
        names = {run.id: run.record.scenario for run in runs[-100:]}
        alike = [(a, b) for a in names for b in names if a < b and names[a] == names[b]]
        self.pairs = [self.chance.choice(alike) for _ in range(50)]

    def fill(self, kind: Kind) -> tuple[str, bytes | None] | None:
        """An address below the server, and a body; None where the store has nothing to ask for."""
        run, trial, _ = self.chance.choice(self.sealed)
        if "{trial}" not in kind.name:
            run = self.chance.choice(self.runs)
        base, new = self.chance.choice(self.pairs)
        given = {"run": run, "trial": trial, "a": base, "b": new, "base": base, "new": new, "side": "", "metric": ""}
        for name in (*re.findall(r"{(\w+)", kind.name), *kind.fields):
            if name not in given and name not in self.known:
                raise SystemExit(f"{kind.name}: this benchmark has no sample for {name!r}")
            if name not in given and not self.known[name]:
                return None
            given.setdefault(name, self.chance.choice(self.known.get(name, [""])))
        path = re.sub(r"{(\w+)(:path)?}", lambda found: quote(given[found[1]], safe="/"), kind.name)
        asked: Any = {name: given[name] for name in kind.fields}
        if kind.name == "/api/compare":
            asked = [("side", base), ("side", new), ("metric", "phase00_latency.mean")]
        if kind.name == "/api/badge":
            asked["metric"] = "phase00_latency"
        if kind.method == "POST":
            return path, json.dumps(asked).encode()
        query = "&".join(filter(None, (urlencode(asked), self.chance.choice(kind.queries))))
        return (f"{path}?{query}" if query else path), None


_PAGE_FIELDS = {
    "/trace": ("ref",),
    "/compare": ("a", "b"),
    "/views": ("run", "audience"),
    "/views/release": ("from", "to"),
}
_VERB_FIELDS = {"/history": ("case",), "/compare": ("side", "metric"), "/gate": ("base", "new")}


def kinds() -> list[Kind]:
    """All that can be asked without writing."""
    pages = [
        Kind(path, True, queries=("", *MORE.get(path, ())), fields=_PAGE_FIELDS.get(path, ())) for path, _ in app.PAGES
    ]
    verbs = []
    for verb in VERBS.values():
        if verb.writes:
            continue
        in_path = re.findall(r"{(\w+)", verb.path)
        required = [name for name, item in verb.asks.model_fields.items() if item.is_required() and name not in in_path]
        path = f"/api{verb.path}"
        fields = (*required, *_VERB_FIELDS.get(verb.path, ()))
        verbs.append(Kind(path, False, verb.method, ("", *MORE.get(path, ())), fields))
    return [*pages, *verbs]


class Client:
    """Asks the server; each thread keeps a connection."""

    def __init__(self, address: str) -> None:
        self._at, self._kept = urlsplit(address), threading.local()

    def ask(self, method: str, path: str, body: bytes | None = None) -> tuple[int, bytes, float]:
        connection = getattr(self._kept, "connection", None)
        if connection is None:
            connection = self._kept.connection = http.client.HTTPConnection(self._at.hostname or "", self._at.port)
        headers = {"Accept-Encoding": "gzip", "Accept": "application/json" if path.startswith("/api/") else "text/html"}
        if body is not None:
            headers["Content-Type"] = "application/json"
        for again in (True, False):
            began = time.perf_counter()
            try:
                connection.request(method, path, body, headers)
                response = connection.getresponse()
                content = response.read()
                return response.status, content, time.perf_counter() - began
            except (ConnectionError, http.client.HTTPException):  # the server has closed an idle connection
                connection.close()
                if not again:
                    raise
        raise AssertionError


@contextmanager
def serving(root: Path) -> Iterator[tuple[str, psutil.Process, float]]:
    """`bench serve`: its address, its process, and the seconds until it answered."""
    command = [sys.executable, "-m", "benchhouse", "-C", str(root), "serve", "--port", "0", "--rate", "10000"]
    began = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert process.stdout
        found = re.search(r"http://\S+/", process.stdout.readline())
        assert found
        Client(found[0]).ask("GET", "/assets/serve.css")
        yield found[0], psutil.Process(process.pid), time.perf_counter() - began
    finally:
        process.terminate()
        process.wait()


def each_alone(
    client: Client, process: psutil.Process, values: Values, all_kinds: list[Kind], times: int
) -> list[Kind]:
    """Ask each so often, one after the other; the kinds that the store has something for."""
    there = []
    for kind in all_kinds:
        for _ in range(times):
            asked = values.fill(kind)
            if asked is None:
                break
            before = process.cpu_times()
            status, _, seconds = client.ask(kind.method, asked[0], asked[1])
            after = process.cpu_times()
            kind.statuses[status] += 1
            kind.alone_s.append(seconds)
            kind.alone_cpu_s.append(after.user + after.system - before.user - before.system)
        if kind.alone_s:
            there.append(kind)
            held = process.memory_info().rss / 1e6
            print(f"{kind.name:44} {1e3 * max(kind.alone_s):7.0f} ms, {held:.0f} MB held", file=sys.stderr, flush=True)
    return there


def mix(
    client: Client, process: psutil.Process, values: Values, asked: list[Kind], rate: float, seconds: float
) -> tuple[float, float]:
    """All in turn in a random order, so many a second, whether or not the last is answered. The cores that it took,
    and the CPU seconds of one request, which a busy machine lengthens less than the time to its answer."""
    turns: Iterator[Kind] = itertools.chain.from_iterable(
        values.chance.sample(asked, len(asked)) for _ in itertools.count()
    )

    def one(kind: Kind, path: str, body: bytes | None) -> None:
        status, _, took = client.ask(kind.method, path, body)
        kind.statuses[status] += 1
        kind.mix_s.append(took)

    began, before = time.perf_counter(), process.cpu_times()
    with ThreadPoolExecutor(64) as pool:
        for at in range(int(rate * seconds)):
            kind = next(turns)
            filled = values.fill(kind)
            assert filled
            time.sleep(max(0.0, began + at / rate - time.perf_counter()))
            pool.submit(one, kind, filled[0], filled[1])
    after = process.cpu_times()
    cpu_s = float(after.user + after.system - before.user - before.system)
    return cpu_s / (time.perf_counter() - began), cpu_s / int(rate * seconds)


def front_kb(client: Client) -> float:
    """The front page and all that it loads, as sent."""
    import gzip

    _, page, _ = client.ask("GET", "/")
    text = gzip.decompress(page).decode() if page[:2] == b"\x1f\x8b" else page.decode()
    parts = re.findall(r'(?:src|href)="(/assets/[^"]+)"', text)
    return (len(page) + sum(len(client.ask("GET", part)[1]) for part in set(parts))) / 1e3


def peak_mb(process: psutil.Process) -> float:
    """The most memory that it has had resident."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    return int(re.findall(r"VmHWM:\s+(\d+)", status)[0]) / 1e3


def p95(values: list[float]) -> float:
    return sorted(values)[-(-95 * len(values) // 100) - 1]


def measure(options: argparse.Namespace) -> dict[str, Any]:
    root = made(options.store, Size(options.runs)).root
    with serving(root) as (address, process, start_s):
        client, values = Client(address), Values(Workspace(root), random.Random(options.seed))
        kb = front_kb(client)
        every = kinds()
        quick = [kind for kind in every if kind.name not in EXEMPT]
        quick = each_alone(client, process, values, quick, options.times)
        cores = cpu_s = 0.0
        if options.seconds:
            cores, cpu_s = mix(client, process, values, quick, options.rate, options.seconds)
        peak = peak_mb(process)
        slow = [kind for kind in every if kind.name in EXEMPT] if options.exempt else []
        there = quick + each_alone(client, process, values, slow, 1)
        peak_with_exempt = peak_mb(process)
    rows: list[dict[str, Any]] = [
        {
            "path": f"{kind.method} {kind.name}", "kind": "page" if kind.is_page else "verb",
            "asked": sum(kind.statuses.values()), "statuses": dict(kind.statuses),
            "alone_ms": 1e3 * sorted(kind.alone_s)[len(kind.alone_s) // 2],
            "cpu_ms": 1e3 * sum(kind.alone_cpu_s) / len(kind.alone_s),
            "p95_ms": 1e3 * p95(kind.mix_s) if kind.mix_s else None,
            "bar_ms": None if kind.name in EXEMPT else 1e3 * kind.bar_s, "exempt": EXEMPT.get(kind.name),
        }
        for kind in there
    ]  # fmt: skip
    missed = [row["path"] for row in rows if row["bar_ms"] and row["p95_ms"] and row["p95_ms"] > row["bar_ms"]]
    late = [row["path"] for row in rows if not row["exempt"] and any(status >= 500 for status in row["statuses"])]
    missed += [f"{path}: server errors" for path in late]
    whole = {"start_s": (start_s, MOST_START_S), "peak_mb": (peak, MOST_MB), "front_kb": (kb, MOST_FRONT_KB)}
    missed += [name for name, (value, most) in whole.items() if value > most]
    return {
        "runs": options.runs, "rate": options.rate, "seconds": options.seconds,
        "cores": cores, "mean_cpu_ms": 1e3 * cpu_s, "missed": missed,
        **{name: value for name, (value, _) in whole.items()}, "paths": rows,
        "peak_with_exempt_mb": peak_with_exempt,
        "nothing_there": [kind.name for kind in every if kind.name not in {item.name for item in there} | {*EXEMPT}],
    }  # fmt: skip


def tell(found: dict[str, Any]) -> None:
    print(f"{'path':50}{'asked':>6}{'alone ms':>10}{'CPU ms':>8}{'p95 ms':>8}{'bar':>6}")
    for row in sorted(found["paths"], key=lambda row: -(row["p95_ms"] or row["alone_ms"])):
        late = f"{row['p95_ms']:8.0f}" if row["p95_ms"] else f"{'':8}"
        end = f"  exempt: {row['exempt']}" if row["exempt"] else f"{row['bar_ms']:6.0f}"
        end += "  MISSED" if row["path"] in found["missed"] else ""
        end += f"  {row['statuses']}" if set(row["statuses"]) != {200} else ""
        print(f"{row['path']:50}{row['asked']:6}{row['alone_ms']:10.0f}{row['cpu_ms']:8.0f}{late}{end}")
    print(f"not asked, for the store has none: {', '.join(found['nothing_there']) or '-'}")
    print(f"start {found['start_s']:.2f} s (bar {MOST_START_S:g}), memory {found['peak_mb']:.0f} MB (bar {MOST_MB}; "
          f"{found['peak_with_exempt_mb']:.0f} with those that are exempt), "
          f"front page {found['front_kb']:.0f} kB (bar {MOST_FRONT_KB}), {found['cores']:.2f} cores at "
          f"{found['rate']:g} requests/s, {found['mean_cpu_ms']:.0f} ms of CPU a request")  # fmt: skip
    print(f"missed: {', '.join(found['missed'])}" if found["missed"] else "all bars met")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", type=Path, default=SAMPLES, help="Folder of the store; made where it is not there.")
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--times", type=int, default=3, help="How often each is asked alone.")
    parser.add_argument("--seconds", type=float, default=180.0, help="Of the mix; 0: each alone, and that is all.")
    parser.add_argument("--rate", type=float, default=20.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--exempt", action="store_true", help="Ask those that are exempt, too: once, at the end.")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    found = measure(options)
    if options.json:
        print(json.dumps(found, indent=2))
    else:
        tell(found)
    return 1 if found["missed"] else 0


if __name__ == "__main__":
    sys.exit(main())
