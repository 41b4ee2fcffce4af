"""Webhooks through the real server: signed, once, by whoever sends them."""

import json

from asking import ask
from services.github_payloads import REPOSITORY, SECRET, WORKSPACE, payload, request


def send(base, headers, body, path="/webhooks/github"):
    status, _, text = ask(
        base, path, "POST", body, **{name.replace("-", "_"): value for name, value in headers.items()}
    )
    return status, json.loads(text)


def test_a_signed_webhook_is_kept_and_taken_once(lab, serve):
    (lab.workspace / "workspace.yaml").write_text(WORKSPACE)
    lab.variables["HOOK_SECRET"] = SECRET
    base = serve("--login") if lab.bench("token", "make", "a").stdout else ""
    headers, body = request("issue_comment", payload("issue_comment", comment__body="/bench help"))
    proxied = headers | {"x-forwarded-for": "140.82.112.1"}  # no login, and a proxy that nobody named: it is signed
    assert send(base, proxied, body) == (202, {"state": "queued"})
    assert send(base, headers, body)[0] == 409
    assert send(base, headers | {"x-github-delivery": "another-delivery"}, body)[0] == 409
    assert send(base, headers, body + b" ")[0] == 401
    assert send(base, headers, b"x" * (3 << 20))[0] == 413
    ping = request("ping", payload("ping", repository__full_name=REPOSITORY))
    assert send(base, *ping) == (202, {"state": "ignored", "why": "a ping"})
    (order,) = json.loads(lab.bench("github", "list", "--json").stdout)
    assert (order["login"], order["text"], order["state"]) == ("Codertocat", "/bench help", "asked")
    assert "Codertocat/Hello-World#1" in lab.bench("github", "list").stdout


def test_without_settings_or_secret_nothing_is_taken(lab, serve):
    headers, body = request("ping", payload("ping"))
    assert send(serve(), headers, body)[0] == 404
    (lab.workspace / "workspace.yaml").write_text(WORKSPACE)
    status, problem = send(serve(), headers, body)
    assert status == 503 and "HOOK_SECRET is not set" in problem["title"]
