"""A fake of the parts of GitHub's REST API that we use: comments, commit statuses, check runs, pull requests.

Its answers have the fields that the schemas of `@octokit/openapi` require (`tests/automation/github/test_client.py`).
"""

import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

TOKEN = "ghp_planted0token0of0a0test00000000000000"
_BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
BEGIN = _BEGIN.timestamp()
_USER_URLS = "avatar events followers following gists html organizations received_events repos starred subscriptions"


class FakeGitHub:
    """What it was told, and how it misbehaves."""

    def __init__(self) -> None:
        self.comments: list[dict[str, Any]] = []
        self.statuses: list[dict[str, Any]] = []
        self.check_runs: list[dict[str, Any]] = []
        self.pulls: list[dict[str, Any]] = []
        self.requests: list[tuple[str, str, int]] = []
        self.edits: dict[int, int] = {}
        self.troubles: list[tuple[int, dict[str, str], bytes]] = []
        """Answers in place of the next ones."""
        self.deaf = False
        """Whether it does what it is asked, and the answer is lost."""
        self.seconds = 0
        self.api = ""
        self.lock = threading.Lock()

    def now(self) -> str:
        self.seconds += 1
        return (_BEGIN + timedelta(seconds=self.seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")

    def write(self, body: str, login: str = "ada", number: int = 7, repository: str = "team/bench") -> dict[str, Any]:
        """A person comments."""
        at = self.now()
        base = f"{self.api}/repos/{repository}"
        comment = {
            "id": 1000 + len(self.comments),
            "node_id": f"IC_{len(self.comments)}",
            "url": f"{base}/issues/comments/{1000 + len(self.comments)}",
            "html_url": f"https://github.com/{repository}/issues/{number}#issuecomment-{len(self.comments)}",
            "issue_url": f"{base}/issues/{number}",
            "body": body,
            "user": self.user(login),
            "created_at": at,
            "updated_at": at,
            "author_association": "NONE",
        }
        self.comments.append(comment)
        return comment

    def edit(self, comment: dict[str, Any], body: str) -> None:
        comment |= {"body": body, "updated_at": self.now()}
        self.edits[comment["id"]] = self.edits.get(comment["id"], 0) + 1

    def user(self, login: str) -> dict[str, Any]:
        at, kind = f"{self.api}/users/{login}", "Bot" if login.endswith("[bot]") else "User"
        user = {"id": 1, "node_id": "U_1", "login": login, "url": at, "gravatar_id": "", "type": kind}
        return user | {"site_admin": False} | {f"{name}_url": at for name in _USER_URLS.split()}

    def said(self, login: str = "bench[bot]") -> list[str]:
        """Bodies of what we wrote."""
        known = [comment for comment in self.comments if comment["user"]]
        return [comment["body"] for comment in known if comment["user"]["login"] == login]

    def answer(self, method: str, path: str, query: dict[str, str], body: dict[str, Any]) -> tuple[int, Any]:
        repository = "/".join(path.split("/")[2:4])
        rest = path.removeprefix(f"/repos/{repository}")
        if match := re.fullmatch(r"/issues/(\d+)/comments", rest):
            if method == "POST":
                return 201, self.write(body["body"], "bench[bot]", int(match[1]), repository)
            ours = [item for item in self.comments if item["issue_url"].endswith(f"{repository}/issues/{match[1]}")]
            return 200, self._page([item for item in ours if item["updated_at"] >= query.get("since", "")], query)
        if rest == "/issues/comments" and method == "GET":
            ours = [item for item in self.comments if f"/{repository}/" in item["issue_url"]]
            new = [item for item in ours if item["updated_at"] >= query["since"]]
            return 200, self._page(sorted(new, key=lambda item: item["updated_at"]), query)
        if match := re.fullmatch(r"/issues/comments/(\d+)", rest):
            comment = next((item for item in self.comments if item["id"] == int(match[1])), None)
            if comment is None:
                return 404, {"message": "Not Found"}
            self.edit(comment, body["body"])
            return 200, comment
        if match := re.fullmatch(r"/statuses/(\w+)", rest):
            at, creator = self.now(), self.user("bench[bot]")
            status = {"id": 1, "node_id": "S_1", "url": self.api, "avatar_url": "", "target_url": None,
                      "creator": creator, "created_at": at, "updated_at": at} | body  # fmt: skip
            self.statuses.append(status | {"sha": match[1]})
            return 201, status
        if match := re.fullmatch(r"/check-runs(?:/(\d+))?", rest):
            if match[1]:
                run = next(item for item in self.check_runs if item["id"] == int(match[1]))
                run |= body | {"output": self._output(body)}
                return 200, run
            run = self._check_run(body)
            self.check_runs.append(run)
            return 201, run
        if match := re.fullmatch(r"/commits/(\w+)/check-runs", rest):
            runs = [
                item for item in self.check_runs
                if item["head_sha"] == match[1] and item["name"] == query.get("check_name", item["name"])
            ]  # fmt: skip
            return 200, {"total_count": len(runs), "check_runs": runs}
        if rest == "/pulls":
            return 200, [item for item in self.pulls if item["head"]["label"] == query.get("head")]
        return 404, {"message": "Not Found"}

    def _check_run(self, body: dict[str, Any]) -> dict[str, Any]:
        return {"id": 1 + len(self.check_runs), "node_id": "CR_1", "url": self.api, "html_url": self.api,
                "details_url": self.api, "external_id": "", "check_suite": {"id": 1}, "app": None, "pull_requests": [],
                "started_at": self.now(), "completed_at": self.now(), "status": "completed", "conclusion": None,
                } | body | {"output": self._output(body)}  # fmt: skip

    def _output(self, body: dict[str, Any]) -> dict[str, Any]:
        return {
            "title": None,
            "summary": None,
            "text": None,
            "annotations_count": 0,
            "annotations_url": self.api,
        } | body.get("output", {})

    @staticmethod
    def _page(items: list[Any], query: dict[str, str]) -> list[Any]:
        size, page = int(query.get("per_page", 30)), int(query.get("page", 1))
        return items[(page - 1) * size : page * size]


@contextmanager
def fake_github() -> Iterator[FakeGitHub]:
    fake = FakeGitHub()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _do(self) -> None:
            parts = urlsplit(self.path)
            query = {name: values[0] for name, values in parse_qs(parts.query).items()}
            data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            with fake.lock:
                if fake.troubles:
                    status, headers, body = fake.troubles.pop(0)
                elif self.headers["Authorization"] != f"Bearer {TOKEN}":
                    status, headers, body = 401, {}, b'{"message": "Bad credentials"}'
                else:
                    status, answer = fake.answer(self.command, parts.path, query, json.loads(data or b"{}"))
                    body = json.dumps(answer).encode()
                    headers = {"ETag": f'W/"{hashlib.sha256(body).hexdigest()}"'}
                    if self.command == "GET" and self.headers["If-None-Match"] == headers["ETag"]:
                        status, body = 304, b""
                fake.requests.append((self.command, parts.path, status))
                deaf = fake.deaf
            if deaf:
                self.close_connection = True
                return
            self.send_response(status)
            for name, value in (headers | {"Content-Length": str(len(body))}).items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = do_PATCH = _do  # noqa: N815 - as the library calls them

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    fake.api = f"http://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    try:
        yield fake
    finally:
        server.shutdown()
        server.server_close()
