"""A plan beyond a person's budget, asked for over HTTP, approved by a click of another person, and run once."""

import json
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlencode

from asking import FORM, PAGE, ask, bearer, form_token, token
from laboratory import wait_until

JSON = {"Content_Type": "application/json"}
SCENARIO = "scenario: many\nexperiment: certified\nrepetitions: 4\n"


def trust(lab):
    """ada may approve; the server's key, made by ssh-keygen, vouches for her."""
    key = lab.workspace / ".bench" / "approval_key"
    key.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    public = key.with_name("approval_key.pub").read_text().strip()
    people = (
        f'ada: {{role: approve}}\n  eve: {{role: approve}}\n  bob: {{}}\n  here: {{vouches: true, keys: ["{public}"]}}'
    )
    (lab.workspace / "trusted.yaml").write_text(f"people:\n  {people}\nbudget: {{trials: 3}}\n")


def test_somebody_asks_another_clicks_and_the_run_begins_once(lab, serve):
    trust(lab)
    ada, bob = (bearer(token(lab, name, "--scope", scope)) for name, scope in (("ada", "approve"), ("bob", "run")))
    base = serve("--login")

    def submit(who):
        status, _, body = ask(base, "/api/runs", "POST", json.dumps({"scenario": SCENARIO}), **JSON, **who)
        return status, json.loads(body)

    status, refused = submit(bob)
    assert (status, refused["exit_code"]) == (403, 5) and "trials: 4, 1 more than the 3 allowed" in refused["title"]
    name = refused["request"]
    approve = f"/api/approvals/{name}/approve"
    assert ask(base, approve, "POST", "{}", **JSON, **bob)[0] == 403
    front = ask(base, "/", **PAGE, **ada)[2]
    assert "many on local at local, for bob" in front and name in front and "Approve" in front
    assert "/do/approve_plan" not in ask(base, "/", **PAGE, **bob)[2]
    given = {"form_token": form_token(front), "idempotency_key": "a1", "then": "/", "request": name}
    assert ask(base, "/do/approve_plan", "POST", urlencode(given), **FORM, **ada)[0] == 303
    shown = json.loads(ask(base, f"/api/approvals/{name}", **bob)[2])
    assert (shown["state"], shown["approved_by"], shown["signed_by"], shown["door"]) == (
        "approved", "ada", "here", "bench serve",
    )  # fmt: skip
    assert submit(ada)[0] == 403, "it is bob's"
    status, run = submit(bob)
    assert status == 200, run
    assert submit(bob)[0] == 403, "for one run"
    wait_until(
        lambda: [event["event"] for event in lab.events()][-1:] == ["finished"], "the approved run to finish", 240
    )
    assert json.loads(ask(base, f"/api/approvals/{name}", **bob)[2])["run_id"] == run["run_id"]
    trial = json.loads((lab.folders("many")[0] / "trial.json").read_text())
    assert trial["approval"]["approved_by"] == "ada" and trial["approval"]["name"] == name
    sql = "SELECT action, count(*) AS n FROM approval_fact GROUP BY 1 ORDER BY 1"
    counted = json.loads(lab.bench("query", sql, "--json").stdout)["rows"]
    assert {row["action"]: row["n"] for row in counted} == {"approved": 1, "asked": 3, "refused": 3, "used": 1}
    shutil.rmtree(lab.workspace / "approvals")
    assert submit(bob)[0] == 403


def test_two_who_approve_at_once_let_one_run_begin(lab, serve):
    trust(lab)
    people = (("ada", "approve"), ("eve", "approve"), ("bob", "run"))
    ada, eve, bob = (bearer(token(lab, name, "--scope", scope)) for name, scope in people)
    base = serve("--login")

    def post(path, given, who):
        status, _, body = ask(base, path, "POST", json.dumps(given), **JSON, **who)
        return status, json.loads(body)

    request = post("/api/runs", {"scenario": SCENARIO}, bob)[1]["request"]
    with ThreadPoolExecutor(4) as crew:
        approved = [crew.submit(post, f"/api/approvals/{request}/approve", {}, who) for who in (ada, eve, ada, eve)]
        assert {answer.result()[0] for answer in approved} == {200}
        begun = [crew.submit(post, "/api/runs", {"scenario": SCENARIO}, bob) for _ in range(4)]
        answers = [answer.result() for answer in begun]
    assert sorted(status for status, _ in answers) == [200, 403, 403, 403], answers
    (run,) = [body["run_id"] for status, body in answers if status == 200]
    assert [item["run_id"] for item in json.loads(ask(base, "/api/runs", **bob)[2])["runs"]] == [run]
    wait_until(lambda: json.loads(ask(base, f"/api/runs/{run}/status", **bob)[2])["state"] == "finished", "it to end")
