"""A client that may only read can't make the server start a program, build a package, or read files elsewhere."""

import http.client
import json
import os
import re
import sys
import time
from pathlib import Path

import pytest
from agents import over_http, over_stdio
from asking import address, ask, token

from benchhouse.serve import app
from benchhouse.serve.verbs import VERBS

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from hostile_reader import Grammar, Planted, read_requests, traced
from strace_calls import why_not

MILLION = {"range": {"from": 1, "to": 1_000_000, "step": 1}}
ABSENT = {"scenario": "s", "experiment": "absent.experiment"}


@pytest.fixture
def planted(lab):
    """Return scenarios that would run `planted`, which leaves a mark, if planning made or entered their environment."""
    program = lab.root / "planted"
    program.write_text(f"#!/bin/sh\ntouch {lab.marks}/started\n")
    program.chmod(0o755)
    package = lab.root / "package"
    package.mkdir()
    (package / "setup.py").write_text(f"open({str(lab.marks / 'started')!r}, 'w')\n")
    environments = [
        {"python": str(program), "requirements": ["absent-package"]},
        {"requirements": [f"absent-package @ {package.as_uri()}"]},
        {"requirements": [str(package)]},
        {"requirements": ["absent-package"], "environments": [[str(package)], ["x" * 5000]]},
    ]
    return [ABSENT | {"runtime": {"kind": "venv", **environment}} for environment in environments]


def test_planning_for_a_reader_neither_makes_nor_enters_an_environment(lab, serve, planted):
    base = serve()
    for scenario in planted:
        for verb in ("plan", "validate"):
            body = json.dumps({"scenario": scenario})
            status, _, text = ask(base, f"/api/{verb}", "POST", body, Content_Type="application/json")
            assert status == 403, (verb, scenario, text)
            assert "role run" in json.loads(text)["title"]

    async def call(client):
        return [await client.call_tool(tool, {"scenario": item}) for item in planted for tool in ("plan", "validate")]

    answers = [*over_http(base, call), *over_stdio(lab, call)[0]]
    assert [answer.is_error for answer in answers] == [True] * 16
    assert list(lab.marks.iterdir()) == []
    assert not (lab.root / "cache" / "venvs").exists()


def cpu_seconds(process):
    """Return the CPU time that a process and its threads have used."""
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_a_server_stops_planning_when_it_has_answered_503_or_the_client_has_gone(lab, serve):
    (lab.workspace / "workspace.yaml").write_text("planning: {reader_max_points: 900000}\n")
    base = serve("--max-time", "3")
    grid = {"range": {"from": 1, "to": 900, "step": 1}}
    large = {"scenario": "s", "experiment": "command", "target": {"name": "t", "argv": ["true"]}}
    large["workload"] = {"executions": grid, "timeout": grid}
    body = json.dumps({"scenario": large})
    status, _, text = ask(base, "/api/plan", "POST", body, Content_Type="application/json")
    assert status == 503, text
    time.sleep(0.5)
    used_s = cpu_seconds(serve.process)
    assert used_s > 0.1, "planning was under way"
    time.sleep(1)
    assert cpu_seconds(serve.process) - used_s <= 0.05, "after the answer"

    connection = http.client.HTTPConnection(*base.removeprefix("http://").split(":"))
    connection.request("POST", "/api/plan", body, {"Content-Type": "application/json"})
    time.sleep(0.7)
    assert cpu_seconds(serve.process) - used_s > 0.05, "planning is under way again"
    connection.close()
    time.sleep(0.5)
    used_s = cpu_seconds(serve.process)
    time.sleep(1)
    assert cpu_seconds(serve.process) - used_s <= 0.05, "after the client has gone"

    body = json.dumps({"scenario": large | {"workload": {"executions": grid, "timeout": MILLION}}})
    status, _, text = ask(base, "/api/plan", "POST", body, Content_Type="application/json")
    assert status == 400, text
    assert "900,000 that may be planned" in text


