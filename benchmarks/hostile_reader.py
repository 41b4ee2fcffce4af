"""What a hostile client with the role read can do to `bench serve`: start programs, connect, write, delay, fill memory.

    python benchmarks/hostile_reader.py [--inputs 20] [--seed 1] [--json]

Every verb that only reads, every page, and every tool of an agent gets `--inputs` inputs from a fixed grammar: SQL,
scenarios that name programs, packages, and addresses, and values that no person writes. This happens twice. First one
request at a time under strace, which sees each program, connection, and write of the server and of the processes that
it starts, also those of C libraries. Then by eight clients at once without strace, while another user opens pages.

Bars: 0 programs but the server's own processes for queries, 0 connections, 0 writes outside of the state of the
workspace, 0 answers later than their time limit plus 1 s, at most 400 MB of memory, and a p95 of the other user's
pages of at most twice the p95 without the hostile clients. Exits 1 when a bar is missed.
"""

import argparse
import http.client
import json
import os
import random
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import psutil  # type: ignore[import-untyped]
from strace_calls import why_not

from benchhouse.serve.app import PAGES
from benchhouse.serve.tools import TOOLS
from benchhouse.serve.verbs import VERBS

MOST_MB, MOST_SLOWER, LATE_S = 400, 2.0, 1.0
LIMITS = {"seconds": 1.0, "wait": 2.0}
MAX_TIME_S = 10.0
CLIENTS = 8
SCENARIO = "scenario: hostile\nexperiment: command\ntarget: {name: t, shell: 'true'}\nrepetitions: 2\n"
ODD = (
    "", "@last", "@last-9", "hostile", "../../etc/passwd", "/etc/passwd", "\0", "a" * 500, "<script>", "x'; y",
    "\u202e",
    "\ud7ff", "-1", "0", "1e999", "nan", "true", "[]", "{}", "hostile:x=1", "@last:elapsed", "ssh://127.0.0.1/x",
    "file:///etc/passwd", "2h", "x" * 90, "*", "%00", "${HOME}", "$(id)", "`id`", "|id", "-oProxyCommand=id",
)  # fmt: skip
QUERIES = ("since", "state", "after", "ref", "a", "b", "metric", "at", "along", "mde", "q", "audience", "from", "to",
           "verify", "experiment", "stat", "first", "case", "run", "repetitions")  # fmt: skip
_EFFECTS = ("execve", "execveat", "connect", "openat", "open", "creat", "mkdir", "mkdirat", "rename", "renameat",
            "renameat2", "unlink", "unlinkat", "rmdir", "link", "linkat", "symlink", "symlinkat", "truncate",
            "chmod", "fchmodat", "chown", "fchownat")  # fmt: skip
_CALL = re.compile(r"\d+ +(?P<time>\d+\.\d+) (?P<name>\w+)\((?P<arguments>.*)\) += (?P<result>-?\d+)")
_PATH = re.compile(r'(?:(?:AT_FDCWD|\d+)(?:<(?P<folder>[^>]*)>)?, )?"(?P<path>[^"]*)"')


@dataclass(frozen=True)
class Planted:
    """What hostile scenarios name: a program, a package, and an address that the caller watches."""

    program: str
    package: str
    url: str


@dataclass(frozen=True)
class ReadRequest:
    """One kind of request that needs the role read alone: a verb over HTTP, a page, or a tool of an agent."""

    name: str
    method: str
    path: str
    fields: tuple[str, ...]
    tool: str = ""


def read_requests() -> list[ReadRequest]:
    """Return all kinds, by the server's own tables of verbs, pages, and tools."""
    kinds = [
        ReadRequest(f"{verb.method} /api{verb.path}", verb.method, f"/api{verb.path}", tuple(verb.asks.model_fields))
        for verb in VERBS.values()
        if not verb.writes
    ]
    kinds += [ReadRequest(f"page {path}", "GET", path, QUERIES) for path, _ in PAGES]
    return kinds + [
        ReadRequest(f"tool {name}", "POST", "/mcp", tuple(tool.verb.asks.model_fields), name)
        for name, tool in TOOLS.items()
        if not tool.verb.writes
    ]


