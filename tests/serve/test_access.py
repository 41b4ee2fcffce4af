"""Who may ask: from this machine, with a token, in a session, through a proxy; and what is refused, without a hint."""

import json
import socket
import stat
from urllib.parse import urlencode, urlsplit

from asking import FORM, PAGE, THROUGH, ask, bearer, form_token, token


def test_a_token_is_shown_once_and_kept_as_a_digest_for_its_owner_alone(lab):
    secret = token(lab, "ada", "--scope", "run")
    assert secret.startswith("bht_") and len(secret) >= 47
    path = lab.workspace / ".bench" / "tokens.jsonl"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600 and secret not in path.read_text()
    (known,) = json.loads(lab.bench("token", "list", "--json").stdout)
    assert (known["name"], known["scope"], known["state"]) == ("ada", "run", "good") and secret not in str(known)
    lab.bench("token", "revoke", "ada")
    assert json.loads(lab.bench("token", "list", "--json").stdout)[0]["state"] == "revoked"
    assert "no good token" in lab.bench("token", "revoke", "ada", code=2).stderr


def test_a_name_that_was_pointed_at_this_machine_is_refused(serve):
    base = serve("--name", "bench.example.org")
    for host in ("evil.example.com", "evil.example.com:8642", "127.0.0.1.evil.com", "", "localhost.evil.com"):
        assert ask(base, host_=host)[0] == 421, host
    for host in ("localhost", "127.0.0.1:1", "[::1]:80", "bench.example.org", "BENCH.example.org:443", "a.localhost"):
        assert ask(base, host_=host)[0] == 200, host


def test_other_machines_are_served_only_if_their_users_can_be_known(lab, serve, bench):
    for options in (("--host", "0.0.0.0"), ("--login",)):
        refused = bench("serve", "--port", "0", *options, cwd=lab.workspace)
        assert refused.code == 2 and "bench token make" in refused.err, options
    secret = token(lab, "ada")
    base = serve("--host", "0.0.0.0").replace("0.0.0.0", "127.0.0.1")
    assert ask(base)[0] == 401
    assert ask(base, **bearer(secret))[0] == 200


def test_wrong_expired_and_revoked_tokens_get_the_same_answer_and_the_log_says_which(lab, serve):
    good, old, gone = token(lab, "good"), token(lab, "old", "--expires", "1ms"), token(lab, "gone")
    base = serve("--login")
    assert ask(base, **bearer(gone))[0] == 200
    lab.bench("token", "revoke", "gone")
    answers = {ask(base, **bearer(secret))[2] for secret in (old, gone, good[:-1], "bht_", "x" * 5000, "é")}
    answers |= {ask(base, Authorization="Basic YTpi")[2], ask(base)[2]}
    assert len(answers) == 1 and json.loads(answers.pop())["status"] == 401
    assert ask(base, **bearer(good))[0] == 200
    serve.process.terminate()
    log = serve.process.stderr.read()
    assert "expired token" in log and "revoked token" in log and "a token that is none" in log
    assert not any(secret in log for secret in (good, old, gone))


def test_a_browser_logs_in_with_a_token_and_out_again(lab, serve):
    secret = token(lab, "ada", "--scope", "run")
    base = serve("--login")
    status, headers, _ = ask(base, "/runs?x=1", **PAGE)
    assert status == 303 and headers["location"] == "/login?next=/runs%3Fx%3D1"
    page = ask(base, headers["location"], **PAGE)[2]
    given = {"form_token": form_token(page), "next": "/runs", "token": secret}
    assert ask(base, "/login", "POST", urlencode(given | {"token": "bht_no"}), **FORM)[0] == 401
    assert ask(base, "/login", "POST", urlencode(given | {"form_token": "no"}), **FORM)[0] == 403
    status, headers, _ = ask(base, "/login", "POST", urlencode(given), **FORM)
    assert (status, headers["location"]) == (303, "/runs")
    cookie = headers["set-cookie"]
    assert "HttpOnly" in cookie and "SameSite=strict" in cookie and "Secure" not in cookie
    session = {"Cookie": cookie.partition(";")[0]}
    page = ask(base, "/runs", **PAGE, **session)
    assert page[0] == 200 and secret not in page[2]
    out = urlencode({"form_token": form_token(ask(base, "/login", **PAGE, **session)[2])})
    assert ask(base, "/logout", "POST", out, **FORM, **session)[0] == 303
    assert ask(base, "/api/baselines", **session)[0] == 401


def test_a_login_leads_nowhere_else(serve):
    base = serve()
    for there in ("https://evil.example", "//evil.example", "/\\evil.example", "javascript:alert(1)"):
        assert f'value="{there}"' not in ask(base, f"/login?{urlencode({'next': there})}", **PAGE)[2], there


