"""Every verb that reads, asked of a server over a workspace with runs: its answer fits its own schema."""

import csv
import io
import json
import re
from collections.abc import Iterator
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import Request, urlopen

import jsonschema
import pyarrow as pa
import pytest
from laboratory import Lab

import benchhouse
from benchhouse.schema.errors import NotFoundError

ALARMS = """
alarms:
  - {name: slow, case: two/n=0, metric: rate, below: 50, tell: [me]}
channels:
  me: {command: ["true"]}
"""


class Caller:
    """Questions to one server."""

    def __init__(self, base: str, lab: Lab) -> None:
        self.base, self.lab = base, lab
        self.document = self.json("/api/openapi.json")

    def ask(self, path: str, body: Any = None, method: str | None = None, **headers: str) -> tuple[int, Any, bytes]:
        data = None if body is None else json.dumps(body).encode()
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        try:
            with urlopen(Request(self.base + path, data, names, method=method)) as answer:
                return answer.status, answer.headers, answer.read()
        except HTTPError as error:
            return error.code, error.headers, error.read()

    def json(self, path: str, body: Any = None) -> Any:
        status, _, data = self.ask(path, body)
        assert status == 200, data
        return json.loads(data, parse_constant=pytest.fail)


@pytest.fixture(scope="module")
def caller(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Caller]:
    lab = Lab(tmp_path_factory.mktemp("served"))
    lab.variables["DB_PASSWORD"] = "planted-6d1f"
    scenario = lab.scenario("certified", "two", repetitions=4, axes=[{"grid": {"n": [0, 1]}}])
    lab.bench("run", scenario)
    (lab.marks / "bad").touch()
    lab.bench("run", scenario, "--new", code=1)
    (lab.marks / "bad").unlink()
    lab.bench("run", scenario, "--new")
    lab.bench("run", lab.scenario("mischief", "wild", axes=[{"grid": {"act": ["raise", "ok"]}}]), code=1)
    (lab.workspace / "alarms.yaml").write_text(ALARMS)
    lab.bench("baseline", "accept", "two/n=0", "--metric", "rate", code=None)
    lab.bench("schedule", "add", scenario, "--cron", "0 2 * * *", "--name", "nightly")
    lab.bench("infra", "create", "--provider", "kind", "--name", "lab")
    (lab.workspace / "README.md").write_text("It takes 12.5 ms.\n")
    process = lab.fork("serve", "--port", "0")
    try:
        assert process.stdout
        match = re.search(r"https?://\S+", process.stdout.readline())
        assert match
        yield Caller(match.group().rstrip("/"), lab)
    finally:
        process.terminate()
        process.wait()


QUESTIONS: dict[str, str] = {
    "runs": "/api/runs?limit=2",
    "run_overview": "/api/runs/@last",
    "run_status": "/api/runs/wild/status",
    "run_points": "/api/runs/two/points",
    "run_failures": "/api/runs/wild/failures",
    "run_invalid": "/api/runs/@last-2/invalid",
    "run_warnings": "/api/runs/two/warnings",
    "run_contract": "/api/runs/two/contract",
    "run_contract_rendered": "/api/runs/two/contract/rendered",
    "run_logs": "/api/runs/wild/logs?lines=5&component=experiment&component=worker",
    "run_verify": "/api/runs/two/verify",
    "verify": "/api/verify",
    "run_why": "/api/runs/two/why",
    "compare": "/api/compare?side=@last-3&side=two",
    "gate": "/api/gate?base=@last-3&new=two",
    "history": "/api/history?case=two/n%3D0&metric=rate",
    "cases": "/api/cases",
    "baselines": "/api/baselines",
    "alarms": "/api/alarms",
    "alarm_log": "/api/alarms/log",
    "changes": "/api/changes?since=7d",
    "schedules": "/api/schedules",
    "schedule_show": "/api/schedules/nightly",
    "github_orders": "/api/github",
    "approvals": "/api/approvals",
    "evaluations": "/api/evaluations",
    "trace": "/api/trace?ref=two:n%3D0:rate",
    "claims": "/api/claims",
    "claim_documents": "/api/claims/documents",
    "benchmark_contracts": "/api/benchmark/contracts",
    "benchmark_contract": "/api/benchmark/contracts/publication-inference",
    "experiments": "/api/catalog/experiments",
    "experiment_show": "/api/catalog/experiments/certified",
    "benchmarks": "/api/catalog/benchmarks",
    "targets": "/api/catalog/targets",
    "importers": "/api/catalog/importers",
    "data": "/api/catalog/data",
    "schema": "/api/schema/scenario",
    "leaderboards": "/api/leaderboards",
    "servers": "/api/servers",
    "clients": "/api/clients",
    "recipes": "/api/recipes",
    "recipe_show": "/api/recipes/postgres",
    "monitors": "/api/monitors",
    "monitors_available": "/api/monitors/available",
    "images": "/api/images",
    "sites": "/api/sites",
    "site_show": "/api/sites/meluxina",
    "infra": "/api/infra",
    "selftest": "/api/selftest",
    "warehouse_schema": "/api/warehouse/schema",
    "warehouse_shared": "/api/warehouse/shared",
    "badge": "/api/badge?case=two/n%3D0&metric=rate",
    "measured": "/api/measured?limit=3",
    "warehouse_followed": "/api/warehouse/followed",
    "query": "/api/query?sql=" + quote("SELECT run_id, trials FROM benchmark_run_fact"),
}


