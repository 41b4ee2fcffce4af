"""What people asked to hear of: one message for each cause, after quiet hours all of it as one."""

import json
from contextlib import ExitStack
from datetime import UTC, datetime

import pytest
from services.hook import hears
from services.mail import mail_server
from tables import check_table

from benchhouse.automation.alarms import read_alarms, recorded
from benchhouse.automation.channels import is_quiet
from benchhouse.automation.notices import NoticeEvent, deliver, notify
from benchhouse.evidence import journals
from benchhouse.schema.alarms import Notice
from benchhouse.schema.errors import BenchError
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
    hours = ("22:00-07:00", "Europe/Berlin")
    assert is_quiet(*hours, night) and not is_quiet(*hours, morning) and is_quiet(*hours, night.replace(hour=4))
    with hears() as (address, heard):
        monkeypatch.setenv("OPS_HOOK", address)
        alarms(tmp_path, "$OPS_HOOK", "00:00-23:59")
        for number in range(3):
            event = NoticeEvent("failed", f"run {number}", f"run {number} failed", "x", f"R{number}")
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
        notify(workspace, NoticeEvent("approval", "plan 12ab", "x: plan 12ab needs approval", "x"), said.append)
    assert said and said[0].startswith("ops could not be notified: it answered 500")
    assert "hunter2222" not in said[0] + workspace.notice_journal.read_text()
    with hears() as (address, heard):
        monkeypatch.setenv("OPS_HOOK", address)
        late = datetime.fromisoformat(recorded(workspace)[0].time).replace(year=2099)
        assert deliver(workspace, read_alarms(workspace), said.append, late) == [] and heard == []
        deliver(workspace, read_alarms(workspace), said.append)
    assert [item["text"] for item in heard] == ["x: plan 12ab needs approval"]


def test_a_plan_that_needs_approval_is_reported_by_mail(workspace, tmp_path, monkeypatch):
    pytest.importorskip("apprise")

    from benchhouse.api.workspace import Workspace
    from benchhouse.schema.errors import BenchError
    from benchhouse.schema.resources import Budget

    with mail_server() as (port, mails):
        monkeypatch.setenv("OPS_MAIL", f"mailto://127.0.0.1:{port}/?from=bench@example.org&to=ada@example.org")
        (tmp_path / "alarms.yaml").write_text(
            "notify: [{on: [approval], tell: [ada]}]\nchannels: {ada: {apprise: $OPS_MAIL}}\n"
        )
        (tmp_path / "a.yaml").write_text(SCENARIO.replace("COMMAND", "true") + "repetitions: 5\n")
        for _ in range(2):
            with pytest.raises(BenchError, match="needs approval"):
                Workspace(tmp_path).submit(tmp_path / "a.yaml", budget=Budget(trials=2))
    (mail,) = mails
    assert mail.message["subject"].startswith("bench: plan ")
    assert "nightly-echo: plan" in mail.message.get_body(("plain", "html")).get_content()


def test_a_channel_that_is_not_there_is_told_with_its_place(bench, tmp_path):
    (tmp_path / "alarms.yaml").write_text(
        "notify: [{on: [failed], tell: [oncal]}]\nchannels: {oncall: {command: [cat]}}\n"
    )
    done = bench("alarms", "check")
    assert done.code == 2 and "alarms.yaml:1:" in done.err and "did you mean 'oncall'" in done.err


PEOPLE = """
notify: [{on: [failed], tell: [ada, joe, ops]}]
channels:
  ada-mail: {webhook: $HOOK_ADA}
  ada-phone: {webhook: $HOOK_PHONE}
  joe-mail: {webhook: $HOOK_JOE}
  ops: {webhook: $HOOK_OPS}
people:
  ada: {channels: [ada-mail, ada-phone], quiet: "22:00-07:00", timezone: Europe/Berlin}
  joe: {channels: [joe-mail], quiet: "22:00-07:00", timezone: America/New_York}
"""


def test_each_person_is_quiet_by_their_own_clock_and_hears_each_cause_once(workspace, tmp_path, monkeypatch):
    """19:00 in Berlin, 13:00 in New York; then 23:00 and 17:00; then 08:00 and 02:00; then 14:00 and 08:00."""
    evening, night, morning, noon = (datetime(2026, 7, day, hour, tzinfo=UTC) for day, hour in
                                     ((1, 17), (1, 21), (2, 6), (2, 12)))  # fmt: skip
    (tmp_path / "alarms.yaml").write_text(PEOPLE)
    file = read_alarms(workspace)
    assert file.reach(["ada", "ada-mail", "ops", "ada"]) == ["ada-mail", "ada-phone", "ops"]
    lists = {}
    with ExitStack() as hooks:
        for name in ("ADA", "PHONE", "JOE", "OPS"):
            address, lists[name] = hooks.enter_context(hears())
            monkeypatch.setenv(f"HOOK_{name}", address)

        def heard(moment, *runs):
            lines = [
                Notice(time=moment.isoformat(), action="queued", alarm=f"run {run}", channel=channel, sentence=run)
                for run in runs for channel in file.reach(["ada", "joe", "ops"])
            ]  # fmt: skip
            journals.append(workspace.notice_journal, lines, "")
            before = {name: len(items) for name, items in lists.items()}
            deliver(workspace, file, moment=moment)
            return {name: [item["text"] for item in items[before[name] :]] for name, items in lists.items()}

        assert heard(evening, "a") == {"ADA": ["a"], "PHONE": ["a"], "JOE": ["a"], "OPS": ["a"]}
        assert heard(night, "b") == {"ADA": [], "PHONE": [], "JOE": ["b"], "OPS": ["b"]}
        two = "2 messages:\n- b\n- c"
        assert heard(morning, "c") == {"ADA": [two], "PHONE": [two], "JOE": [], "OPS": ["c"]}
        assert heard(noon) == {"ADA": [], "PHONE": [], "JOE": ["c"], "OPS": []}


@check_table(
    "people, says",
    [
        ("{ada: {channels: [nobody]}}", "no channel is called 'nobody'"),
        ("{ops: {channels: [ops]}}", "a channel is called ops, too"),
        ("{ada: {channels: [ops]}, joe: {channels: [ops]}}", "the channel ops is already that of ada"),
        ("{ada: {channels: [late], quiet: '22:00-07:00'}}", "both ada and the channel late have quiet hours"),
        ("{ada: {channels: [ops], timezone: Berlin}}", "Berlin"),
        ("{ada: {channels: []}}", "channels"),
    ],
)
def test_a_mistake_in_people_is_reported_with_its_line(workspace, tmp_path, people, says):
    channels = "channels:\n  ops: {command: [cat]}\n  late: {command: [cat], quiet: '01:00-02:00'}\n"
    (tmp_path / "alarms.yaml").write_text(f"{channels}people: {people}\n")
    with pytest.raises(BenchError) as error:
        read_alarms(workspace)
    assert says in str(error.value) and "alarms.yaml:4" in str(error.value)