class Grammar:
    """Hostile inputs; the same seed gives the same ones."""

    def __init__(self, seed: int, planted: Planted) -> None:
        self._chance, self._planted = random.Random(seed), planted

    def values(self, kind: ReadRequest) -> dict[str, Any]:
        """Return values of some fields of a kind; a path has a value for each name in it."""
        named = set(re.findall(r"{(\w+)", kind.path))
        texts = {"sql", "scenario", "contract", "recipe"}
        chosen = [name for name in kind.fields if name in named | texts or self._chance.random() < 0.3]
        return {name: self._value(name) for name in (*chosen, *sorted(named - set(chosen)))}

    def http(self, kind: ReadRequest) -> tuple[str, str, str | None]:
        """Return method, target, and body of a request."""
        values = self.values(kind)
        if kind.tool:
            call = {"name": kind.tool, "arguments": values}
            return "POST", "/mcp", json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call})
        named = {name: str(values.pop(name)) for name in re.findall(r"{(\w+)", kind.path)}
        target = re.sub(r"{(\w+)(?::path)?}", lambda found: quote(named[found[1]] or "x", safe=""), kind.path)
        if kind.method == "POST":
            return "POST", target, json.dumps(values)
        return "GET", f"{target}?{urlencode(values, errors='replace')}", None

    def sql(self) -> str:
        """Return a query that is long to plan, long to run, large, or about the machine."""
        chance, size = self._chance, self._chance.choice((1, 10, 100, 1000))
        return chance.choice(
            (
                f"SELECT {'[' * (size - 1)}1{']' * (size - 1)}",
                f"SELECT {'(' * size * 10}1{')' * size * 10}",
                f"SELECT '{'a' * size * 90}', random()",
                f"SELECT avg(1) -- {'/*' * size * 40}",
                "WITH " + ", ".join(["t0 AS (SELECT 1 AS x)", *(
                    f"t{n} AS (SELECT a.x + b.x AS x FROM t{n - 1} a, t{n - 1} b)" for n in range(1, 2 + size % 37)
                )]) + f" SELECT x FROM t{1 + size % 37 - (size % 37 > 0)}",
                f"SELECT length(repeat('x', {size}000000))",
                f"SELECT repeat('x', {size}000) FROM range({size}00)",
                f"SELECT list(x) FROM range({size}00000) t(x)",
                f"SELECT sum(x * y) FROM range({size}0000) a(x), range({size}0000) b(y)",
                f"SELECT max(h) FROM (SELECT hash(x) AS h FROM range({size}00000) t(x) ORDER BY h)",
                f"WITH RECURSIVE t AS (SELECT 1 AS x UNION ALL SELECT x + 1 FROM t WHERE x < {size}0000) FROM t",
                f"SELECT * FROM points, trial_fact, range({size}00000)",
                f"FROM read_text('{chance.choice(ODD)}')".replace("\0", ""),
                f"COPY trial_fact TO '{self._planted.program}.csv'",
                f"ATTACH '{self._planted.program}.db'",
                f"FROM '{self._planted.url}/x.parquet'",
                "FROM enable_profiling(save_location = '/tmp/hostile-profile')",
                "INSTALL httpfs",
                "FROM duckdb_settings()",
                "FROM query('FROM duckdb_' || 'settings()')",
            )
        )  # fmt: skip

    def scenario(self) -> dict[str, Any]:
        """Return a scenario that names something of the machine or the network, or that is large."""
        chance, planted, size = self._chance, self._planted, self._chance.choice((1, 30, 1000, 20_000))
        axis = list(range(size))
        return {"scenario": "s", "experiment": chance.choice(["command", "absent.experiment", "vector.search"])} | (
            chance.choice(
                [
                    {"runtime": {"kind": "venv", "python": planted.program, "requirements": ["absent-package"]}},
                    {"runtime": {"kind": "venv", "requirements": [f"absent @ {planted.url}/absent-1.tar.gz"]}},
                    {"runtime": {"kind": "venv", "requirements": [f"absent @ file://{planted.package}"]}},
                    {"runtime": {"kind": "venv", "requirements": [f"--index-url={planted.url}", "absent"]}},
                    {"runtime": {"kind": "container", "image": f"{urlsplit(planted.url).netloc}/x:latest"}},
                    {"runtime": chance.choice(ODD), "executor": chance.choice(["slurm", "kubernetes", "ray", "local"])},
                    {"workload": {"data": f"{planted.url}/data.tar.gz"}},
                    {"workload": {"data": "/etc/passwd"}},
                    {"target": {"name": "t", "shell": planted.program}},
                    {"target": {"name": "t", "argv": [planted.program]}, "workload": {"a": axis, "b": axis, "c": axis}},
                    {"target": {"url": planted.url, "api": "completions", "model": "m"}},
                    {"services": {"db": {"recipe": planted.program}}},
                    {"contract": chance.choice(ODD)},
                    {f"unknown{number}": number for number in axis},
                    {"repetitions": 10**12},
                    {"workload": json.loads("[" * min(size, 900) + "]" * min(size, 900))},
                ]
            )
        )

    def _value(self, name: str) -> Any:
        chance = self._chance
        if name == "sql":
            return self.sql()
        if name == "scenario":
            return chance.choice([self.scenario(), json.dumps(self.scenario()), SCENARIO])
        if name in ("contract", "recipe"):
            return chance.choice([json.dumps(self.scenario()), SCENARIO, f"name: x\nimage: {self._planted.url}\n"])
        if name == "run" and chance.random() < 0.6:
            return "@last"
        if name in ("rows", "limit", "lines", "points"):
            return chance.choice([1, 1000, 100_000, -1, 10**18, "x"])
        if name == "seconds":
            return chance.choice([0.1, 1, 60, 1e9])
        return chance.choice([*ODD, self._planted.program, self._planted.url, 10**30, 1])


