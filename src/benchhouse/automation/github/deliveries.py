"""A webhook request: its signature, its accepted parts, and its orders. Pure."""

import hashlib
import hmac
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from benchhouse.schema.github import GitHubSettings
from benchhouse.schema.json_text import read_json

WORD = "/bench"
MOST_TEXT = 1 << 16  # characters of a comment; GitHub accepts no longer one
_MOMENT = re.compile(r"\d{4}-[01]\d-[0-3]\dT[0-2]\d:[0-5]\d:[0-5]\dZ", re.ASCII)
_ID = re.compile(r"[A-Za-z0-9-]{8,64}")


class DeliveryRefused(Exception):  # noqa: N818 - an answer
    """A rejected request; `status` is the HTTP status of the answer."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


@dataclass(frozen=True)
class CommandOrder:
    """A task that is done once per `key`."""

    key: str
    """The identity, which is the same whether a comment came by a webhook or was polled."""
    repository: str
    login: str
    text: str
    """The comment, or for another event its equivalent command."""
    number: int = 0
    """The number of the issue or pull request to answer in; 0 if there is none."""
    sha: str = ""
    """The commit that gets a status if there is no thread."""
    at: str = ""
    """The time of the comment or event in GitHub's format: 2026-01-31T23:59:59Z."""


@dataclass(frozen=True)
class Delivery:
    """An accepted webhook with a valid signature."""

    id: str
    digest: str
    """The digest of the body. The id is in an unsigned header: the same body under another id is also a replay."""
    event: str
    repository: str
    orders: tuple[CommandOrder, ...]
    why: str = ""
    """The reason why it has no order."""


def read_delivery(headers: Mapping[str, str], body: bytes, settings: GitHubSettings, secret: str) -> Delivery:
    """Return the delivery of a request. Raise DeliveryRefused if it is rejected. The body is parsed only after its
    signature is verified."""
    if not is_signed(headers.get("x-hub-signature-256", ""), body, secret):
        raise DeliveryRefused(401, "the signature is not of this webhook's secret")
    event, delivery = headers.get("x-github-event", ""), headers.get("x-github-delivery", "")
    if not _ID.fullmatch(delivery):
        raise DeliveryRefused(400, "X-GitHub-Delivery is missing")
    try:
        payload = read_json(body)
        repository = str(payload["repository"]["full_name"])
        if not settings.takes(repository):
            raise DeliveryRefused(403, f"{repository[:140]} is not among the repositories of workspace.yaml")
        digest = hashlib.sha256(body).hexdigest()
        if event == "ping":
            return Delivery(delivery, digest, event, repository, (), "a ping")
        if event not in settings.events:
            raise DeliveryRefused(403, f"the event {event[:40]!r} is not in workspace.yaml: github: events")
        orders, why = _orders(event, delivery, payload, settings)
        if not all(_MOMENT.fullmatch(order.at) for order in orders):
            raise DeliveryRefused(400, "the event has no time as GitHub writes it")
    except (ValueError, KeyError, TypeError) as error:
        raise DeliveryRefused(400, "the body is not a GitHub event in JSON") from error
    return Delivery(delivery, digest, event, repository, orders, why)


def is_signed(signature: str, body: bytes, secret: str) -> bool:
    """Return whether the signature is valid, in constant time. An empty secret signs nothing."""
    expected = f"sha256={hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()}"
    return hmac.compare_digest(expected.encode(), signature.encode()) and bool(secret)


def comment_order(repository: str, comment: Mapping[str, Any], number: int) -> tuple[CommandOrder | None, str]:
    """Return the order of a new comment, or None and the reason; an edited comment has no order."""
    text = str(comment["body"] or "")
    if WORD not in text or len(text) > MOST_TEXT:
        return None, f"no {WORD} in it" if WORD not in text else "too long"
    if comment["created_at"] != comment["updated_at"]:
        return None, "edited"
    if comment["user"] is None:
        return None, "its writer is gone"
    key = f"{repository.lower()}#{number} comment {int(comment['id'])}"
    return CommandOrder(key, repository, str(comment["user"]["login"]), text, number, at=str(comment["created_at"])), ""


def _orders(
    event: str, delivery: str, payload: Mapping[str, Any], settings: GitHubSettings
) -> tuple[tuple[CommandOrder, ...], str]:
    repository = payload["repository"]["full_name"]
    if event == "issue_comment":
        if payload["action"] != "created":
            return (), f"a comment was {str(payload['action'])[:20]}"
        order, why = comment_order(repository, payload["comment"], int(payload["issue"]["number"]))
        return ((order,) if order else ()), why
    sha, why = _commit(event, payload)
    if why:
        return (), why
    at = _happened(event, payload)
    login = str(payload["sender"]["login"])
    files = settings.events[event]  # type: ignore[index]  # it is one of its keys
    return tuple(
        CommandOrder(
            f"{repository.lower()} {delivery} {file}", repository, login, f"{WORD} run '{file}'", sha=sha, at=at
        )
        for file in files
    ), ""


def _commit(event: str, payload: Mapping[str, Any]) -> tuple[str, str]:
    """Return the commit of an event, or the reason why it starts nothing."""
    if event == "push":
        branch = payload["repository"]["default_branch"]
        if payload["deleted"]:
            return "", "the branch was deleted"
        if payload["ref"] != f"refs/heads/{branch}":
            return "", f"not a push to {branch}"
        return str(payload["after"]), ""
    if event == "release":
        return "", "" if payload["action"] == "published" else f"a release was {str(payload['action'])[:20]}"
    return str(payload["deployment"]["sha"]), ""


def _happened(event: str, payload: Mapping[str, Any]) -> str:
    if event == "push":
        return datetime.fromtimestamp(int(payload["repository"]["pushed_at"]), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return str(payload["release"]["published_at"] if event == "release" else payload["deployment"]["created_at"])
