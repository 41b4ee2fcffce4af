"""Agents over HTTP and stdio, by the official client: tools, roles, refusals, resources, and a whole conversation."""

import hashlib
import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest
from agents import ask as answer_of
from agents import call, over_http, over_stdio
from asking import ask, bearer, token
from laboratory import Lab
from mcp import MCPError

from benchhouse.api.workspace import Workspace
from benchhouse.serve import tools
from benchhouse.serve.access import Caller
from benchhouse.serve.idempotent_writes import ServerWrites
from benchhouse.serve.state import ServerDatabase
from benchhouse.serve.tools import TOOLS

SMALL = "scenario: small\nexperiment: certified\nrepetitions: 2\n"
LARGE = "scenario: large\nexperiment: certified\nrepetitions: 200\n"


class Served:
    """A server on a workspace with two runs, and the headers of those who may ask it."""

    def __init__(self, lab, show):
        self.lab = lab
        scenario = lab.scenario("certified", "two", repetitions=3, axes=[{"grid": {"n": [0, 1]}}])
        lab.bench("run", scenario)
        lab.bench("run", scenario, "--new")
        self.roles = {role: bearer(token(lab, f"{role}er", "--scope", role)) for role in ("read", "run", "approve")}
        self.base = show(lab, "--login", "--budget", "trials=10", "--budget", "wall=1h").base

    def call(self, tool, role="read", **arguments):
        return call(self.base, tool, self.roles[role], **arguments)

    def refusal(self, tool, role="read", **arguments):
        result = self.call(tool, role, **arguments)
        assert result.is_error
        return result.content[0].text

    def json(self, path, role="read"):
        status, _, body = ask(self.base, path, **self.roles[role])
        assert status == 200, body
        return json.loads(body)


@pytest.fixture(scope="module")
def served(tmp_path_factory, show) -> Iterator[Served]:
    yield Served(Lab(tmp_path_factory.mktemp("agents")), show)


QUESTIONS = {
    "benchmark_contracts": {},
    "contract": {"contract": "publication-inference"},
    "experiments": {},
    "experiment": {"experiment": "certified"},
    "benchmarks": {},
    "list": {"limit": 1},
    "show": {"run": "@last"},
    "status": {"run": "@last"},
    "points": {"run": "@last"},
    "failures": {"run": "@last"},
    "warnings": {"run": "@last"},
    "logs": {"run": "@last", "lines": 3},
    "verify": {"run": "@last"},
    "compare": {"side": ["@last-1", "@last"]},
    "cases": {},
    "changes": {"since": "7d"},
    "history": {"case": "two/n=0", "metric": "rate"},
    "why": {"run": "@last"},
    "trace": {"ref": "two:n=0:rate"},
    "claims": {},
    "approvals": {},
    "leaderboards": {},
    "tables": {},
    "query": {"sql": "SELECT run_id, trials FROM benchmark_run_fact"},
    "validate": {"scenario": SMALL},
    "plan": {"scenario": SMALL},
    "evaluations": {},
}
WRITES = {"run", "stop", "resume", "collect"}


def test_every_tool_that_reads_answers_what_its_schema_says(served):
    async def talk(client):
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        return tools, {name: await client.call_tool(name, given) for name, given in QUESTIONS.items()}

    tools, results = over_http(served.base, talk, **served.roles["read"])
    assert (
        set(tools)
        == set(TOOLS) - WRITES - {"approve", "evaluate"}
        == set(QUESTIONS) | {"leaderboard", "approval", "evaluation"}
    )
    assert all(tool.annotations.read_only_hint and tool.description for tool in tools.values())
    for name, result in results.items():  # the client held each against the schema of its tool
        assert not result.is_error, (name, result.content[0].text)
        assert tools[name].output_schema["type"] == "object"
        assert str(served.lab.root) not in result.model_dump_json() and result.content[0].text
    assert results["points"].structured_content == served.json("/api/runs/@last/points")
    assert results["plan"].structured_content["trials"] == 2


