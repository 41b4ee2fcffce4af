"""The frame of all pages: head, navigation, and footer. Every page is HTML that is usable without JavaScript."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from urllib.parse import quote, urlencode

from markupsafe import Markup
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from benchhouse.api.workspace import Workspace
from benchhouse.report.tags import Content, join, tag
from benchhouse.schema.errors import BenchError, NotFoundError
from benchhouse.schema.version import __version__
from benchhouse.serve.access import caller_of
from benchhouse.serve.limits import Turns
from benchhouse.serve.pages import team
from benchhouse.serve.verb_requests import hide_places, words_of

NAVIGATION = (
    ("/", "Overview"),
    ("/runs", "Runs"),
    ("/compare", "Compare"),
    ("/history", "History"),
    ("/leaderboards", "Leaderboards"),
    ("/claims", "Claims"),
    ("/views", "Views"),
    ("/catalogue", "Catalogue"),
    ("/servers", "Servers"),
    ("/new", "New run"),
)
_STYLES = ("report.css", "serve.css")


@dataclass(frozen=True)
class WebPage:
    """A page; the frame adds the rest. `top` replaces the heading if a page has more to show there."""

    title: str
    content: tuple[Content, ...]
    status: int = 200
    top: Markup | None = None
    scripts: tuple[str, ...] = ()
    """Files of `assets`, which run in this order after the page is parsed."""


def link(request: Request, path: str, **query: str | int | None) -> str:
    """Return the address of a page of this server, below the sub-path of the proxy. Parameters that are None or empty
    are left out."""
    given = {name: value for name, value in query.items() if value not in (None, "")}
    params = f"?{urlencode(given)}" if given else ""
    return f"{request.scope.get('root_path', '')}{quote(path, safe='/@:=,+')}{params}"


def anchor(request: Request, text: Content, path: str, **query: str | int | None) -> Markup:
    """Return a link to a page of this server."""
    return tag("a", text, href=link(request, path, **query))


def relative(content: Markup, workspace: Workspace) -> Markup:
    """Return the content with paths relative to the workspace, and without other folders of this machine."""
    return Markup(hide_places(content, workspace))  # noqa: S704 - it was markup before


def empty(words: str, *commands: str) -> Markup:
    """Return the note of an empty page, with the commands that create its content."""
    lines = [tag("pre", tag("code", command)) for command in commands]
    return tag("div", tag("p", words), *lines, class_="empty")


def written(request: Request, page: WebPage, banner: Markup | None = None) -> Response:
    """Return the whole page as a response, with a banner above its content."""
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="referrer", content="same-origin"),
        tag("title", f"{page.title} · Benchhouse"),
        tag("link", rel="icon", href=link(request, "/assets/icon.svg"), type="image/svg+xml"),
        tag("link", rel="alternate", type="application/atom+xml", href=link(request, "/feed.atom"), title="Changes"),
        *(tag("link", rel="stylesheet", href=link(request, f"/assets/{name}")) for name in _STYLES),
        *(tag("script", src=link(request, f"/assets/{name}"), defer=True) for name in page.scripts),
    )
    body = tag(
        "body",
        tag("a", "Skip to content", href="#content", class_="skip"),
        _navigation(request),
        tag("main", banner, page.top or tag("h1", page.title), *page.content, id="content", tabindex=-1),
        tag("footer", f"Benchhouse {__version__} · ", anchor(request, "HTTP API", "/api/openapi.json")),
    )
    return HTMLResponse(f"<!doctype html>\n{tag('html', head, body, lang='en')}\n", page.status)


def _navigation(request: Request) -> Markup:
    here = request.scope["path"].removeprefix(request.scope.get("root_path", ""))
    at = next((path for path, _ in NAVIGATION[1:] if f"{here}/".startswith(f"{path}/")), "/" if here == "/" else "")
    links = [
        tag("li", tag("a", title, href=link(request, path), aria_current="page" if path == at else None))
        for path, title in NAVIGATION
    ]
    brand = tag("li", tag("b", "Benchhouse"), class_="brand")
    return tag("nav", tag("ul", brand, *links), aria_label="Pages", class_="site")


def page(
    workspace: Workspace, make: Callable[[Workspace, Request], WebPage | Response], turns: Turns
) -> Callable[[Request], Awaitable[Response]]:
    """Return an endpoint for a function that makes a page or another response; its errors become pages too."""

    async def endpoint(request: Request) -> Response:
        try:
            made = await turns.run(caller_of(request).name, make, workspace, request)
        except BenchError as error:
            missing = isinstance(error, NotFoundError)
            title, status = ("That is not here", 404) if missing else ("That did not work", 400)
            message, hint, _ = words_of(error, workspace)
            made = trouble(title, message, hint, status)
        if isinstance(made, Response):
            return made
        return written(request, made, await run_in_threadpool(team.banner, workspace, request))

    return endpoint


def trouble(title: str, message: str, hint: str, status: int) -> WebPage:
    """Return a page with an error and what to do next."""
    return WebPage(title, (tag("p", message, class_="verdict trouble"), tag("p", hint) if hint else None), status)


def not_found(request: Request) -> Response:
    back = join("Look at the ", anchor(request, "overview", "/"), " or at all ", anchor(request, "runs", "/runs"), ".")
    return written(request, trouble("There is no such page", f"Nothing is at {request.url.path}", back, 404))


def server_error(request: Request) -> Response:
    """Return the page of an unexpected error, whose cause is in the log of the server and not on the page."""
    hint = "The cause is in the log of the server. Reload the page, or tell whoever runs the server."
    return written(request, trouble("That failed", "The server could not make this page.", hint, 500))
