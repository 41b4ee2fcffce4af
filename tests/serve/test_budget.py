"""Runs of those who may not approve are held to the owner's budget, by form and by HTTP, until somebody approves."""

import json
from urllib.parse import urlencode

from asking import FORM, PAGE, ask, form_token
from laboratory import wait_until

JSON = {"Content_Type": "application/json"}


def post(base, path, given):
    status, _, body = ask(base, f"/api{path}", "POST", json.dumps(given), **JSON)
    return status, json.loads(body)


def state(base, run):
    return json.loads(ask(base, f"/api/runs/{run}/status")[2])


def test_a_form_is_refused_with_the_words_of_the_api(lab, serve):
    base = serve("--allow", "run", "--budget", "trials=3")
    scenario = "scenario: many\nexperiment: certified\nrepetitions: 4\n"
    page = ask(base, "/login", **PAGE)[2]
    given = {"form_token": form_token(page), "idempotency_key": "f1", "then": "/runs", "scenario": scenario}
    status, _, body = ask(base, "/do/submit", "POST", urlencode(given), **FORM)
    assert status == 403 and "trials: 4, 1 more than the 3 allowed" in body
    problem = post(base, "/runs", {"scenario": scenario})
    assert problem[0] == 403 and problem[1]["title"] in body and problem[1]["exit_code"] == 5
    assert json.loads(ask(base, "/api/runs")[2])["runs"] == []


def test_a_run_ends_when_the_budget_is_spent_and_goes_on_when_somebody_approves(lab, serve):
    lab.hold(0)
    scenario = lab.scenario("slow", "held", repetitions=2)
    base = serve("--allow", "run", "--budget", "wall=2s")
    status, submitted = post(base, "/runs", {"file": scenario.name})
    assert status == 200, submitted
    run = submitted["run_id"]
    wait_until(lambda: state(base, run)["state"] == "interrupted", "the budget to be spent", 240)
    ended = state(base, run)
    assert ended["stopped_by"] == "budget" and ended["outcomes"].get("succeeded", 0) == 0
    lab.release()
    status, answer = post(base, f"/runs/{run}/resume", {})
    assert status == 200, answer
    wait_until(lambda: state(base, run)["state"] == "interrupted", "it to end again, as what was used is used", 240)
    assert state(base, run)["done"] < 2
    base = serve("--allow", "approve", "--budget", "wall=2s")
    status, answer = post(base, f"/runs/{run}/resume", {})
    assert status == 200, answer
    wait_until(lambda: state(base, run)["state"] == "finished", "the approved run to finish", 240)
    assert state(base, run)["outcomes"]["succeeded"] == 2
