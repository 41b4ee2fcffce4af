"""Credentials of the container: a fake agent of EKS Pod Identity gives the documented answer."""

import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from services.seaweedfs import SeaweedFS

from benchhouse.http.s3_bucket import open_bucket
from benchhouse.http.s3_sign import credentials_of
from benchhouse.schema.errors import BenchError


class FakeAgent:
    """Gives `answers`, one after the other and the last for ever, to whoever has the token."""

    def __init__(self, folder: Path) -> None:
        self.token, self.answers, self.asked = folder / "token", list[dict[str, Any]](), 0
        self.token.write_text("first\n")
        agent = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *_: object) -> None:
                pass

            def do_GET(self) -> None:
                known = self.headers["Authorization"] == agent.token.read_text().strip()
                body = json.dumps(agent.answers[min(agent.asked, len(agent.answers) - 1)]).encode() if known else b"{}"
                agent.asked += known
                self.send_response(200 if known else 403)
                self.end_headers()
                self.wfile.write(body)

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        Thread(target=self.server.serve_forever, daemon=True).start()

    @property
    def environ(self) -> dict[str, str]:
        return {
            "AWS_CONTAINER_CREDENTIALS_FULL_URI": f"http://127.0.0.1:{self.server.server_port}/v1/credentials",
            "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": str(self.token),
        }


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[FakeAgent]:
    made = FakeAgent(tmp_path)
    yield made
    made.server.shutdown()
    made.server.server_close()


def answer(key: str, secret: str, lives_s: float, **more: str) -> dict[str, str]:
    end = datetime.fromtimestamp(time.time() + lives_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {"AccessKeyId": key, "SecretAccessKey": secret, "Expiration": end} | more


def test_the_service_is_asked_where_no_key_is_given_and_its_token_is_read_each_time(agent: FakeAgent):
    agent.answers = [answer("key", "word", 3600, Token="session")]
    for text in ("first", "second"):
        agent.token.write_text(text)
        found = credentials_of(agent.environ)
        assert (found.access_key, found.secret, found.token) == ("key", "word", "session")
        assert found.expires and found.expires > time.time() + 3000
    own = credentials_of(agent.environ | {"AWS_ACCESS_KEY_ID": "mine", "AWS_SECRET_ACCESS_KEY": "own"})
    assert (own.access_key, own.expires, agent.asked) == ("mine", None, 2), "variables come first"


def test_credentials_that_end_are_asked_for_anew_while_a_real_server_checks_them(
    agent: FakeAgent, seaweedfs: SeaweedFS
):
    key, secret = seaweedfs.environment["AWS_ACCESS_KEY_ID"], seaweedfs.environment["AWS_SECRET_ACCESS_KEY"]
    agent.answers = [answer("stale", "wrong", 60), answer(key, secret, 3600)]
    bucket, _ = open_bucket("s3://contained", seaweedfs.url, agent.environ)
    bucket.make_sure(create=True)
    assert list(bucket.keys("")) == [] and agent.asked == 2, "once when opened, once as the first were about to end"
    bucket.close()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"AWS_CONTAINER_CREDENTIALS_FULL_URI": "http://example.com/v1"}, "may not be asked for credentials"),
        ({"AWS_CONTAINER_CREDENTIALS_FULL_URI": "http://127.0.0.1:9/v1"}, "can't be asked"),
        ({"AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": "/nowhere"}, "can't be asked"),
        ({"AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": "/dev/null"}, "answers 403"),
    ],
)
def test_what_does_not_answer_is_told_without_the_token(agent: FakeAgent, change: dict[str, str], words: str):
    agent.answers = [{"AccessKeyId": "key"}]
    with pytest.raises(BenchError, match=words) as told:
        credentials_of(agent.environ | change)
    assert "first" not in str(told.value)
    with pytest.raises(BenchError, match="KeyError"):
        credentials_of(agent.environ)