def test_each_number_has_its_interval_its_n_and_a_reference_that_proves_it(served):
    async def talk(client):
        points = (await answer_of(client, "points", run="@last"))["rows"]
        rows = (await answer_of(client, "compare", side=["@last-1", "@last"], metric=["rate"]))["rows"]
        runs = (await answer_of(client, "history", case="two/n=0", metric="rate"))["runs"]
        said = [(row["mean"], row["ref"]) for row in points if row["metric"] == "rate"]
        said += [(row[f"mean_{side}"], row[f"ref_{side}"]) for row in rows for side in "ab"]
        said += [(run["mean"], run["ref"]) for run in runs]
        for row in points:
            assert row["n"] == 3 and row["interval"][0] <= row["mean"] <= row["interval"][1]
        proofs = {ref: await answer_of(client, "trace", ref=ref) for _, ref in said}
        return said, proofs

    said, proofs = over_http(served.base, talk, **served.roles["read"])
    assert len(proofs) == 4  # two runs of two points
    for mean, ref in said:
        assert proofs[ref]["ok"]
        (cell,) = proofs[ref]["steps"][0]["details"]
        assert (cell["value"], cell["n"]) == (mean, 3)


def test_tools_follow_the_role_and_refuse_in_the_words_of_the_command_line(served):
    async def names(client):
        return {tool.name for tool in (await client.list_tools()).tools}

    assert over_http(served.base, names, **served.roles["read"]) & WRITES == set()
    assert over_http(served.base, names, **served.roles["run"]) >= WRITES
    assert served.refusal("run", scenario=SMALL) == "run is for the role run\nyou are reader and may read"
    assert served.refusal("nope").startswith("there is no tool 'nope'")
    assert "limit: Input should be a valid integer" in served.refusal("list", limit="many")
    assert "sql_: Extra inputs are not permitted" in served.refusal("query", sql="SELECT 1", sql_="")
    missing = served.lab.bench("status", "nope", code=2).stderr
    assert all(line in missing for line in served.refusal("status", run="nope").splitlines())
    assert "NUL" in served.refusal("status", run="a\0b")
    typo = served.call("validate", scenario=SMALL + "repetition: 3\n")
    assert typo.is_error and typo.structured_content["problems"][0]["line"] == 4
    assert "$LAB is not read here" in served.refusal("plan", scenario=SMALL + 'description: "$LAB"\n')


def test_sql_reads_the_tables_and_nothing_else_and_ends(served):
    rows = served.call("query", sql="SELECT trial_id FROM trial_fact", rows=2).structured_content
    assert len(rows["rows"]) == 2 and rows["more"]
    for sql in ("SELECT * FROM read_text('/etc/passwd')", "COPY trial_fact TO '/tmp/x'", "DROP VIEW trial_fact", "x"):
        assert "root:" not in served.refusal("query", sql=sql)
    endless = "WITH RECURSIVE t AS (SELECT 1 AS x UNION ALL SELECT x + 1 FROM t) SELECT max(x) FROM t"
    assert "no answer within 0.5 s" in served.refusal("query", sql=endless, seconds=0.5)


def test_what_no_agent_can_read_is_cut_and_it_is_told_of(served):
    sql = "SELECT repeat('x', 1000) AS x FROM range(1000)"
    result = served.call("query", sql=sql)
    kept = len(result.structured_content["rows"])
    assert 100 < kept < 300 and f"{1000 - kept} more of rows are left out" in result.content[0].text
    assert "ask for less" in served.refusal("query", sql="SELECT repeat('x', 1000000) AS x", rows=1)


def test_a_page_that_is_cut_leads_on_without_a_gap(served, monkeypatch):
    monkeypatch.setattr(tools, "_LARGEST", 4000)
    workspace, reader = Workspace(served.lab.workspace), Caller("reader", "read", "stdio")
    writes = ServerWrites(workspace, ServerDatabase(workspace.folder.server_state))
    rows, after, pages = [], {}, 0
    while pages == 0 or after["after"]:
        answer, left_out = TOOLS["points"].call(workspace, writes, reader, {"run": "@last", **after})
        assert not left_out
        rows, after, pages = rows + answer["rows"], {"after": answer["cursor"]}, pages + 1
    assert pages > 1 and rows == served.json("/api/runs/@last/points?limit=1000")["rows"]


