"""Requests to `bench serve` with exactly the headers that a test gives, and tokens to ask with."""

import http.client
import re
from typing import Any
from urllib.parse import urlsplit

FORM = {"Content-Type": "application/x-www-form-urlencoded"}
PAGE = {"Accept": "text/html"}
THROUGH = (404, 405)  # of what is not there


def ask(base, path="/api/baselines", method="GET", body=None, source_="", **headers):
    """Status, headers and body, with exactly these headers; `host_` is Host, `source_` the address to ask from."""
    at = urlsplit(base)
    source = (source_, 0) if source_ else None
    connection = http.client.HTTPConnection(at.hostname, at.port, timeout=30, source_address=source)
    given = {name.replace("_", "-").strip("-"): value for name, value in headers.items()}
    connection.request(method, path, body, given)
    answer = connection.getresponse()
    return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read().decode()


def token(lab, *options):
    return lab.bench("token", "make", *options).stdout.strip()


def bearer(secret):
    return {"Authorization": f"Bearer {secret}"}


def form_token(page):
    return re.search(r'name="form_token" value="(\w+)"', page)[1]


def address(process: Any) -> str:
    """What a server that was just started says that it listens on."""
    assert process.stdout
    line = process.stdout.readline()
    found = re.search(r"https?://\S+", line)
    assert found, f"{line}{process.stderr.read() if process.stderr else ''}"
    return found.group().rstrip("/")


def resize(page: Any, width: int) -> int:
    """Resize the window of a browser, and return how wide the page is once its charts are drawn again."""
    page.set_viewport_size({"width": width, "height": 900})
    return page.evaluate(
        """width => new Promise((done) => {
            const look = (frames) => {
                const found = document.documentElement.scrollWidth;
                if (found <= width || !frames) done(found);
                else requestAnimationFrame(() => look(frames - 1));
            };
            look(200);
        })""",
        width,
    )