class Client:
    """One connection to the server, with the token of somebody."""

    def __init__(self, address: str, token: str) -> None:
        at = urlsplit(address)
        self._connection = http.client.HTTPConnection(at.hostname or "", at.port, timeout=120)
        self._headers = {"Authorization": f"Bearer {token}"}

    def send(self, method: str, target: str, body: str | None = None) -> tuple[int, float]:
        """Return the status, 0 for a connection that was closed, and how long the answer took."""
        accept = "text/html" if not target.startswith(("/api/", "/mcp")) else "application/json, text/event-stream, */*"
        headers = self._headers | {"Accept": accept} | ({"Content-Type": "application/json"} if body else {})
        began = time.perf_counter()
        try:
            self._connection.request(method, target, body.encode("utf-8", "replace") if body else None, headers)
            answer = self._connection.getresponse()
            answer.read()
            return answer.status, time.perf_counter() - began
        except (http.client.HTTPException, OSError):
            self._connection.close()
            return 0, time.perf_counter() - began


@contextmanager
def serving(root: Path, trace: Path | None) -> Iterator[tuple[str, psutil.Process]]:
    """`bench serve` with a login and short limits; its address and its process. With `trace`, under strace."""
    strace = ["strace", "-f", "-qq", "-y", "-ttt", "-s", "200", "--seccomp-bpf", "-o", str(trace),
              "-e", f"trace={','.join(f'?{name}' for name in _EFFECTS)}", "--"] if trace else []  # fmt: skip
    limits = [word for name, value in LIMITS.items() for word in ("--query-limit", f"{name}={value:g}s")]
    bench = [sys.executable, "-m", "benchhouse", "-C", str(root), "serve", "--port", "0", "--login"]
    environment = os.environ | {"PYTHONDONTWRITEBYTECODE": "1"}
    started = subprocess.Popen(
        [*strace, *bench, "--rate", "100000", "--max-time", f"{MAX_TIME_S:g}s", *limits],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment,
    )  # fmt: skip
    server = psutil.Process(started.pid)
    try:
        found = re.search(r"http://\S+?:\d+", started.stdout.readline() if started.stdout else "")
        assert found, "the server does not start"
        if trace:
            (server,) = server.children()
        yield found[0], server
    finally:
        server.send_signal(signal.SIGTERM)
        started.wait(60)


