"""`/feed.atom`: new runs, levels, baselines, and alarms for feed readers and chat bots (RFC 4287)."""

import hashlib
import hmac
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING
from xml.etree import ElementTree

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from benchhouse.api.workspace import Workspace
from benchhouse.schema.errors import BenchError
from benchhouse.schema.quoting import printable
from benchhouse.serve.pages.shell import link
from benchhouse.serve.state import ServerDatabase
from benchhouse.serve.verb_requests import of_error, tagged

if TYPE_CHECKING:
    from benchhouse.api.changes import Changes, MovedLevel
    from benchhouse.runs.status import RunStatus

_ATOM = "http://www.w3.org/2005/Atom"
_IDS = uuid.uuid5(uuid.NAMESPACE_URL, "tag:benchhouse,2026:feed")
_SINCE = "168h"
_LONGEST = 300
_NEVER = "1970-01-01T00:00:00Z"


@dataclass(frozen=True)
class FeedEntry:
    """A change in the feed. `key` never changes; `updated` changes when the entry is published again."""

    key: str
    title: str
    path: str
    published: str
    updated: str
    content: str = ""


def route(workspace: Workspace, state: ServerDatabase) -> Route:
    """Return the route of the feed. Its id derives from the secret of the server, which stays with the workspace."""

    def answer(request: Request) -> Response:
        try:
            found = workspace.changes(request.query_params.get("since") or _SINCE)
        except BenchError as error:
            return of_error(error, workspace)
        digest = hmac.new(state.secret, b"feed", hashlib.sha256).digest()
        feed_id = uuid.UUID(bytes=digest[:16], version=4)
        return tagged(request, atom(entries_of(found), feed_id, request), "application/atom+xml; charset=utf-8")

    async def endpoint(request: Request) -> Response:
        return await run_in_threadpool(answer, request)

    return Route("/feed.atom", endpoint)


def entries_of(found: "Changes") -> Iterator[FeedEntry]:
    """Yield an entry for each change."""
    yield from map(_run, found.runs)
    for item in found.levels:
        yield _moved("level", f"{item.case}: {item.metric} {item.sentence}", item)
    for item in found.broken:
        yield _moved("broken", f"Baseline broken: {item.case}: {item.metric} {item.sentence}", item)
    for notice in found.notices:
        state = "fired" if notice.action == "fired" else "is over"
        time = _time(notice.time)
        path = f"/runs/{notice.run_id}" if notice.run_id else "/"
        title = f"Alarm {notice.alarm} {state}"
        yield FeedEntry(f"alarm/{notice.alarm}/{notice.time}", title, path, time, time, notice.sentence)


def _run(run: "RunStatus") -> FeedEntry:
    outcomes = ", ".join(f"{count} {outcome}" for outcome, count in run.outcomes.items())
    content = f"{run.experiment} on {run.executor}: {run.done} of {run.trials} trials ended"
    title = f"Run of {run.scenario}: {run.state}" + (", with failures" if run.failures or run.stopped else "")
    begun = _time(run.created)
    return FeedEntry(
        f"run/{run.run_id}",
        title,
        f"/runs/{run.run_id}",
        begun,
        _time(run.ended or run.created),
        f"{content}: {outcomes}" if outcomes else content,
    )


def _moved(kind: str, title: str, item: "MovedLevel") -> FeedEntry:
    key, time = f"{kind}/{item.case}/{item.metric}/{item.run_id}", _time(item.time)
    return FeedEntry(key, title, f"/history/{item.case}", time, time, f"Since run {item.run_id}")


def _time(text: str) -> str:
    """Return the time in the format of RFC 3339."""
    when = datetime.fromisoformat(text)
    when = when.replace(tzinfo=UTC) if when.tzinfo is None else when.astimezone(UTC)
    return when.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def atom(entries: Iterable[FeedEntry], feed_id: uuid.UUID, request: Request) -> bytes:
    """Return the feed as XML, newest first; its addresses are those by which the caller reaches the server."""
    newest_first = sorted(entries, key=lambda entry: (entry.updated, entry.key), reverse=True)
    here = f"{request.scope['scheme']}://{request.headers.get('host', '')}"
    own = f"{here}{request.url.path}" + (f"?{request.url.query}" if request.url.query else "")
    ElementTree.register_namespace("", _ATOM)
    feed = ElementTree.Element(f"{{{_ATOM}}}feed")
    _add(feed, "id", feed_id.urn)
    _add(feed, "title", "Benchhouse")
    _add(feed, "updated", newest_first[0].updated if newest_first else _NEVER)
    _add(_add(feed, "author"), "name", "Benchhouse")
    _add(feed, "link", rel="self", href=own, type="application/atom+xml")
    _add(feed, "link", rel="alternate", href=f"{here}{link(request, '/')}", type="text/html")
    for item in newest_first:
        entry = _add(feed, "entry")
        _add(entry, "id", uuid.uuid5(_IDS, item.key.encode("utf-8", "replace").decode()).urn)
        _add(entry, "title", item.title)
        _add(entry, "published", item.published)
        _add(entry, "updated", item.updated)
        _add(entry, "link", rel="alternate", href=f"{here}{link(request, item.path)}", type="text/html")
        _add(entry, "summary", item.content)
    return bytes(ElementTree.tostring(feed, "utf-8", xml_declaration=True))


def _add(parent: ElementTree.Element, name: str, text: str = "", **attributes: str) -> ElementTree.Element:
    """Add an element without control characters and marks that change the writing direction."""
    element = ElementTree.SubElement(parent, f"{{{_ATOM}}}{name}", attributes)
    element.text = shown if len(shown := printable(text)) <= _LONGEST else f"{shown[: _LONGEST - 1]}…"
    return element