def fits(caller: Caller, name: str, answer: Any) -> None:
    for methods in caller.document["paths"].values():
        for operation in methods.values():
            if operation["operationId"] == name:
                schema = operation["responses"]["200"]["content"]["application/json"]["schema"]
                whole = {"components": caller.document["components"], **schema}
                jsonschema.Draft202012Validator(whole).validate(answer)
                return
    pytest.fail(f"{name} is not in the document")


@pytest.mark.timeout(900)  # nearly sixty questions, each a few seconds on a busy machine
def test_an_answer_fits_its_own_schema(caller: Caller):
    failures = []
    for name, path in QUESTIONS.items():
        try:
            answer = caller.json(path)
            fits(caller, name, answer)
            assert str(caller.lab.workspace) not in json.dumps(answer)
        except (AssertionError, jsonschema.ValidationError) as error:
            failures.append((name, str(error)[:500]))
    assert not failures


def test_comparisons_of_every_kind_fit(caller: Caller):
    for path in ("/api/compare?side=@last-3&side=@last-1&side=two", "/api/compare?side=two&along=n&of=rate"):
        fits(caller, "compare", caller.json(path))


def test_tables_come_as_csv_and_arrow_too(caller: Caller):
    points = caller.json("/api/runs/two/points")["rows"]
    status, headers, body = caller.ask("/api/runs/two/points", Accept="text/csv")
    assert (status, headers["Content-Type"].partition(";")[0]) == (200, "text/csv")
    rows = list(csv.DictReader(io.StringIO(body.decode())))
    assert [row["ref"] for row in rows] == [point["ref"] for point in points]
    assert json.loads(rows[0]["values"]) == points[0]["values"]
    body = caller.ask("/api/runs/two/points", Accept="application/vnd.apache.arrow.stream, text/csv;q=0.5")[2]
    table = pa.ipc.open_stream(body).read_all()
    assert table.column("mean").to_pylist() == [point["mean"] for point in points]
    assert caller.ask("/api/runs", Accept="text/csv")[2].startswith(b"run_id,")
    assert caller.ask("/api/runs/two", Accept="text/csv")[0] == 406


def test_the_numbers_of_a_run_come_in_pages_and_by_metric(caller: Caller):
    path = "/api/runs/two/points"
    whole = caller.json(f"{path}?limit=1000")
    assert whole["cursor"] is None and len({row["metric"] for row in whole["rows"]}) > 1
    for limit in (1, 2, 3):
        rows, after = [], ""
        while after is not None:
            page = caller.json(f"{path}?limit={limit}" + (f"&after={quote(after)}" if after else ""))
            fits(caller, "run_points", page)
            assert 0 < len(page["rows"]) <= limit
            rows, after = rows + page["rows"], page["cursor"]
        assert rows == whole["rows"]
    rate = caller.json(f"{path}?metric=rate")["rows"]
    assert rate == [row for row in whole["rows"] if row["metric"] == "rate"] and len(rate) == 2
    headers = caller.ask(f"{path}?limit=1")[1]
    assert 'rel="next"' in headers["Link"]
    deep = f"after={quote('[' * 2000)}"
    for wrong in ("after=nope", "after=[1]", "after=%5B%22rate%22%2C-1%5D", deep, "metric=nope", "limit=0"):
        assert caller.ask(f"{path}?{wrong}")[0] == 400, wrong
    assert caller.ask(f"/api/measured?{deep}")[0] == 400


