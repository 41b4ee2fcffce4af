"""Which webhooks are taken, and what they order: by payloads of the real GitHub."""

import pytest
from services.github_payloads import REPOSITORY, SECRET, payload, request

from benchhouse.automation.github.deliveries import Refused, read_delivery
from benchhouse.automation.github.store import opened
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


@pytest.mark.parametrize(
    ("event", "changes", "why"),
    [
        ("issue_comment", {}, "no /bench in it"),
        ("issue_comment", {"action": "edited", "comment__body": "/bench run s"}, "a comment was edited"),
        ("issue_comment", {"comment__body": "/bench run s", "comment__updated_at": "2020-01-01T00:00:00Z"}, "edited"),
        ("issue_comment", {"comment__body": "/bench " + "x" * 70_000}, "too long"),
        ("push", {}, "the branch was deleted"),
        ("push", {"deleted": False, "ref": "refs/heads/else"}, "not a push to master"),
        ("release", {"action": "deleted"}, "a release was deleted"),
        ("ping", {"repository__full_name": REPOSITORY}, "a ping"),
    ],
)
def test_what_orders_nothing_says_why(event, changes, why):
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
    ],
)
def test_what_is_not_taken(event, changes, given, status):
    content = payload(event if event != "workflow_run" else "push", **changes)
    if status == 202:
        assert read(event, content, **given).orders == ()
        return
    with pytest.raises(Refused) as refused:
        read(event, content, **given)
    assert refused.value.status == status


def test_nothing_is_read_of_an_unsigned_body():
    headers, _ = request("push", payload("push"))
    for body in (b"", b"{" * 100_000, b"\xff"):
        with pytest.raises(Refused) as refused:
            read_delivery(headers, body, SETTINGS, SECRET)
        assert refused.value.status == 401
    headers, body = request("push", payload("push"), secret="")
    with pytest.raises(Refused):
        read_delivery(headers, body, SETTINGS, "")


def test_a_delivery_is_taken_once_also_under_another_id(tmp_path):
    content = payload("issue_comment", comment__body="/bench help")
    with opened(WorkspaceFolder(tmp_path)) as store:
        first, other_id = read("issue_comment", content), read("issue_comment", content)
        assert store.take([first, first, other_id], 1.0) == [True, False, False]
        other_body = read("issue_comment", content | {"more": 1})  # the same comment, told in another delivery
        assert store.take([other_body], 2.0) == [True]
        assert [kept.order for kept in store.recent(10)] == [*first.orders]
