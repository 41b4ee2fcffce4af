"""Which webhooks are taken, and what they order: by payloads of the real GitHub."""

import sqlite3
from contextlib import closing
from datetime import date, timedelta

import pytest
from services.github_payloads import REPOSITORY, SECRET, payload, request
from tables import check_table

from benchhouse.automation.github.deliveries import DeliveryRefused, read_delivery
from benchhouse.automation.github.store import KEPT, opened
from benchhouse.schema.github import GitHubSettings
from benchhouse.schema.layout import WorkspaceFolder

STARTS = {"issue_comment": [], "push": ["s.yaml"], "release": ["s.yaml"], "deployment": ["d.yaml"]}
SETTINGS = GitHubSettings(repositories=[REPOSITORY], events=STARTS)


def read(event, content, settings=SETTINGS, **given):
    return read_delivery(*request(event, content, **given), settings, SECRET)


def test_a_comment_with_a_command_is_an_order():
    delivery = read("issue_comment", payload("issue_comment", comment__body="/bench status"))
    (order,) = delivery.orders
    assert (order.login, order.number, order.text) == ("Codertocat", 1, "/bench status")


@check_table(
    "event, changes, why",
    [
        ("issue_comment", {}, "no /bench in it"),
        ("issue_comment", {"action": "edited", "comment__body": "/bench run s"}, "a comment was edited"),
        ("issue_comment", {"comment__body": "/bench run s", "comment__updated_at": "2020-01-01T00:00:00Z"}, "edited"),
        ("issue_comment", {"comment__body": "/bench " + "x" * 70_000}, "too long"),
        ("issue_comment", {"comment__body": "/bench run s", "comment__user": None}, "its writer is gone"),
        ("push", {}, "the branch was deleted"),
        ("push", {"deleted": False, "ref": "refs/heads/else"}, "not a push to master"),
        ("release", {"action": "deleted"}, "a release was deleted"),
        ("ping", {"repository__full_name": REPOSITORY}, "a ping"),
    ],
)
def test_an_ignored_delivery_gives_its_reason(event, changes, why):
    delivery = read(event, payload(event, **changes))
    assert (delivery.orders, delivery.why) == ((), why)


def test_a_push_to_the_default_branch_starts_its_scenarios():
    content = payload("push", deleted=False, ref="refs/heads/master", after="a" * 40)
    (order,) = read("push", content).orders
    assert (order.text, order.sha, order.number) == ("/bench run 's.yaml'", "a" * 40, 0)
    assert read("deployment", payload("deployment")).orders[0].text == "/bench run 'd.yaml'"


@pytest.mark.parametrize(
    ("event", "changes", "given", "status"),
    [
        ("issue_comment", {}, {"secret": "another"}, 401),
        ("issue_comment", {}, {"delivery": "../../etc/passwd"}, 400),
        ("issue_comment", {"repository__full_name": "mallory/Hello-World"}, {}, 403),
        ("workflow_run", {}, {}, 403),
        ("push", {"ref": None, "deleted": False}, {}, 202),
        ("issue_comment", {"comment": []}, {}, 400),
        ("deployment", {"deployment__created_at": "2026"}, {}, 400),
    ],
)
def test_deliveries_that_are_refused(event, changes, given, status):
    content = payload(event if event != "workflow_run" else "push", **changes)
    if status == 202:
        assert read(event, content, **given).orders == ()
        return
    with pytest.raises(DeliveryRefused) as refused:
        read(event, content, **given)
    assert refused.value.status == status


def test_nothing_is_read_of_an_unsigned_body():
    headers, _ = request("push", payload("push"))
    for body in (b"", b"{" * 100_000, b"\xff"):
        with pytest.raises(DeliveryRefused) as refused:
            read_delivery(headers, body, SETTINGS, SECRET)
        assert refused.value.status == 401
    headers, body = request("push", payload("push"), secret="")
    with pytest.raises(DeliveryRefused):
        read_delivery(headers, body, SETTINGS, "")


def test_a_delivery_is_taken_once_also_under_another_id(tmp_path):
    content = payload("issue_comment", comment__body="/bench help")
    with opened(WorkspaceFolder(tmp_path)) as store:
        first, other_id = read("issue_comment", content), read("issue_comment", content)
        assert store.take([first, first, other_id], 1.0) == [True, False, False]
        other_body = read("issue_comment", content | {"more": 1})  # the same comment, told in another delivery
        assert store.take([other_body], 2.0) == [True]
        assert [kept.order for kept in store.recent(10)] == [*first.orders]


def comment(number, day):
    at = f"{date(2026, 1, 1) + timedelta(days=day)}T12:00:00Z"
    text = f"/bench status {'x' * 1000}"
    content = payload("issue_comment", comment__id=number, comment__body=text,
                      comment__created_at=at, comment__updated_at=at)  # fmt: skip
    return read("issue_comment", content, delivery=f"delivery-{number}")


def test_what_is_old_is_forgotten_and_refused_from_then_on_whatever_our_clock_says(tmp_path):
    with opened(WorkspaceFolder(tmp_path)) as store:
        old, open_one, young = comment(1, 0), comment(2, 1), comment(3, KEPT.days + 30)
        assert store.take([old, open_one, young], 1.0) == [True, True, True]
        for delivery in (old, young):
            store.change(delivery.orders[0].key, state="done")
        assert store.prune() == 3 and store.prune() == 0  # two deliveries, one order; the other is not over
        assert {kept.order.key for kept in store.recent(9)} == {open_one.orders[0].key, young.orders[0].key}
        assert store.take([old, open_one, young], 0.0) == [False, False, False]
        poll = store.poll("team/bench", "2020-01-01T00:00:00Z")
        store.polled(poll, [*old.orders, *comment(4, KEPT.days).orders], 2.0)  # read again from long ago
        assert [kept.order.key for kept in store.recent(9) if kept.time == 2.0] == [comment(4, 90).orders[0].key]


def test_years_of_comments_take_no_more_room_than_the_first_months(tmp_path):
    path = WorkspaceFolder(tmp_path).github
    sizes, rows = [], []
    with opened(WorkspaceFolder(tmp_path)) as store:
        for month in range(14):
            deliveries = [comment(100 * month + number, 30 * month + number) for number in range(20)]
            assert all(store.take(deliveries, month))
            for delivery in deliveries:
                store.change(delivery.orders[0].key, state="done", answer="x" * 500)
            store.prune()
            rows.append(len(store.recent(10_000)))
            with closing(sqlite3.connect(path)) as other:
                sizes.append(other.execute("PRAGMA page_count").fetchone()[0])
    assert max(rows) <= KEPT.days and sizes[-1] <= sizes[6] * 1.2
