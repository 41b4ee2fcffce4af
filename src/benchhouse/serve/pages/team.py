"""The state of the team's store that the server follows: a line on the front page, a banner while it is unreachable."""

from markupsafe import Markup
from starlette.requests import Request

from benchhouse.api.workspace import Workspace
from benchhouse.report.evidence_sections import when
from benchhouse.report.tags import tag
from benchhouse.results.numbers import duration, plural

_MOST = 10


def follows(request: Request) -> bool:
    """Return whether this server follows a store."""
    return bool(request.app.state.follows)


def banner(workspace: Workspace, request: Request) -> Markup | None:
    """Return the banner of every page while the store is unreachable; local content is still shown."""
    known = workspace.warehouse.followed() if follows(request) else None
    if known is None or not (since := known.away_since()):
        return None
    here = f"What it had at {when(known.answered)} is here." if known.answered else "Nothing came from it yet."
    why = f" ({known.problem})" if known.problem else ""
    words = f"The team's store has not answered since {when(since)}{why}. {here} It is asked again by itself."
    return tag("p", words, class_="verdict trouble", role="status")


def freshness(workspace: Workspace, request: Request) -> Markup | None:
    """Return how recent the shown content is; None if the server follows no store."""
    if not follows(request):
        return None
    known = workspace.warehouse.followed()
    if known is None or not known.answered:
        return tag("p", "The team's store is read for the first time.", class_="small soft")
    words = f"{known.engine}: {plural(known.runs, 'run')}, read {when(known.answered)}, every {duration(known.every_s)}"
    refused = tag("ul", *(tag("li", line) for line in known.refused[:_MOST])) if known.refused else None
    left = tag("p", f"{plural(len(known.refused), 'run')} of it can't be taken:") if known.refused else None
    return tag("section", tag("h2", "Team's store"), tag("p", words), left, refused)