def look_at_effects(trace: Path, root: Path, sent: list[tuple[float, str]]) -> dict[str, Counter[str]]:
    """Count programs, connections, and writes outside of the state, each by the request during which it happened."""
    found: dict[str, Counter[str]] = {"programs": Counter(), "connections": Counter(), "writes": Counter()}
    for line in trace.read_text(errors="replace").splitlines():
        call = _CALL.match(line)
        if not call or float(call["time"]) < sent[0][0]:
            continue
        by = next(name for began, name in reversed(sent) if began <= float(call["time"]))
        name, arguments = call["name"], call["arguments"]
        if name.startswith("execve"):
            if "benchhouse.warehouse.query_process" not in arguments:
                found["programs"][f"{by}: {arguments.partition(',')[0]}"] += 1
        elif name == "connect":
            if "AF_INET" in arguments or ("AF_UNIX" in arguments and "nscd" not in arguments):
                found["connections"][f"{by}: {arguments[:150]}"] += 1
        elif int(call["result"]) >= 0 and (
            not name.startswith("open") or re.search("O_WRONLY|O_RDWR|O_CREAT", arguments)
        ):
            for at in _PATH.finditer(arguments):
                path = os.path.normpath(Path(at["folder"] or "/", at["path"]))
                if not path.startswith((f"{root}/.bench/", "/dev/null", "/dev/tty", "/dev/pts/", "/proc/self/")):
                    found["writes"][f"{by}: {name} {path}"] += 1
    return found


def limit_s(kind: ReadRequest) -> float:
    """The time limit of a kind of request."""
    queries = "/query" in kind.path or kind.tool == "query"
    return LIMITS["seconds"] + LIMITS["wait"] if queries else MAX_TIME_S


def traced(root: Path, token: str, inputs: int, grammar: Grammar) -> dict[str, Counter[str]]:
    """Send all inputs one after the other, and return what the server did."""
    trace, sent = root.parent / "trace.log", list[tuple[float, str]]()
    with serving(root, trace) as (address, _):
        client = Client(address, token)
        client.send("GET", "/")
        for kind in read_requests():
            for _ in range(inputs):
                request = grammar.http(kind)
                sent.append((time.time(), kind.name))
                client.send(*request)
    return look_at_effects(trace, Path(os.path.realpath(root)), sent)


def loaded(root: Path, tokens: Mapping[str, str], inputs: int, grammar: Grammar) -> dict[str, Any]:
    """Send all inputs by several clients while another user opens pages; what each waited for, and the memory."""
    requests = [(kind, grammar.http(kind)) for kind in read_requests() for _ in range(inputs)]
    random.Random(inputs).shuffle(requests)
    pages = ["/", "/runs", "/runs/@last", "/history", "/catalogue", "/runs/@last/evidence"]
    statuses, late, over = Counter[int](), list[str](), threading.Event()
    memory, local = {"server_mb": 0.0, "queries_mb": 0.0}, threading.local()
    with serving(root, None) as (address, server):

        def attack(kind: ReadRequest, request: tuple[str, str, str | None]) -> None:
            if not hasattr(local, "client"):
                local.client = Client(address, tokens["hostile"])
            status, took = local.client.send(*request)
            statuses[status] += 1
            if took > limit_s(kind) + LATE_S:
                late.append(f"{kind.name}: {took:.1f} s ({status}) {request[1][:100]} {(request[2] or '')[:200]}")

        def watch_memory() -> None:
            while not over.wait(0.05):
                memory["server_mb"] = max(memory["server_mb"], server.memory_info().rss / 1e6)
                try:
                    sizes = [child.memory_info().rss / 1e6 for child in server.children()]
                except psutil.Error:  # one that has just ended
                    continue
                memory["queries_mb"] = max([memory["queries_mb"], *sizes])

        other = Client(address, tokens["other"])
        for page in pages * 3:
            assert other.send("GET", page)[0] == 200, page
        alone = [other.send("GET", page)[1] for _ in range(30) for page in pages]
        watcher = threading.Thread(target=watch_memory)
        watcher.start()
        with ThreadPoolExecutor(CLIENTS) as crew:
            attacks = [crew.submit(attack, *item) for item in requests]
            during, failed, at = list[float](), 0, 0
            while not all(item.done() for item in attacks):
                status, took = other.send("GET", pages[at % len(pages)])
                during.append(took)
                failed, at = failed + (status != 200), at + 1
                time.sleep(0.02)
            for item in attacks:
                item.result()
        over.set()
        watcher.join()
    return memory | {
        "statuses": dict(statuses),
        "late": late,
        "other_user_pages": len(during),
        "other_user_errors": failed,
        "p95_alone_ms": 1000 * statistics.quantiles(alone, n=20)[-1],
        "p95_attacked_ms": 1000 * statistics.quantiles(during, n=20)[-1],
    }


