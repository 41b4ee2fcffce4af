"""The real agent and the real server on one workspace; GitHub is the fake."""

import json
import time

import pytest
from asking import address, ask
from services.fake_github import TOKEN, fake_github
from services.github_payloads import REPOSITORY, SECRET, payload, request

TRUSTED = "people: {ada: {role: run, github: Ada}, rex: {role: read, github: rex}}\n"


@pytest.fixture
def github(lab):
    with fake_github() as fake:
        (lab.workspace / "trusted.yaml").write_text(TRUSTED)
        (lab.workspace / "workspace.yaml").write_text(
            f"github: {{repositories: [team/bench, {REPOSITORY}], webhook_secret: $HOOK_SECRET, api: '{fake.api}', "
            "poll_s: 1}\n"
        )
        lab.variables |= {"HOOK_SECRET": SECRET, "GITHUB_TOKEN": TOKEN, "DB_PASSWORD": "planted-pass-word"}
        yield fake


def eventually(what, seconds=120):
    deadline = time.monotonic() + seconds
    while not (answer := what()):
        assert time.monotonic() < deadline, "too late"
        time.sleep(0.2)
    return answer


def test_a_comment_starts_a_run_and_is_answered(lab, github):
    lab.scenario("once", "nightly", repetitions=2)
    agent = lab.start("agent", "--poll")
    try:
        eventually(lambda: github.requests)
        github.seconds = int(time.time() + 3600 - 1_767_225_600)
        github.write("/bench run nightly --set repetitions=3", login="ada")
        github.write("/bench run ../../../etc/passwd --set a='$(touch /tmp/x);`id`'", login="ada")
        github.write("/bench run nightly", login="mallory")
        eventually(lambda: len(github.said()) == 3)
    finally:
        agent.terminate()
        out = "".join(agent.communicate())
    final = next(body for body in github.said() if "bench trace" in body)
    assert "succeeded" in final and "bench verify" in final
    assert any("there is no scenario file '../../../etc/passwd'" in body for body in github.said())
    (run,) = [order for order in json.loads(lab.bench("github", "list", "--json").stdout) if order["run_id"]]
    assert json.loads(lab.bench("status", run["run_id"], "--json").stdout)["trials"] == 3
    assert "planted-pass-word" not in "".join(github.said()) + out and TOKEN not in out


def test_a_webhook_is_answered_by_an_agent_that_comes_later(lab, github):
    server = lab.start("serve", "--port", "0")
    try:
        comment = {"comment__body": "/bench help", "comment__user__login": "rex"}
        headers, body = request("issue_comment", payload("issue_comment", **comment))
        given = {name.replace("-", "_"): value for name, value in headers.items()}
        assert ask(address(server), "/webhooks/github", "POST", body, **given)[0] == 202
    finally:
        server.kill()
        server.communicate()
    lab.bench("agent", "--once")
    lab.bench("agent", "--once")
    (said,) = github.said()
    assert "/bench run NAME|FILE" in said