def test_reports_and_evidence_are_resources(served):
    run = served.json("/api/runs")["runs"][0]["run_id"]

    async def talk(client):
        async def read(uri):
            (content,) = (await client.read_resource(uri)).contents
            return content.text

        uris = [resource.uri for resource in (await client.list_resources()).resources]
        assert len((await client.list_resource_templates()).resource_templates) == 4
        reports = {form: await read(f"bench://runs/@last/report/{form}") for form in ("html", "markdown", "json")}
        trials = json.loads(await read(f"bench://runs/{run}/evidence"))
        at = f"bench://runs/{run}/evidence/{trials[0]['name']}"
        files = json.loads(await read(at))["files"]
        for file in files:
            content = (await read(f"{at}/{file['name']}")).encode()
            assert (len(content), hashlib.sha256(content).hexdigest()) == (file["size"], file["sha256"]), file["name"]
        for wrong in ("bench://runs/nope/report/html", "bench://runs/@last/report/pdf", f"{at}/manifest.json2",
                      f"{at}/../../../workspace.yaml", f"{at}/%2Fetc%2Fpasswd", "file:///etc/passwd"):  # fmt: skip
            with pytest.raises(MCPError) as refused:
                await read(wrong)
            assert "root:" not in str(refused.value) and str(served.lab.root) not in str(refused.value)
        return uris, reports, files

    uris, reports, files = over_http(served.base, talk, **served.roles["read"])
    assert uris[0] == f"bench://runs/{run}/report/markdown" and len(uris) == 2
    assert "metrics.json" in {file["name"] for file in files}
    status, _, same = ask(served.base, f"/api/runs/{run}/report?form=markdown", **served.roles["read"])
    assert status == 200 and reports["markdown"] == same
    assert reports["html"].startswith("<!doctype html>") and json.loads(reports["json"])


def test_the_guard_stands_before_it_as_before_every_page(served):
    hello = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "ping"})
    sent = {"Content_Type": "application/json", "Accept": "application/json, text/event-stream"}
    reader = served.roles["read"]
    assert ask(served.base, "/mcp", "POST", hello, **sent)[0] == 401
    assert ask(served.base, "/mcp", "POST", hello, **sent, Authorization="Bearer bht_wrong")[0] == 401
    assert ask(served.base, "/mcp", "POST", hello, **sent, **reader, host_="evil.example")[0] == 421
    assert ask(served.base, "/mcp", **reader)[0] == ask(served.base, "/mcp", "DELETE", **reader)[0] == 405
    status, _, body = ask(served.base, "/mcp", "POST", hello, **sent, **reader)
    assert (status, json.loads(body)["id"]) == (200, 1)
    assert ask(served.base, "/mcp", "POST", "{", **sent, **reader)[0] == 400

    async def names(client):
        return client.protocol_version, len((await client.list_tools()).tools)

    old, new = (over_http(served.base, names, mode, **reader) for mode in ("legacy", "auto"))
    assert old[0] < new[0] and old[1] == new[1] > 20


def test_a_run_beyond_the_budget_needs_approval_wherever_it_is_asked_for(served):
    refused = served.call("run", "run", scenario=LARGE)
    assert refused.is_error
    message = refused.content[0].text
    content = refused.structured_content
    plan = served.call("plan", scenario=LARGE).structured_content
    assert content["plan_digest"] == plan["plan_digest"] and plan["plan_digest"][:12] in message
    assert "trials: 200, 190 more than the 10 allowed" in message and "role approve" in message
    assert (content["exit_code"], content["over"]) == (5, [{"what": "trials", "asked": 200, "allowed": 10}])
    sent = {"Content_Type": "application/json"}
    status, _, body = ask(
        served.base, "/api/runs", "POST", json.dumps({"scenario": LARGE}), **sent, **served.roles["run"]
    )
    assert (status, json.loads(body)["title"]) == (403, content["title"])
    unknown = served.call("plan", "run", scenario=SMALL).structured_content
    assert unknown["trials"] == 2
    lines = json.loads(served.lab.bench("audit", "--json").stdout)
    assert {(line["who"], line["verb"], line["state"]) for line in lines} == {("runer", "submit", "refused")}
    submitted = served.call("run", "approve", scenario=LARGE).structured_content
    served.call("stop", "approve", run=submitted["run_id"])
    assert served.refusal("resume", "run", run=submitted["run_id"]).startswith(f"plan {plan['plan_digest'][:12]} needs")


def shown_options():
    """What the how-to page tells an agent to start."""
    page = Path(__file__).parents[2] / "docs" / "how-to" / "use-from-an-agent.md"
    started = json.loads(re.search(r"```json\n(.*?)```", page.read_text(), re.DOTALL)[1])["mcpServers"]["benchhouse"]
    assert (started["command"], started["args"][0], started["args"][2]) == ("bench", "-C", "mcp")
    return started["args"][3:]


