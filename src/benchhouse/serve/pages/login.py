"""Log in with a token, and log out."""

from urllib.parse import parse_qs

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from benchhouse.report.tags import tag
from benchhouse.serve.access import COOKIE, Authenticator
from benchhouse.serve.guard import local_path
from benchhouse.serve.pages.forms import field
from benchhouse.serve.pages.shell import WebPage, link, written


def routes(access: Authenticator) -> list[Route]:
    async def log_in(request: Request) -> Response:
        if request.method != "POST":
            return _form(request, local_path(request.query_params.get("next", "/")))
        given = {
            name: values[0] for name, values in parse_qs((await request.body()).decode("utf-8", "replace")).items()
        }
        there = local_path(given.get("next", "/"))
        token = access.token(given.get("token", "").strip(), request.scope)
        if token is None:
            return _form(request, there, "That is no token that counts here.")
        cookie = await run_in_threadpool(access.begin_session, token)
        root = request.scope["root_path"]
        response = RedirectResponse(there if there != "/" else f"{root}/", 303)
        secure = request.scope["scheme"] == "https"
        response.set_cookie(COOKIE, cookie, path=root or "/", secure=secure, httponly=True, samesite="strict")
        return response

    async def log_out(request: Request) -> Response:
        if cookie := request.cookies.get(COOKIE):
            await run_in_threadpool(access.end_session, cookie)
        response = RedirectResponse(link(request, "/login"), 303)
        response.delete_cookie(COOKIE, path=request.scope["root_path"] or "/")
        return response

    return [Route("/login", log_in, methods=["GET", "POST"]), Route("/logout", log_out, methods=["POST"])]


def _form(request: Request, there: str, wrong: str = "") -> Response:
    caller = request.scope["caller"]
    content = [
        tag("p", wrong, class_="verdict trouble", role="alert") if wrong else None,
        tag("p", f"You are {caller.name} and may {caller.role}.") if caller else None,
        tag(
            "form",
            tag("input", type="hidden", name="form_token", value=request.scope["form_token"](caller)),
            tag("input", type="hidden", name="next", value=there),
            field("token", "Token", kind="password", autocomplete="current-password", required=True),
            tag("button", "Log in", type="submit"),
            method="post",
            action=link(request, "/login"),
            class_="bar",
        ),
        tag("p", "Whoever runs this server makes a token for you: ", tag("code", "bench token make NAME")),
    ]
    return written(request, WebPage("Log in", tuple(content), 401 if wrong else 200))
