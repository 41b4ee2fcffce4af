"""What is written through the server: by those who may, once for each key, on record, also after a kill."""

import json
import signal
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from urllib.parse import urlencode, urlsplit

import pytest
from asking import FORM, PAGE, ask, bearer, form_token, token

from benchhouse.api.workspace import Workspace
from benchhouse.schema.errors import BenchError
from benchhouse.serve import writing_verbs as writing_verbs
from benchhouse.serve.access import Caller
from benchhouse.serve.idempotent_writes import ServerWrites
from benchhouse.serve.reading_verbs import OfRun
from benchhouse.serve.state import ServerDatabase
from benchhouse.serve.verbs import VERBS

JSON = {"Content_Type": "application/json"}
SCENARIO = "scenario: web\nexperiment: command\nworkload: {argv: ['true']}\n"


@pytest.fixture
def roles(lab):
    return {role: bearer(token(lab, f"{role}er", "--scope", role)) for role in ("read", "run", "approve", "admin")}


def post(base, path, given, key="", **headers):
    more = {"Idempotency_Key": key} if key else {}
    status, heads, body = ask(base, f"/api{path}", "POST", json.dumps(given), **JSON, **more, **headers)
    return status, heads, json.loads(body)


def watched(lab):
    """A workspace with an alarm."""
    (lab.workspace / "alarms.yaml").write_text(
        "alarms: [{name: slow, case: once, metric: x, above: 1, tell: [me]}]\nchannels: {me: {command: [cat]}}\n"
    )


def test_the_scope_of_a_verb_decides_who_may(lab, serve, roles):
    watched(lab)
    base = serve()
    mute = {"why": "known"}
    assert post(base, "/alarms/slow/mute", mute)[0] == 403  # without a login: read
    for role, status in (("read", 403), ("run", 403), ("approve", 200), ("admin", 200)):
        assert post(base, "/alarms/slow/mute", mute, **roles[role])[0] == status, role
    refused = post(base, "/runs/@last/stop", {}, **roles["read"])
    assert refused[2]["title"] == "stop is for the role run" and "reader" in refused[2]["detail"]
    for path in ("/api/audit", "/api/tokens"):
        assert ask(base, path, **roles["approve"])[0] == 403, path
    listed = ask(base, "/api/tokens", **roles["admin"])[2]
    assert [item["name"] for item in json.loads(listed)] == [f"{role}er" for role in roles]
    assert not any(role["Authorization"].split()[1] in listed for role in roles.values())
    lines = json.loads(ask(base, "/api/audit", **roles["admin"])[2])
    assert [(line["who"], line["verb"], line["state"]) for line in lines] == [
        ("adminer", "mute_alarm", "done"),
        ("approveer", "mute_alarm", "done"),
    ]
    assert json.loads(lab.bench("audit", "--json").stdout) == lines


def test_one_key_is_one_write(lab, serve, roles):
    watched(lab)
    base, who = serve(fresh=True), roles["approve"]
    first = post(base, "/alarms/slow/mute", {"why": "known"}, "k1", **who)
    again = post(base, "/alarms/slow/mute", {"why": "known"}, "k1", **who)
    assert first[0] == again[0] == 200 and first[2] == again[2]
    assert "idempotency-replayed" not in first[1] and again[1]["idempotency-replayed"] == "true"
    assert post(base, "/alarms/slow/mute", {"why": "other"}, "k1", **who)[0] == 422
    assert post(base, "/alarms/slow/unmute", {}, "k1", **who)[0] == 422
    assert post(base, "/alarms/slow/mute", {"why": "known"}, "k1", **roles["admin"])[0] == 200  # their own key
    assert post(base, "/alarms/slow/mute", {"why": "known"}, "k" * 201, **who)[0] == 400
    refused = post(base, "/alarms/fast/mute", {"why": "known"}, "k2", **who)
    assert refused[0] == 400 and "slow" in refused[2]["detail"]
    serve.process.send_signal(signal.SIGKILL)
    base = serve()
    assert post(base, "/alarms/slow/mute", {"why": "known"}, "k1", **who)[2] == first[2]
    muted = [line for line in json.loads(lab.bench("alarms", "log", "--json").stdout) if line["action"] == "muted"]
    assert len(muted) == 2 and muted[0]["why"] == "known (approveer)"
    assert json.loads(lab.bench("alarms", "list", "--json").stdout)[0]["muted"] == "known (adminer)"