def test_a_cursor_walks_over_all_runs_once(caller: Caller):
    everything, path, seen = caller.json("/api/runs")["runs"], "/api/runs?limit=1", []
    while path:
        status, headers, body = caller.ask(path)
        assert status == 200
        seen += [run["run_id"] for run in json.loads(body)["runs"]]
        link = re.search(r"<([^>]*)>; rel=\"next\"", headers["Link"] or "")
        path = link[1].removeprefix(caller.base) if link else ""
    assert seen == [run["run_id"] for run in everything] == sorted(seen, reverse=True)
    assert [run["scenario"] for run in caller.json("/api/runs?scenario=wild")["runs"]] == ["wild"]
    assert caller.json("/api/runs?state=running") == {"runs": [], "cursor": None, "unreadable": []}
    assert caller.json("/api/runs?since=2999-01-01")["runs"] == []


def test_methods_and_names_that_do_not_exist(caller: Caller):
    status, headers, _ = caller.ask("/api/cases", method="DELETE", Content_Type="application/json")
    assert status == 405 and headers["Allow"] == "GET, HEAD"
    status, headers, body = caller.ask("/api/cases", method="HEAD")
    assert (status, body) == (200, b"") and headers["ETag"]
    missing = ("runs/nope", "claims/nope", "catalog/experiments/nope", "recipes/nope", "sites/nope", "servers/x/logs")
    for name in (*missing, "benchmark/contracts/nope", "leaderboards/nope", "trace?ref=nope", "history?case=nope"):
        assert caller.ask(f"/api/{name}")[0] == 404, name
    for name in ("recipes/site.yaml", "sites/..%2Fx.yaml", "runs?limit=0", "runs/a%00b", "query?sql=x&sql_=1"):
        assert caller.ask(f"/api/{name}")[0] in (400, 404), name
    wrong = json.loads(caller.ask("/api/runs?limit=many")[2])
    assert wrong["errors"][0]["field"] == "limit"


def test_sql_reads_the_tables_and_nothing_else_and_ends(caller: Caller):
    def refused(sql: str, **more: Any) -> str:
        status, _, body = caller.ask("/api/query", {"sql": sql, **more}, Content_Type="application/json")
        assert status == 400, body
        return body.decode()

    answer = caller.json("/api/query?rows=3&sql=" + quote("SELECT 'NaN'::DOUBLE AS x FROM trial_fact"))
    assert answer["rows"] == [{"x": None}] * 3 and answer["more"]
    for sql in ("SELECT * FROM read_text('/etc/passwd')", "COPY trial_fact TO '/tmp/x'", "DROP VIEW trial_fact", "x"):
        assert "root:" not in refused(sql)
    endless = "WITH RECURSIVE t AS (SELECT 1 AS x UNION ALL SELECT x + 1 FROM t) SELECT max(x) FROM t"
    assert "no answer within 0.5 s" in refused(endless, seconds=0.5)


def test_numbers_of_a_report_that_nobody_wrote_can_be_traced(caller: Caller):
    report = caller.json("/api/runs/@last/report?form=json")
    refs = [cell["ref"] for cell in report["cells"]]
    assert caller.json(f"/api/trace?ref={quote(refs[0])}")["ok"]
    for form in ("markdown", "html"):
        assert refs[0].partition(":")[0] in caller.ask(f"/api/runs/@last/report?form={form}")[2].decode()


