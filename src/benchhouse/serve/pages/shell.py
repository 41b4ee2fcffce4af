"""What all pages have: head, navigation and footer; a page is HTML that reads well without JavaScript."""

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
    """A page; the shell adds the rest. `top` stands in place of the heading, where a page has more to say there."""

    title: str
    content: tuple[Content, ...]
    status: int = 200
    top: Markup | None = None
    scripts: tuple[str, ...] = ()
    """Files of `assets`; they run when the page is read, in this order."""


def link(request: Request, path: str, **query: str | int | None) -> str:
    """The address of one of our pages, below the path that a proxy has for us. What is None or empty is left out."""
    given = {name: value for name, value in query.items() if value not in (None, "")}
    params = f"?{urlencode(given)}" if given else ""
    return f"{request.scope.get('root_path', '')}{quote(path, safe='/@:=,+')}{params}"


def anchor(request: Request, text: Content, path: str, **query: str | int | None) -> Markup:
    """A link to one of our pages."""
    return tag("a", text, href=link(request, path, **query))


def relative(content: Markup, workspace: Workspace) -> Markup:
    """The same with the paths of the workspace relative to it, and without other folders of this machine."""
    return Markup(hide_places(content, workspace))  # noqa: S704 - it was markup before


def empty(words: str, *commands: str) -> Markup:
    """What stands where there is nothing yet, with the commands that make something."""
    lines = [tag("pre", tag("code", command)) for command in commands]
    return tag("div", tag("p", words), *lines, class_="empty")


def written(request: Request, page: WebPage, banner: Markup | None = None) -> Response:
    """The whole page as a response; a banner stands above what it says."""
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
    """A function that makes a page, or a response that is none, as an endpoint; what it raises is a page."""

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
    """What is wrong, and what to do next, as a page."""
    return WebPage(title, (tag("p", message, class_="verdict trouble"), tag("p", hint) if hint else None), status)


def not_found(request: Request) -> Response:
    back = join("Look at the ", anchor(request, "overview", "/"), " or at all ", anchor(request, "runs", "/runs"), ".")
    return written(request, trouble("There is no such page", f"Nothing is at {request.url.path}", back, 404))


def server_error(request: Request) -> Response:
    """For what we did not foresee: the cause is in the log of the server, not on the page."""
    hint = "The cause is in the log of the server. Reload the page, or tell whoever runs the server."
    return written(request, trouble("That failed", "The server could not make this page.", hint, 500))