def measure(folder: Path, inputs: int, seed: int) -> dict[str, Any]:
    root = folder / "workspace"
    root.mkdir()
    program, package = folder / "planted.sh", folder / "package"
    program.write_text("#!/bin/sh\ntrue\n")
    program.chmod(0o755)
    package.mkdir()
    (package / "setup.py").write_text("import setuptools\nsetuptools.setup(name='absent')\n")
    planted = Planted(str(program), str(package), "http://127.0.0.1:9")
    (root / "hostile.yaml").write_text(SCENARIO)
    bench = [sys.executable, "-m", "benchhouse", "-C", str(root)]
    subprocess.run([*bench, "run", str(root / "hostile.yaml")], check=True, capture_output=True)
    tokens = {
        name: subprocess.run(
            [*bench, "token", "make", name, "--scope", "read"], check=True, capture_output=True, text=True
        ).stdout.strip()
        for name in ("hostile", "other")
    }
    reason = why_not()
    effects = None if reason else traced(root, tokens["hostile"], inputs, Grammar(seed, planted))
    found = loaded(root, tokens, inputs, Grammar(seed + 1, planted))
    missed = [f"not traced: {reason}"] if effects is None else [name for name, counted in effects.items() if counted]
    missed += ["late answers"] if found["late"] else []
    missed += ["other user's pages failed"] if found["other_user_errors"] else []
    missed += ["memory"] if found["server_mb"] > MOST_MB else []
    missed += ["p95 of the other user"] if found["p95_attacked_ms"] > MOST_SLOWER * found["p95_alone_ms"] else []
    counted = {name: dict(counts) for name, counts in (effects or {}).items()}
    return {"kinds": len(read_requests()), "inputs": inputs} | counted | found | {"missed": missed}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inputs", type=int, default=20, help="For each verb, page, and tool.")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="hostile-reader-") as folder:
        found = measure(Path(folder), options.inputs, options.seed)
    if options.json:
        print(json.dumps(found, indent=2))
    else:
        for name in ("programs", "connections", "writes"):
            print(f"{name:12} {sum(found.get(name, {}).values())} (0 wanted)")
            for what, count in sorted(found.get(name, {}).items()):
                print(f"    {count} x {what}")
        print(f"late answers {len(found['late'])} (0 wanted), by status {found['statuses']}")
        for text in found["late"]:
            print(f"    {text}")
        print(f"memory       {found['server_mb']:.0f} MB (at most {MOST_MB}), a query {found['queries_mb']:.0f} MB")
        print(f"p95 of pages {found['p95_attacked_ms']:.0f} ms, alone {found['p95_alone_ms']:.0f} ms")
        print(f"missed: {', '.join(found['missed'])}" if found["missed"] else "all bars met")
    return 1 if found["missed"] else 0


if __name__ == "__main__":
    sys.exit(main())
