"""Channels: a program, a webhook, Alertmanager, a GitHub thread, or any service of apprise; and their quiet hours."""

import hashlib
import json
import os
import subprocess
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from benchhouse.automation.github.client import GitHub
from benchhouse.http.client import HttpClient, NoAnswer
from benchhouse.report.markdown_text import plain
from benchhouse.schema.alarms import Channel
from benchhouse.schema.errors import BenchError
from benchhouse.schema.github import GitHubThread
from benchhouse.schema.schedules import within
from benchhouse.schema.secrets import blanker, reference, split_userinfo

Message = Mapping[str, Any]
_PATIENCE_S = 15.0
_LONGEST = 400
_MOST_MARKDOWN = 60_000  # GitHub accepts 65,536 characters
_LOOK_BACK = timedelta(days=8)  # a message waits for a week at most
_NEWS = timedelta(hours=1)  # nothing ends news, so this does
_HELD = timedelta(days=30)  # Alertmanager ends an alert after five minutes unless it has an end


class ChannelFailed(Exception):  # noqa: N818 - a reason
    """The reason why a channel could not be notified."""


def tell(channel: Channel, message: Message) -> str:
    """Send a message and return the error; empty if it was delivered. The error never contains the secrets of an
    address."""
    address = ""
    try:
        if channel.command is not None:
            _run(channel.command, message)
            return ""
        if channel.github is not None:
            address = _address(channel.github.token)
            _comment(channel.github, address, message)
            return ""
        address = _address(channel.webhook or channel.alertmanager or channel.apprise or "")
        if channel.webhook is not None:
            _post(address, message)
        elif channel.alertmanager is not None:
            _post(f"{address.rstrip('/')}/api/v2/alerts", [_alert(each) for each in message.get("messages", [message])])
        else:
            _notify(address, message)
    except (ChannelFailed, OSError, ValueError) as error:
        secrets = [address, address.partition("://")[2], *split_userinfo(address)[1].split(":", 1)]
        return blanker([text for text in secrets if text])(str(error))[:_LONGEST]
    return ""


def _address(text: str) -> str:
    name = reference(text)
    if name is None:
        return text
    value = os.environ.get(name, "").strip()
    if not value:
        raise ChannelFailed(f"the variable {name} is not set")
    return value


def _post(address: str, body: Any) -> None:
    if not address.startswith(("http://", "https://")):
        raise ChannelFailed("the address does not begin with http:// or https://")
    try:
        answer = HttpClient(_PATIENCE_S, proxy=True, redirects=True).post_json(address, body)
    except NoAnswer as error:
        raise ChannelFailed(error.reason) from error
    if not answer.ok:
        raise ChannelFailed(f"it answered {answer.status} {answer.reason}: {answer.text(200)}")


def _alert(message: Message) -> dict[str, Any]:
    """Return an alert. Its labels are its identity, so they only contain what is constant while it fires."""
    labels = {"alertname": message["alarm"], "severity": "warning"}
    labels |= {name: str(message[name]) for name in ("case", "metric", "stat") if message.get(name)}
    held = {"over": timedelta(0), "news": _NEWS}
    end = datetime.now(UTC) + held.get(message["state"], _HELD)
    annotations = {"summary": message["text"], "run": str(message["run_id"])}
    alert = {"labels": labels, "annotations": annotations, "endsAt": end.isoformat()}
    return alert | ({"generatorURL": message["link"]} if message.get("link") else {})


def _run(argv: list[str], message: Message) -> None:
    line = json.dumps(message).encode() + b"\n"
    try:
        done = subprocess.run(argv, input=line, capture_output=True, timeout=_PATIENCE_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise ChannelFailed(f"{argv[0]} did not end within {_PATIENCE_S:.0f} s") from error
    if done.returncode:
        raise ChannelFailed(f"{argv[0]} ended with {done.returncode}: {done.stderr.decode(errors='replace').strip()}")


def _notify(address: str, message: Message) -> None:
    try:
        import apprise
    except ImportError as error:
        raise ChannelFailed("apprise is not installed: pip install 'benchhouse[alarms]'") from error
    recipient = apprise.Apprise()
    if not recipient.add(address):
        raise ChannelFailed("apprise does not know such an address")
    kinds = {"over": apprise.NotifyType.SUCCESS, "news": apprise.NotifyType.INFO}
    kind = kinds.get(message["state"], apprise.NotifyType.WARNING)
    with apprise.LogCapture(level=apprise.logging.WARNING) as log:  # type: ignore[no-untyped-call]
        title = f"bench: {message['alarm']} {message['state']}".removesuffix(" news")
        if not recipient.notify(title=title, body=message["text"], notify_type=kind):
            raise ChannelFailed((log.getvalue().strip() or "apprise could not").splitlines()[-1])


def _comment(thread: GitHubThread, token: str, message: Message) -> None:
    """Comment in the thread, unless an earlier attempt for the same run got through without an answer."""
    github = GitHub(thread.api, token)
    body, marker = _markdown(message)
    since = (datetime.now(UTC) - _LOOK_BACK).strftime("%Y-%m-%dT%H:%M:%SZ")
    try:
        if not (message["run_id"] and github.find_comment(thread.repository, thread.number, marker, since)):
            github.comment(thread.repository, thread.number, f"{body}\n\n{marker}")
    except BenchError as error:
        raise ChannelFailed(error.message) from error


def _markdown(message: Message) -> tuple[str, str]:
    """Return the text with everything but our links escaped from Markdown, and the marker that identifies it."""
    links = {item.get("link") for item in (message, *message.get("messages", ()))} - {None}
    lines = [f"<{line}>" if line in links else plain(line) for line in message["text"].splitlines()]
    digest = hashlib.sha256(json.dumps([message[key] for key in ("alarm", "state", "text")]).encode()).hexdigest()
    return "\n".join(lines)[:_MOST_MARKDOWN], f"<!-- benchhouse notice {digest[:32]} -->"


def is_quiet(hours: str, timezone: str, moment: datetime) -> bool:
    """Return whether quiet hours in that time zone apply at that moment."""
    local = moment.astimezone(ZoneInfo(timezone))
    return bool(hours) and within(hours, local.hour * 60 + local.minute)


def linked(address: str, message: Message) -> dict[str, Any]:
    """Return the message with the address of the run's page, if `bench serve` has one."""
    if not address or not message["run_id"]:
        return dict(message)
    link = f"{address.rstrip('/')}/runs/{message['run_id']}"
    return dict(message) | {"link": link, "text": f"{message['text']}\n{link}"}
