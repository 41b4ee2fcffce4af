"""The used part of GitHub's REST API: comments, commit statuses, and check runs. Redirects are not followed."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

from benchhouse.http.client import HttpClient, NoAnswer, Response
from benchhouse.schema.errors import BenchError

_PATIENCE_S = 20.0
_PAGE = 100
_MOST_PAGES = 50
_MOST_SUMMARY = 60_000  # GitHub accepts 65,535 characters
_LONGEST_WAIT_S = 2 * 3600.0


class Later(BenchError):  # noqa: N818 - what to do
    """GitHub may answer later: it is down, or limits our rate. `wait_s` is the wait that it requested; 0 if none."""

    def __init__(self, message: str, wait_s: float = 0.0) -> None:
        super().__init__(message, "it is tried again")
        self.wait_s = wait_s


class Denied(BenchError):  # noqa: N818 - an answer
    """GitHub refused the request, and would refuse it again."""


@dataclass(frozen=True)
class GitHub:
    """A client of the API with one token."""

    api: str
    token: str = field(repr=False)
    clock: Callable[[], float] = time.time

    def comment(self, repository: str, number: int, body: str) -> int:
        """Write a comment and return its id."""
        return int(self._ask("POST", f"/repos/{repository}/issues/{number}/comments", {"body": body})["id"])

    def edit(self, repository: str, comment: int, body: str) -> None:
        self._ask("PATCH", f"/repos/{repository}/issues/comments/{comment}", {"body": body})

    def find_comment(self, repository: str, number: int, marker: str, since: str = "", *, by_bot: bool = False) -> int:
        """Return the id of the comment with a marker in it; 0 if there is none. `by_bot` excludes comments of
        people."""
        path = f"/repos/{repository}/issues/{number}/comments"
        for page in range(1, _MOST_PAGES + 1):
            asked = {"per_page": _PAGE, "page": page} | ({"since": since} if since else {})
            comments = self._ask("GET", f"{path}?{urlencode(asked)}")
            for comment in comments:
                if marker in (comment["body"] or "") and (not by_bot or (comment["user"] or {}).get("type") == "Bot"):
                    return int(comment["id"])
            if len(comments) < _PAGE:
                break
        return 0

    def new_comments(self, repository: str, since: str, page: int, etag: str) -> tuple[list[dict[str, Any]], str]:
        """Return comments that changed since then, oldest first, and the tag of this answer; none if the tag still
        matches."""
        asked = {"since": since, "sort": "updated", "direction": "asc", "per_page": _PAGE, "page": page}
        headers = {"If-None-Match": etag} if etag else {}
        answer = self._request("GET", f"/repos/{repository}/issues/comments?{urlencode(asked)}", None, headers)
        if answer.status == 304:
            return [], etag
        return _json(answer), answer.headers.get("ETag") or ""

    @property
    def page_size(self) -> int:
        return _PAGE

    def status(self, repository: str, sha: str, state: str, description: str) -> None:
        """Set the status of a commit: pending, success, failure, or error."""
        body = {"state": state, "context": "benchhouse", "description": description[:140]}
        self._ask("POST", f"/repos/{repository}/statuses/{sha}", body)

    def check_run(self, repository: str, sha: str, name: str, conclusion: str, title: str, summary: str) -> int:
        """Write a completed check of a commit, replacing an existing one of that name, and return its id."""
        base = f"/repos/{repository}"
        asked = urlencode({"check_name": name, "per_page": 1})
        known = self._ask("GET", f"{base}/commits/{sha}/check-runs?{asked}")["check_runs"]
        output = {"title": title, "summary": summary[:_MOST_SUMMARY]}
        body = {"name": name, "status": "completed", "conclusion": conclusion, "output": output}
        if known:
            return int(self._ask("PATCH", f"{base}/check-runs/{int(known[0]['id'])}", body)["id"])
        return int(self._ask("POST", f"{base}/check-runs", body | {"head_sha": sha})["id"])

    def pull_of(self, repository: str, head: str, sha: str) -> int:
        """Return the open pull request from `owner:branch` whose newest commit this is; 0 if there is none."""
        asked = urlencode({"state": "open", "head": head, "per_page": _PAGE})
        pulls = self._ask("GET", f"/repos/{repository}/pulls?{asked}")
        return next((int(pull["number"]) for pull in pulls if pull["head"]["sha"] == sha), 0)

    def _ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        return _json(self._request(method, path, body))

    def _request(
        self, method: str, path: str, body: Mapping[str, Any] | None, more: Mapping[str, str] | None = None
    ) -> Response:
        import json

        headers = {
            "Accept": "application/vnd.github+json",
            "Authorization": f"Bearer {self.token}",
            "X-GitHub-Api-Version": "2022-11-28",
            **({"Content-Type": "application/json"} if body is not None else {}),
            **(more or {}),
        }
        data = json.dumps(body).encode() if body is not None else None
        try:
            answer = HttpClient(_PATIENCE_S, proxy=True).request(method, self.api + path, data, headers)
        except NoAnswer as error:
            raise Later(error.message) from error
        if answer.ok or answer.status == 304:
            return answer
        raise self._refusal(method, path.partition("?")[0], answer)

    def _refusal(self, method: str, path: str, answer: Response) -> BenchError:
        message = f"GitHub answers {answer.status} to {method} {path}"
        headers, status = answer.headers, answer.status
        waits = [_seconds(headers.get("Retry-After"))]
        if headers.get("X-RateLimit-Remaining") == "0":
            waits.append(_seconds(headers.get("X-RateLimit-Reset")) - self.clock())
        limited = status == 429 or (status == 403 and (max(waits) > 0 or b"rate limit" in answer.body.lower()))
        if limited:
            wait_s = max(waits) if max(waits) > 0 else 60.0
            return Later(f"{message}: too many requests", min(wait_s + 1, _LONGEST_WAIT_S))
        if status >= 500 or status in (401, 408):  # 401: the token was changed, and its owner will see it here
            return Later(f"{message}: {'is the token right?' if status == 401 else answer.reason}", max(*waits, 0.0))
        if 300 <= status < 400:
            return Denied(f"{message}: the repository has moved", "write its new name into workspace.yaml")
        return Denied(f"{message}: {answer.text(200)}", "may the token read and write comments there?")


def _json(answer: Response) -> Any:
    """Return the JSON of an answer. Raise Later if it is not JSON, for example the page of a proxy."""
    try:
        return answer.json()
    except NoAnswer as error:
        raise Later(error.message) from error


def _seconds(text: str | None) -> float:
    return float(text) if text and text.isascii() and text.isdigit() else 0.0