async def until(client, run, state):
    with anyio.fail_after(240):
        while (status := await answer_of(client, "status", run=run))["state"] != state:
            await anyio.sleep(0.2)
    return status


def test_a_conversation_from_the_contracts_to_the_proof_of_each_number_it_quotes(tmp_path):
    lab = Lab(tmp_path)
    lab.bench("run", lab.scenario("certified", "small", repetitions=2))

    async def talk(client):
        contracts = (await answer_of(client, "benchmark_contracts"))["answer"]
        assert "publication-inference" in {item["contract"] for item in contracts}
        (base,) = (await answer_of(client, "list"))["runs"]
        assert (base["scenario"], base["state"]) == ("small", "finished")
        assert "at most wall 3600, trials 100 " in client.instructions
        plan = await answer_of(client, "plan", scenario=SMALL)
        assert plan["trials"] == 2 and plan["estimate"]["seconds"] > 0
        refused = await client.call_tool("run", {"scenario": LARGE})
        assert refused.is_error and refused.structured_content["exit_code"] == 5
        submitted = await answer_of(client, "run", file="small.yaml", key="once")
        assert await answer_of(client, "run", file="small.yaml", key="once") == submitted
        run = submitted["run_id"]
        assert (await until(client, run, "finished"))["outcomes"] == {"succeeded": 2}
        assert (await answer_of(client, "show", run=run))["plan_digest"] == plan["plan_digest"]
        compared = await client.call_tool("compare", {"side": [base["run_id"], run], "metric": ["rate", "wait.mean"]})
        quoted = re.findall(
            r"[AB]: (\S+)\s?\S* \(95% interval \S+ to \S+, n=2; trace (\S+)\)", compared.content[0].text
        )
        assert len(quoted) == 4, compared.content[0].text
        for number, ref in quoted:
            proof = await answer_of(client, "trace", ref=ref)
            assert proof["ok"] and [step["ok"] for step in proof["steps"]] == [True] * 4
            value = proof["steps"][0]["details"][0]["value"]
            assert float(number.removesuffix("/s")) == pytest.approx(value, rel=1e-3)
        return len((await answer_of(client, "list"))["runs"])

    runs, log = over_stdio(lab, talk, *shown_options())
    assert runs == 2 and "Traceback" not in log
    lines = json.loads(lab.bench("audit", "--json").stdout)
    assert [(line["how"], line["verb"], line["state"]) for line in lines] == [
        ("stdio", "submit", "done"),
        ("stdio", "submit", "refused"),
    ]


@pytest.mark.parametrize(("end", "code"), [(None, 0), (signal.SIGINT, -signal.SIGINT)])
def test_nothing_but_the_protocol_is_on_stdout_and_it_ends_with_stdin_or_ctrl_c(served, end, code):
    hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
    messages = [
        json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}),
        "this is not JSON",
        '{"jsonrpc": "2.0", "method": "notifications/initialized"}',
        '{"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "run", "arguments": {}}}',
        '{"jsonrpc": "2.0", "id": 3, "method": "no/such"}',
    ]
    command = [sys.executable, "-m", "benchhouse", "mcp"]
    process = subprocess.Popen(
        command, cwd=served.lab.workspace, env=served.lab.environment(), text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    process.stdin.write("\n".join(messages) + "\n")
    process.stdin.flush()
    answers = [json.loads(process.stdout.readline()) for _ in range(3)]
    if end:
        process.send_signal(end)
        process.wait(120)
    out, _ = process.communicate(timeout=120)
    assert (out, process.returncode) == ("", code)
    by_id = {item["id"]: item for item in answers}
    assert by_id[1]["result"]["serverInfo"]["name"] == "benchhouse"
    assert by_id[2]["result"]["isError"] and "role run" in by_id[2]["result"]["content"][0]["text"]
    assert by_id[3]["error"]["code"] == -32601


def test_the_library_is_imported_when_the_first_agent_comes():
    code = "import sys, benchhouse.serve.server; sys.exit('mcp' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_budget_that_is_none_is_refused(bench):
    for given, words in (("trials=many", "valid integer"), ("nodes=3", "there are wall, cpu, trials, cost")):
        refused = bench("mcp", "--budget", given)
        assert refused.code == 2 and words in refused.err and given.partition("=")[0] in refused.err
    assert "is not NAME=VALUE" in bench("serve", "--budget", "trials").err
