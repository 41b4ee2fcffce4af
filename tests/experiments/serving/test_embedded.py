"""Servers that are started for a trial."""

import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from laboratory import wait_until
from mocks.llm import build
from pydantic import ValidationError

from benchhouse.experiments.serving.asking import ask
from benchhouse.experiments.serving.embedded import Started, Starting
from benchhouse.experiments.serving.load import ServingTarget
from benchhouse.schema.experiment import ExperimentFailed

URL = "http://127.0.0.1:{port}"
MOCK = (str(build()), "--port", "{port}")


@pytest.fixture
def ctx(tmp_path):
    facts = {}

    def fail(code, message, *, retryable=False):
        raise ExperimentFailed(code, message, retryable)

    return SimpleNamespace(artifacts=tmp_path, fail=fail, metadata=facts.update, facts=facts)


def is_there(pid):
    """As a process that still does something; nobody may have buried it yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def script(text):
    return (
        sys.executable,
        "-c",
        f"import http.server, os, signal, subprocess, sys, time\nport = int(sys.argv[1])\n{text}",
        "{port}",
    )


SERVE = """
class Up(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
server = http.server.HTTPServer(("127.0.0.1", port), Up)
print("serving as", os.getpid(), flush=True)
"""


def pids_told(ctx):
    return [int(line.split()[-1]) for line in (ctx.artifacts / "server.log").read_text().splitlines() if " as " in line]


def test_without_a_command_the_address_is_as_given(ctx):
    with Started(None, "http://somewhere", ctx) as url:
        assert url == "http://somewhere"
    assert not (ctx.artifacts / "server.log").exists()


def test_a_server_is_up_inside_and_gone_outside(ctx):
    with Started(Starting(command=MOCK, ready="/mock/stats"), URL, ctx) as url:
        assert url.startswith("http://127.0.0.1:") and "{port}" not in url
        assert ctx.facts["server_start_s"] < 10
    with pytest.raises(OSError, match="refused"):
        ask(f"{url}/mock/stats", timeout_s=1)


def test_a_server_and_its_children_are_ended_also_when_the_load_fails_and_they_resist(ctx):
    stubborn = script(
        SERVE + "child = subprocess.Popen(['sleep', '100'])\nprint('child as', child.pid, flush=True)\n"
        "signal.signal(signal.SIGTERM, lambda *_: os._exit(0))\nserver.serve_forever()"
    )
    with pytest.raises(ExperimentFailed, match="no_luck"), Started(Starting(command=stubborn), URL, ctx):
        ctx.fail("no_luck", "the load failed")
    assert len(pids_told(ctx)) == 2
    wait_until(lambda: not any(map(is_there, pids_told(ctx))), "both to end", 5)


@pytest.mark.parametrize("failure", [None, "not_reached"])
def test_a_server_that_dies_during_the_load_is_told_with_its_last_words(ctx, failure):
    dying = script(SERVE + "server.handle_request()\nprint('out of memory', flush=True)\nsys.exit(3)")
    with pytest.raises(ExperimentFailed) as failed, Started(Starting(command=dying), URL, ctx):
        time.sleep(0.3)
        if failure:
            ctx.fail(failure, "no connection")
    assert failed.value.code == "server_died"
    assert "ended with 3 during the load" in failed.value.message and "out of memory" in failed.value.message


def test_a_mistake_of_the_experiment_is_not_covered_by_the_servers_death(ctx):
    dying = script(SERVE + "server.handle_request()\nsys.exit(3)")
    with pytest.raises(KeyError), Started(Starting(command=dying), URL, ctx):
        time.sleep(0.3)
        raise KeyError("a bug")


def test_a_server_that_ends_before_it_is_ready_is_told_with_its_last_words(ctx):
    with (
        pytest.raises(ExperimentFailed, match=r"(?s)server_died: .*ended with 2 before it was ready:.*no such model"),
        Started(Starting(command=script("print('no such model')\nsys.exit(2)")), URL, ctx),
    ):
        pass


def test_a_server_that_is_never_ready_is_ended_and_told(ctx):
    with (
        pytest.raises(ExperimentFailed, match=r"(?s)server_not_ready: .*did not answer 200 within 0.5 s.*loading as"),
        Started(
            Starting(command=script("print('loading as', os.getpid(), flush=True)\ntime.sleep(60)"), timeout=0.5),
            URL,
            ctx,
        ),
    ):
        pass
    assert not any(map(is_there, pids_told(ctx)))


def test_a_server_that_answers_503_is_not_ready_yet(ctx):
    slow = SERVE.replace("self.send_response(200)", "self.send_response(200 if time.monotonic() > up else 503)")
    started = Started(Starting(command=script(f"up = time.monotonic() + 0.6{slow}server.serve_forever()")), URL, ctx)
    with started:
        assert ctx.facts["server_start_s"] > 0.5


def test_a_program_that_is_not_there_is_told(ctx):
    with (
        pytest.raises(ExperimentFailed, match=r"no_such_program: .*'no-such-server' is not a program here"),
        Started(Starting(command=("no-such-server", "{port}")), URL, ctx),
    ):
        pass


def test_environment_variables_reach_the_server(ctx):
    told = script("print('mode is', os.environ['MODE'])\nsys.exit(1)")
    with (
        pytest.raises(ExperimentFailed, match=r"(?s)mode is quick"),
        Started(Starting(command=told, environment={"MODE": "quick"}), URL, ctx),
    ):
        pass


@pytest.mark.parametrize(
    ("url", "start", "said"),
    [
        ("http://127.0.0.1:{port}", None, "must say {port}"),
        ("http://127.0.0.1:{port}", {"command": ["server"]}, "must say {port}"),
        ("http://127.0.0.1:8000", {"command": ["server", "{port}"]}, "so target.url must"),
    ],
)
def test_a_port_that_only_one_of_command_and_address_knows_is_refused(url, start, said):
    with pytest.raises(ValidationError, match=said):
        ServingTarget(url=url, start=start)