PROXY = ("--trusted-proxy", "127.0.0.1", "--name", "bench.example.org", "--grant", "ada=admin", "--grant", "@perf=run")


def test_a_trusted_proxy_says_who_asks_and_where_it_shows_the_server(serve):
    base = serve(*PROXY)
    assert ask(base)[0] == 401  # nobody is local behind a proxy
    behind = {"X_Forwarded_User": "bob", "X_Forwarded_Host": "bench.example.org", "X_Forwarded_Proto": "https"}
    page = ask(base, "/login", **PAGE, **behind, X_Forwarded_Prefix="/perf")[2]
    assert "You are bob and may read" in page and 'href="/perf/assets/serve.css"' in page
    assert "may run" in ask(base, "/login", **PAGE, **behind, X_Forwarded_Groups="x, perf")[2]
    assert "ada and may admin" in ask(base, "/login", **PAGE, **behind | {"X_Forwarded_User": "ada"})[2]
    for group_or_everybody in ("@perf", "*"):
        assert ask(base, **behind | {"X_Forwarded_User": group_or_everybody})[0] == 401
    assert ask(base, **behind | {"X_Forwarded_Host": "evil.example"})[0] == 421
    for prefix in ("//evil.example", "/a/../b", '/"onload="x', "/a b", "https://evil"):
        assert ask(base, "/login", **behind, X_Forwarded_Prefix=prefix)[0] == 400, prefix
    with socket.create_connection((urlsplit(base).hostname, urlsplit(base).port)) as twice:
        head = "GET /api/baselines HTTP/1.1\r\nHost: localhost\r\n"
        twice.sendall(f"{head}X-Forwarded-User: ada\r\nX-Forwarded-User: eve\r\nConnection: close\r\n\r\n".encode())
        assert b" 401 " in twice.recv(100)


def test_what_anybody_else_says_of_itself_is_not_believed(lab, serve):
    secret = token(lab, "bob")
    forged = {"X_Forwarded_User": "ada", "X_Forwarded_Prefix": "/evil", "X_Forwarded_Host": "evil.example"}
    base = serve("--trusted-proxy", "10.9.8.7", "--grant", "ada=admin")
    assert ask(base, **forged)[0] == 401
    page = ask(base, "/login", **PAGE, **forged, **bearer(secret))[2]
    assert "You are bob and may read" in page and "/evil" not in page
    assert ask(serve(), **forged)[0] == 403  # a proxy that nobody told of


def test_no_other_site_can_write(lab, serve):
    secret = token(lab, "ada", "--scope", "run")
    base = serve("--allow", "run")
    json_ = {"Content_Type": "application/json"}
    path, here = "/api/nothing", f"http://{urlsplit(base).netloc}"
    assert ask(base, path, "POST", "{}", **json_, Origin=here)[0] in THROUGH
    assert ask(base, path, "POST", "{}", **json_)[0] in THROUGH  # a program
    for foreign in ({"Origin": "https://evil.example"}, {"Origin": "null"}, {"Sec_Fetch_Site": "cross-site"},
                    {"Sec_Fetch_Site": "same-site"}, {"Origin": "http://localhost:1"}):  # fmt: skip
        assert ask(base, path, "POST", "{}", **json_, **foreign)[0] == 403, foreign
    assert ask(base, path, "POST", "{}", Content_Type="text/plain")[0] == 415
    assert ask(base, path, "POST")[0] == 415
    assert ask(base, path, "POST", "a=1", **FORM)[0] == 403  # no token in the form
    assert ask(base, path, "POST", "{}", Origin="https://evil.example", **bearer(secret))[0] in THROUGH


def test_every_answer_has_the_headers_that_keep_a_browser_safe(serve):
    base = serve()
    for path in ("/api/baselines", "/runs", "/nothing", "/login", "/assets/report.css"):
        headers = ask(base, path)[1]
        assert "default-src 'none'" in headers["content-security-policy"]
        assert "unsafe" not in headers["content-security-policy"] and "server" not in headers
        assert (headers["x-content-type-options"], headers["referrer-policy"]) == ("nosniff", "same-origin")


def test_too_much_is_refused(serve):
    base = serve("--max-body", "1M", "--rate", "5")
    json_ = {"Content_Type": "application/json"}
    assert ask(base, "/api/nothing", "POST", b"x" * (1 << 20), **json_)[0] in THROUGH
    status, _, body = ask(base, "/api/nothing", "POST", b"x" * ((1 << 20) + 1), **json_)
    assert status == 413 and "1048576 bytes" in body
    assert ask(base, "/api/nothing", "POST", iter([b"x" * (1 << 19)] * 3), **json_)[0] == 413
    statuses = [ask(base)[0] for _ in range(60)]
    assert statuses[0] == 200 and 429 in statuses