def test_a_run_is_started_stopped_by_two_at_once_and_resumed(lab, serve, roles):
    base, who = serve(), roles["run"]
    (lab.workspace / "long.yaml").write_text("scenario: long\nexperiment: command\nworkload: {argv: [sleep, '60']}\n")
    status, _, submitted = post(base, "/runs", {"file": "long.yaml"}, "go", **who)
    assert status == 200, submitted
    assert post(base, "/runs", {"file": "long.yaml"}, "go", **who)[2] == submitted
    run = submitted["run_id"]
    assert json.loads(lab.bench("status", run, "--json").stdout)["state"] == "running"
    with ThreadPoolExecutor() as people:
        stops = list(people.map(lambda _: post(base, f"/runs/{run}/stop", {}, **who), range(2)))
    assert [stop[0] for stop in stops] == [200, 200]
    assert {stop[2]["stopped_pid"] for stop in stops} == {submitted["pid"], None}
    assert post(base, f"/runs/{run}/resume", {}, **who)[2]["run_id"] == run
    refused = post(base, f"/runs/{run}/resume", {}, **who)
    assert refused[0] == 400 and "being worked on" in refused[2]["title"]
    assert post(base, f"/runs/{run}/stop", {}, **who)[0] == 200
    line = json.loads(lab.bench("audit", "--json").stdout)[-1]
    record = json.loads((lab.workspace / ".bench" / "runs" / run / "run.json").read_text())
    assert (line["verb"], line["run_id"], line["plan_digest"]) == ("submit", run, record["plan_digest"])


def test_a_scenario_is_sent_as_text_and_no_file_outside_is_read(lab, serve, roles):
    base, who = serve(), roles["run"]
    (lab.root / "outside.yaml").write_text(SCENARIO)
    (lab.workspace / "link.yaml").symlink_to(lab.root / "outside.yaml")
    for file in (
        "../outside.yaml",
        str(lab.root / "outside.yaml"),
        "link.yaml",
        ".bench/x.yaml",
        "no.yaml",
        "/etc/passwd",
    ):
        assert post(base, "/runs", {"file": file}, **who)[0] == 404, file
    assert post(base, "/runs", {}, **who)[0] == 400
    refused = post(base, "/runs", {"scenario": "scenario: web\nexperiment: command\nwork: 1\n"}, **who)
    assert refused[0] == 400 and "work" in str(refused[2])
    status, _, submitted = post(base, "/runs", {"scenario": SCENARIO}, **who)
    assert status == 200, submitted
    lab.bench("collect", submitted["run_id"])


def test_a_planted_secret_is_in_no_answer_log_or_file(lab, serve, roles):
    planted, key = "hf_" + "planted" * 6, "sk-" + "planted" * 5
    lab.variables["HF_TOKEN"] = planted
    base, who = serve(), roles["admin"]
    answers = [
        post(base, "/runs", {"scenario": f"scenario: web\nexperiment: command\nenvironment: {{A: {key}}}\n"}, **who),
        post(base, "/runs", {"scenario": f"scenario: [{key}"}, **who),
        post(base, "/alarms/x/mute", {"why": key}, **who),
        post(base, "/runs/$HF_TOKEN/stop", {}, **who),
        ask(base, "/api/audit", **who),
        ask(base, "/login", **PAGE, **who),
    ]
    serve.process.terminate()
    kept = [
        serve.process.stderr.read(),
        *(path.read_text(errors="replace") for path in (lab.workspace / ".bench").glob("*.*")),
    ]
    for text in (*map(str, answers), *kept):
        assert planted not in text and key not in text


def test_a_form_does_what_its_page_says_once(lab, serve):
    watched(lab)
    base = serve("--allow", "approve")
    page = ask(base, "/login", **PAGE)[2]
    given = {"form_token": form_token(page), "idempotency_key": "f1", "then": "/runs", "alarm": "slow", "why": "known"}
    for _ in range(2):  # pressed twice
        status, headers, _ = ask(base, "/do/mute_alarm", "POST", urlencode(given), **FORM)
        assert (status, headers["location"]) == (303, "/runs")
    assert len(json.loads(lab.bench("alarms", "log", "--json").stdout)) == 1
    page = ask(base, "/history", **PAGE)[2]
    assert "known (local)" in page and "Notify again" in page and ">Mute<" not in page
    given = {"form_token": form_token(page), "idempotency_key": "f2", "then": "/history", "alarm": "slow"}
    assert ask(base, "/do/unmute_alarm", "POST", urlencode(given), **FORM)[0] == 303
    assert ">Mute<" in ask(base, "/history", **PAGE)[2]
    given |= {"why": "again", "for_s": "1d", "idempotency_key": "f3"}
    assert ask(base, "/do/mute_alarm", "POST", urlencode(given), **FORM)[0] == 303
    last = json.loads(lab.bench("alarms", "log", "--json").stdout)[-1]
    ends = datetime.fromisoformat(last["until"]) - datetime.fromisoformat(last["time"])
    assert last["why"] == "again (local)" and ends == timedelta(days=1)
    wrong = ask(base, "/do/mute_alarm", "POST", urlencode(given | {"alarm": "<script>", "idempotency_key": ""}), **FORM)
    assert wrong[0] == 400 and "<script>" not in wrong[2]
    odd = {"form_token": given["form_token"], "idempotency_key": "f4", "file": "a\0b.yaml"}
    assert ask(base, "/do/submit", "POST", urlencode(odd), **FORM)[0] == 400
    assert ask(base, "/do/run_status", "POST", urlencode(given), **FORM)[0] == 404
    assert ask(base, "/do/audit", "POST", urlencode(given), **FORM)[0] == 404


