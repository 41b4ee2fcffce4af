"""What people asked to hear of: one message for each cause, after quiet hours all of it as one."""

import json
from datetime import UTC, datetime
from email import message_from_bytes, policy

import pytest
from services.hook import hears
from services.triton import free_ports

from benchhouse.automation.alarms import read_alarms, recorded
from benchhouse.automation.channels import is_quiet
from benchhouse.automation.notices import Event, deliver, notify
from benchhouse.schema.alarms import Channel
from benchhouse.schema.layout import WorkspaceFolder

SCENARIO = (
    "scenario: nightly-echo\nexperiment: command\ntarget: {name: t, shell: 'COMMAND'}\nworkload: {executions: 1}\n"
)


@pytest.fixture
def workspace(tmp_path):
    return WorkspaceFolder(tmp_path)


def alarms(root, hook, quiet=""):
    (root / "alarms.yaml").write_text(
        "address: https://bench.example.org/\n"
        "notify:\n"
        "  - {on: [finished], scenario: nightly-*, tell: [ops]}\n"
        "  - {on: [failed, approval], tell: [ops]}\n"
        f"channels:\n  ops: {{webhook: {hook}, quiet: '{quiet}', timezone: Europe/Berlin}}\n"
    )


def test_a_run_that_ended_is_told_once_with_the_address_of_its_page(bench, tmp_path, monkeypatch):
    with hears() as (address, heard):
        monkeypatch.setenv("OPS_HOOK", address)
        alarms(tmp_path, "$OPS_HOOK")
        (tmp_path / "a.yaml").write_text(SCENARIO.replace("COMMAND", "true"))
        (tmp_path / "b.yaml").write_text(SCENARIO.replace("COMMAND", "false").replace("nightly-echo", "weekly"))
        (tmp_path / "c.yaml").write_text(SCENARIO.replace("COMMAND", "true").replace("nightly-echo", "other"))
        assert (
            bench("run", "a.yaml").code == 0 and bench("run", "b.yaml").code == 1 and bench("run", "c.yaml").code == 0
        )
        bench("collect", "@last")
        bench("alarms", "check")
    run = json.loads(bench("show", "nightly-echo", "--json").out)["run_id"]
    first, second = heard
    link = f"https://bench.example.org/runs/{run}"
    assert first["text"] == f"run {run} of nightly-echo is finished: 1 succeeded\n{link}" and first["link"] == link
    assert "of weekly is finished: 1 failed" in second["text"] and second["state"] == "news"


def test_quiet_hours_end_with_one_message_of_all_that_waited(workspace, tmp_path, monkeypatch):
    night, morning = datetime(2026, 7, 1, 23, 0, tzinfo=UTC), datetime(2026, 7, 2, 6, 0, tzinfo=UTC)
    channel = Channel(webhook="http://127.0.0.1/", quiet="22:00-07:00", timezone="Europe/Berlin")
    assert is_quiet(channel, night) and not is_quiet(channel, morning) and is_quiet(channel, night.replace(hour=4))
    with hears() as (address, heard):
        monkeypatch.setenv("OPS_HOOK", address)
        alarms(tmp_path, "$OPS_HOOK", "00:00-23:59")
        for number in range(3):
            event = Event("failed", f"run {number}", f"run {number} failed", "x", f"R{number}")
            notify(workspace, event, print)
            notify(workspace, event, print)
        assert heard == []
        alarms(tmp_path, "$OPS_HOOK")
        assert len(deliver(workspace, read_alarms(workspace))) == 3
        assert deliver(workspace, read_alarms(workspace)) == []
    (message,) = heard
    assert message["alarm"] == "3 messages" and message["text"].count("https://bench.example.org/runs/R") == 3
    assert [item["run_id"] for item in message["messages"]] == ["R0", "R1", "R2"]


def test_what_could_not_be_delivered_is_tried_again_and_given_up_after_a_week(workspace, tmp_path, monkeypatch):
    said = []
    with hears(500) as (address, _):
        monkeypatch.setenv("OPS_HOOK", address)
        alarms(tmp_path, "$OPS_HOOK")
        notify(workspace, Event("approval", "plan 12ab", "x: plan 12ab needs approval", "x"), said.append)
    assert said and said[0].startswith("ops could not be notified: it answered 500")
    assert "hunter2222" not in said[0] + workspace.notice_journal.read_text()
    with hears() as (address, heard):
        monkeypatch.setenv("OPS_HOOK", address)
        late = datetime.fromisoformat(recorded(workspace)[0].time).replace(year=2099)
        assert deliver(workspace, read_alarms(workspace), said.append, late) == [] and heard == []
        deliver(workspace, read_alarms(workspace), said.append)
    assert [item["text"] for item in heard] == ["x: plan 12ab needs approval"]


def test_a_plan_that_needs_approval_is_told_by_mail(workspace, tmp_path, monkeypatch):
    pytest.importorskip("apprise")
    from aiosmtpd.controller import Controller

    from benchhouse.api.workspace import Workspace
    from benchhouse.schema.errors import BenchError
    from benchhouse.schema.resources import Budget

    mails = []

    class Keeps:
        async def handle_DATA(self, server, session, envelope):  # noqa: N802 - named by the library
            mails.append(envelope)
            return "250 OK"

    (port,) = free_ports(1)
    controller = Controller(Keeps(), hostname="127.0.0.1", port=port)
    controller.start()
    try:
        monkeypatch.setenv("OPS_MAIL", f"mailto://127.0.0.1:{port}/?from=bench@example.org&to=ada@example.org")
        (tmp_path / "alarms.yaml").write_text(
            "notify: [{on: [approval], tell: [ada]}]\nchannels: {ada: {apprise: $OPS_MAIL}}\n"
        )
        (tmp_path / "a.yaml").write_text(SCENARIO.replace("COMMAND", "true") + "repetitions: 5\n")
        for _ in range(2):
            with pytest.raises(BenchError, match="needs approval"):
                Workspace(tmp_path).submit(tmp_path / "a.yaml", budget=Budget(trials=2))
    finally:
        controller.stop()
    (envelope,) = mails
    mail = message_from_bytes(envelope.content, policy=policy.default)
    assert mail["subject"].startswith("bench: plan ")
    assert "nightly-echo: plan" in mail.get_body(("plain", "html")).get_content()


def test_a_channel_that_is_not_there_is_told_with_its_place(bench, tmp_path):
    (tmp_path / "alarms.yaml").write_text(
        "notify: [{on: [failed], tell: [oncal]}]\nchannels: {oncall: {command: [cat]}}\n"
    )
    done = bench("alarms", "check")
    assert done.code == 2 and "alarms.yaml:1:" in done.err and "did you mean 'oncall'" in done.err