HOOK = """
import os, sys

def note(event, arguments):
    if event in ("subprocess.Popen", "os.exec", "os.fork", "os.posix_spawn", "os.system", "socket.connect"):
        with open(os.environ["ACTIONS"], "a") as actions:
            print(event, *arguments, file=actions)

if "ACTIONS" in os.environ and "serve" in sys.orig_argv:
    sys.addaudithook(note)
"""


@pytest.mark.slow("a new server answers everything that a reader may read")
def test_no_verb_or_page_of_a_reader_starts_a_program_or_opens_a_connection(lab):
    program = lab.root / "planted"
    program.write_text(f"#!/bin/sh\ntouch {lab.marks}/started\n")
    program.chmod(0o755)
    (lab.workspace / "recipes").mkdir()
    recipe = {"name": "mine", "program": [str(program)], "command": ["{program}"], "ready": {"kind": "port"},
              "version_command": ["{program}", "--version"], "endpoint": "{host}:{port}"}  # fmt: skip
    (lab.workspace / "recipes" / "mine.yaml").write_text(json.dumps(recipe))
    lab.bench("run", lab.scenario("once", "demo"))
    (lab.root / "site" / "sitecustomize.py").write_text(HOOK)
    actions = lab.root / "actions"
    lab.variables["ACTIONS"] = str(actions)
    process = lab.start("serve", "--port", "0", "--rate", "10000")
    values = {"run": "@last", "recipe": "mine", "format": "scenario", "experiment": "command"}
    verbs = [f"/api{verb.path}" for verb in VERBS.values() if verb.scope == "read" and verb.method == "GET"]
    paths = [re.sub(r"\{(\w+)(:path)?\}", lambda found: values.get(found[1], "x"), path) for path in verbs]
    paths += [re.sub(r"\{(\w+)(:path)?\}", lambda found: values.get(found[1], "x"), path) for path, _ in app.PAGES]
    paths.remove("/api/query")  # runs in a process of its own: tests/serve/test_hostile_queries.py
    try:
        base = address(process)
        acted, answered = [], 0
        for path in paths:
            before = actions.read_text() if actions.exists() else ""
            answered += ask(base, path)[0] == 200
            if did := (actions.read_text() if actions.exists() else "")[len(before) :]:
                acted.append(f"{path}: {did}")
        assert ask(base, "/api/servers/x/check")[0] == 403, "its probe may be a program"
    finally:
        process.terminate()
        process.communicate()
    assert answered > len(paths) / 2
    assert acted == []
    assert list(lab.marks.glob("started")) == []


@pytest.mark.slow("the server runs under strace, and answers every read verb, page, and tool")
@pytest.mark.skipif(bool(why_not()), reason=str(why_not()))
def test_no_read_verb_page_or_tool_starts_a_program_connects_or_writes(lab, monkeypatch):
    """All kinds of requests come from the server's own tables, so that a new verb is among them."""
    kinds = {kind.name for kind in read_requests()}
    assert {"POST /api/plan", "POST /api/validate", "tool plan", "tool query"} <= kinds
    monkeypatch.setenv("BENCH_CACHE_DIR", str(lab.root / "cache"))
    (lab.workspace / "quick.yaml").write_text("scenario: hostile\nexperiment: once\n")
    lab.bench("run", lab.workspace / "quick.yaml")
    planted = Planted(str(lab.root / "planted.sh"), str(lab.root / "package"), "http://127.0.0.1:9")
    Path(planted.program).write_text("#!/bin/sh\ntrue\n")
    Path(planted.program).chmod(0o755)
    Path(planted.package).mkdir()
    Path(planted.package, "setup.py").write_text("import setuptools\nsetuptools.setup(name='absent')\n")
    effects = traced(lab.workspace, token(lab, "hostile", "--scope", "read"), 1, Grammar(1, planted))
    assert {name: dict(counts) for name, counts in effects.items()} == {"programs": {}, "connections": {}, "writes": {}}
