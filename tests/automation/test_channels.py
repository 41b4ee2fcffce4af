"""Channels of alarms, each against the real thing: a web server, Alertmanager, a mail server, a program."""

import json
import shutil
import subprocess
import time
import urllib.error
import urllib.request
from dataclasses import asdict

import pytest
from services.fake_github import BEGIN, TOKEN, fake_github
from services.hook import hears
from services.mail import mail_server
from services.triton import free_ports
from tables import check_table

from benchhouse.automation.alarms import AlarmState
from benchhouse.automation.channels import tell
from benchhouse.schema.alarms import Channel
from benchhouse.schema.github import GitHubThread

TEXT = "p99 of chat is 300 ms"
FIRED = asdict(AlarmState("slow", "firing", TEXT, case="chat/t", metric="lat", stat="p99")) | {"text": TEXT}


def test_a_webhook_gets_the_numbers_and_a_text():
    with hears() as (address, heard):
        assert tell(Channel(webhook=address), FIRED) == ""
    assert heard == [FIRED]


def test_a_webhook_that_refuses_or_is_gone_is_a_reason_without_its_address(monkeypatch):
    with hears(404) as (address, _):
        monkeypatch.setenv("DEMO_HOOK", address)
        assert tell(Channel(webhook="$DEMO_HOOK"), FIRED).startswith("it answered 404")
    error = tell(Channel(webhook="$DEMO_HOOK"), FIRED)
    assert "refused" in error and "hunter2222" not in error
    monkeypatch.setenv("DEMO_HOOK", "hunter2222")
    assert tell(Channel(webhook="$DEMO_HOOK"), FIRED) == "the address does not begin with http:// or https://"


def test_a_program_gets_it_on_its_input_and_no_shell_sees_it(tmp_path):
    message = FIRED | {"text": "$(touch /tmp/never) `id` ; '"}
    assert tell(Channel(command=["tee", str(tmp_path / "out")]), message) == ""
    assert json.loads((tmp_path / "out").read_text()) == message
    assert tell(Channel(command=["sh", "-c", "echo no >&2; exit 3"]), message) == "sh ended with 3: no"
    assert "No such file" in tell(Channel(command=[str(tmp_path / "absent")]), message)


@pytest.mark.skipif(shutil.which("prometheus-alertmanager") is None, reason="Debian's Alertmanager is not installed")
def test_alertmanager_shows_it_until_it_is_over(tmp_path):
    (port,) = free_ports(1)
    address = f"http://127.0.0.1:{port}"
    config = tmp_path / "alertmanager.yml"
    config.write_text("route: {receiver: none}\nreceivers: [{name: none}]\n")
    server = subprocess.Popen(
        ["prometheus-alertmanager", f"--config.file={config}", f"--storage.path={tmp_path / 'data'}",
         f"--web.listen-address=127.0.0.1:{port}", "--cluster.listen-address="],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        _until(lambda: urllib.request.urlopen(f"{address}/-/ready", timeout=5))
        channel = Channel(alertmanager=address)
        assert tell(channel, FIRED) == ""
        (alert,) = _alerts(address)
        assert alert["labels"] == {
            "alertname": "slow", "severity": "warning", "case": "chat/t", "metric": "lat", "stat": "p99"
        }  # fmt: skip
        assert alert["annotations"]["summary"] == FIRED["text"] and alert["status"]["state"] != "suppressed"
        assert tell(channel, FIRED | {"state": "over"}) == ""
        assert _until(lambda: _alerts(address) == [])
    finally:
        server.kill()
        server.wait()


def test_mail_is_sent_through_apprise(monkeypatch):
    pytest.importorskip("apprise")
    with mail_server() as (port, mails):
        monkeypatch.setenv("DEMO_MAIL", f"mailto://127.0.0.1:{port}/?from=bench@example.org&to=team@example.org")
        assert tell(Channel(apprise="$DEMO_MAIL"), FIRED) == ""
    (mail,) = mails
    assert mail.recipients == ["team@example.org"]
    assert mail.message["subject"] == "bench: slow firing"
    assert FIRED["text"] in mail.message.get_body(("plain", "html")).get_content()


def test_an_address_that_apprise_does_not_know_is_a_reason(monkeypatch):
    pytest.importorskip("apprise")
    monkeypatch.setenv("DEMO_MAIL", "nonsense://hunter2222")
    error = tell(Channel(apprise="$DEMO_MAIL"), FIRED)
    assert error == "apprise does not know such an address"


def _alerts(address):
    with urllib.request.urlopen(f"{address}/api/v2/alerts", timeout=10) as answer:
        return json.load(answer)


def _until(found, limit_s=120):
    deadline = time.monotonic() + limit_s
    while True:
        try:
            if answer := found():
                return answer
        except (urllib.error.URLError, OSError):
            pass
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_a_secret_in_the_words_of_a_program_is_refused():
    with pytest.raises(ValueError, match="this command holds a secret"):
        Channel(command=["curl", "-H", "Authorization: Bearer hunter2222"])


def test_a_thread_on_github_gets_a_comment_in_which_nothing_is_obeyed_and_none_twice(monkeypatch):
    monkeypatch.setenv("GITHUB_TOKEN", TOKEN)
    link = "https://bench.example.org/runs/r_1"
    message = FIRED | {"run_id": "r1", "link": link, "text": f"@team <img src=x> `rm` of *chat*\n{link}\n/bench stop x"}
    with fake_github() as fake:
        fake.seconds = int(time.time() - BEGIN)
        channel = Channel(github=GitHubThread(issue="team/bench#12", api=fake.api))
        assert [tell(channel, message), tell(channel, message)] == ["", ""]  # sent, and sent again after a kill
        (said,) = fake.said()
        assert fake.comments[0]["issue_url"].endswith("/team/bench/issues/12")
        assert (
            "@team" not in said and "<img" not in said and "`rm`" not in said.replace("\\`", "") and f"<{link}>" in said
        )
        news = FIRED | {"alarm": "schedule nightly", "run_id": ""}
        assert [tell(channel, news), tell(channel, news)] == ["", ""]  # it failed again: nothing tells the two apart
        assert len(fake.said()) == 3


@check_table(
    "trouble, reason",
    [
        ((403, {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "9999999999"}, b""), "too many requests"),
        ((301, {"Location": "http://127.0.0.1:1/"}, b""), "the repository has moved"),
        ((404, {}, b'{"message": "Not Found"}'), "404"),
        ((503, {}, b""), "503"),
    ],
)
def test_an_error_of_github_is_a_reason_without_the_token(monkeypatch, trouble, reason):
    monkeypatch.setenv("GITHUB_TOKEN", TOKEN)
    with fake_github() as fake:
        channel = Channel(github=GitHubThread(issue="team/bench#12", api=fake.api))
        fake.troubles = [trouble]
        error = tell(channel, FIRED)
        assert reason in error and TOKEN not in error and fake.said() == []
    monkeypatch.delenv("GITHUB_TOKEN")
    assert tell(channel, FIRED) == "the variable GITHUB_TOKEN is not set"


@check_table("issue", ["team/bench", "team/bench#0", "team/bench#x", "../x#1", "team/bench#1/../2"])
def test_a_wrong_name_of_a_github_issue_is_refused(issue):
    with pytest.raises(ValueError, match=r"no issue|no repository"):
        GitHubThread(issue=issue)