def test_an_evaluation_is_begun_once_by_an_admin_and_answers_its_schema(lab, serve, roles):
    home = lab.workspace / "packages/one"
    folder = home / "models/m/benchmark_instances/b"
    folder.mkdir(parents=True)
    (home / "nexus.yaml").write_text("package: {name: one}\n")
    (home / "models/m/model.yaml").write_text("model: {id: org/m}\n")
    (folder / "scenario.yaml").write_text("scenario: s\nexperiment: nobody.has.this\n")
    base, who, asked = serve(), roles["admin"], {"package": "one", "budget": {"wall": "1h"}}
    assert post(base, "/evaluations", asked, "e1", **roles["approve"])[0] == 403
    first, again = post(base, "/evaluations", asked, "e1", **who), post(base, "/evaluations", asked, "e1", **who)
    assert first[0] == 200 and first[2] == again[2] and again[1]["idempotency-replayed"] == "true", first
    assert first[2]["state"] == "ended" and first[2]["plan"]["benchmarks"][0]["state"] == "broken"
    line = json.loads(lab.bench("audit", "--json").stdout)[0]
    assert (line["verb"], line["id"]) == ("evaluate", first[2]["evaluation_id"])
    (kept,) = json.loads(ask(base, "/api/evaluations", **who)[2])
    assert kept == json.loads(ask(base, f"/api/evaluations/{line['id']}", **who)[2]) == first[2]
    assert json.loads(lab.bench("evaluations", "--json").stdout)[0]["submitter"] == "adminer"
    assert post(base, "/evaluations/@last/stop", {}, **who)[2]["stopped_pid"] is None
    plan = "/api/evaluation-plan?all=true"
    assert json.loads(ask(base, plan, **who)[2])["trials"] == 0
    for role, status in (("run", 403), ("admin", 200)):  # by the name of the token, whoever the server belongs to
        (lab.workspace / "trusted.yaml").write_text(f"people: {{adminer: {{role: {role}}}}}\n")
        assert ask(base, plan, **who)[0] == status, role
    for wrong in (
        {},
        {"all": True, "package": "one"},
        {"changed_since": "--output=/tmp/x"},
        {"changed_since": "nowhere"},
    ):
        assert post(base, "/evaluations", wrong, **who)[0] == 400, wrong


def test_a_request_that_was_not_sent_to_its_end_is_not_carried_out(lab, serve, roles):
    base = serve()
    server = urlsplit(base)
    who = roles["run"]["Authorization"]
    with socket.create_connection((server.hostname, server.port), 10) as connection:
        head = f"Host: localhost\r\nAuthorization: {who}\r\nContent-Type: application/json\r\nContent-Length: 9"
        connection.sendall(f"POST /api/runs/cut/stop HTTP/1.1\r\n{head}\r\n\r\n".encode())
        time.sleep(0.2)  # so that the server waits for the body
    assert post(base, "/runs/whole/stop", {}, **roles["run"])[0] == 404
    assert [line["asked"]["run"] for line in json.loads(lab.bench("audit", "--json").stdout)] == ["whole"]


def test_what_a_server_remembers_of_clients_does_not_grow_with_their_requests(tmp_path):
    workspace = Workspace(tmp_path)
    state = ServerDatabase(workspace.folder.server_state)
    later = (datetime.now(UTC) + timedelta(days=1)).isoformat()
    other = state.begin_session("other", later)
    cookies = [state.begin_session("one", later) for _ in range(110)]
    assert [state.token_of(cookie) is not None for cookie in cookies] == [False] * 10 + [True] * 100
    assert state.token_of(other) == "other"
    writes = ServerWrites(workspace, state)
    for number in range(20):
        with pytest.raises(BenchError, match="run"):
            writes.carry_out(VERBS["stop"], OfRun(run=f"absent-{number}"), Caller("ada", "run", "token"))
    assert len(writes._turns) == 0