def test_a_plan_of_a_text(caller: Caller):
    def post(path: str, scenario: Any) -> tuple[int, Any]:
        status, _, body = caller.ask(path, {"scenario": scenario}, Content_Type="application/json")
        return status, json.loads(body)

    good = "scenario: mine\nexperiment: certified\nrepetitions: 3\n"
    status, plan = post("/api/plan", good)
    assert (status, plan["trials"]) == (200, 3) and len(plan["plan_digest"]) >= 16
    fits(caller, "plan", plan)
    assert post("/api/plan", {"scenario": "mine", "experiment": "certified", "repetitions": 3})[1]["trials"] == 3
    fits(caller, "validate", post("/api/validate", good)[1])
    status, wrong = post("/api/validate", good + "repetition: 4\n")
    assert status == 400 and wrong["problems"][0]["line"] == 4
    for text in ('description: "$LAB"\n', 'description: "\\x24{LAB}"\n'):
        status, wrong = post("/api/plan", good + text)
        assert status == 400 and "$LAB is not read here" in wrong["title"]
    assert post("/api/plan", good + "contract: /etc/passwd\n")[0] == 400
    assert "root:" not in str(post("/api/plan", good + "contract: /etc/passwd\n")[1])
    assert "planted" not in str(post("/api/plan", good + "workload: {n: $DB_PASSWORD}\n")[1])


def test_contracts_and_recipes_are_checked_as_texts(caller: Caller):
    def post(path: str, **body: str) -> tuple[int, Any]:
        status, _, answer = caller.ask(path, body, Content_Type="application/json")
        return status, json.loads(answer)

    text = caller.lab.bench("contracts", "show", "realism-inference").stdout
    text = re.sub(r"([A-Z]+)@sha256:\.\.\.", lambda found: f"{found[1].lower()}@sha256:{64 * 'a'}", text)
    text = re.sub("COMMIT$", 40 * "a", re.sub("SHA256$", 64 * "a", text, flags=re.M), flags=re.M)
    status, checked = post("/api/benchmark/contracts/validate", contract=text)
    assert status == 200 and checked["settled"]["verdict"] in ("accepted", "downgraded")
    fits(caller, "validate_contract", checked)
    status, wrong = post("/api/benchmark/contracts/validate", contract=text + "odd: 1\n")
    assert status == 400 and wrong["problems"][0]["line"] == text.count("\n") + 1
    recipe = caller.lab.bench("servers", "show", "postgres").stdout
    assert post("/api/recipes/validate", recipe=recipe) == (200, caller.json("/api/recipes/postgres"))
    assert post("/api/recipes/validate", recipe="name: x\n")[1]["problems"]


def test_a_report_is_a_document_in_three_forms(caller: Caller):
    for form, begins in (("html", b"<!doctype html>"), ("markdown", b"# "), ("json", b"{")):
        for more in ("", "&audience=product"):
            status, headers, body = caller.ask(f"/api/runs/two/report?form={form}{more}")
            assert status == 200 and body.lower().startswith(begins), (form, more, body[:40])
            assert headers["Content-Disposition"].startswith("attachment")


def test_the_same_from_python_over_http(caller: Caller):
    ws: Any = benchhouse.open(caller.base)
    here = benchhouse.open(caller.lab.workspace)
    assert [run.id for run in ws.runs()] == [run.id for run in here.runs()]
    assert ws["two"].status() == here["two"].status()
    assert list(ws["two"].points()) == list(here["two"].points()) and ws.points("two").arrow().num_rows
    assert ws.query("SELECT count(*) AS n FROM trial_fact")[0]["n"] > 8
    assert ws.cases() == here.cases() and ws["wild"].failures()[0].outcome == "error"
    assert ws.catalog.show("certified")["name"] == "certified" and ws.contracts.list()
    assert ws.schedules.get("nightly")["next_due"] == here.schedules.get("nightly").next_due
    assert [run["run_id"] for run in ws.changes("7d")["runs"]] == [run.run_id for run in here.changes("7d").runs]
    assert ws.plan("scenario: mine\nexperiment: certified\n")[0].trials == 1
    assert ws.compare("@last-3", "two")["rows"] and ws.report_text("two", form="markdown").startswith("# ")
    for asked in (ws, here):
        with pytest.raises(NotFoundError, match="no run 'nope'"):
            asked["nope"]
    with pytest.raises(benchhouse.BenchError, match="in plain text"):
        benchhouse.open("http://bench.example.org", token="bht_x")
