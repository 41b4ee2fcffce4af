"""Several servers under one load: connections are spread over them, and each is counted."""

import os
import signal
from types import SimpleNamespace

import pytest
from mocks.llm import MockLLM

from benchhouse.drivers.openai import OpenAI
from benchhouse.experiments.serving.tally import ServingTally
from benchhouse.load.certificate import certify
from benchhouse.load.endpoint import EndpointServers
from benchhouse.load.engine import NotReached, run_load
from benchhouse.load.protocols.text import Generation
from benchhouse.load.shape import Shape
from benchhouse.load.source import Planned, RequestPool

ASKED = SimpleNamespace(as_text=lambda: "a", output_tokens=2)


def load(urls, tally=lambda: ServingTally(None), **shape):
    driver = OpenAI(urls[0], "mock", Generation("completions"))
    pool = RequestPool([Planned(ASKED, driver.request(ASKED))], 1)
    return run_load(lambda: driver, pool, Shape(warmup=0, **shape), tally, servers=EndpointServers(tuple(urls)))


def problems(book, **shape):
    return {problem.code: problem.message for problem in certify(book, Shape(warmup=0, **shape)).problems}


@pytest.mark.parametrize("processes", [1, 3])
@pytest.mark.parametrize("asked", [{"concurrency": 3}, {"concurrency": 8}, {"rps": 300}, {"rps": 20}])
def test_servers_that_are_alike_get_alike(asked, processes):
    with MockLLM(ttft_ms=10) as one, MockLLM(ttft_ms=10) as other:
        book = load([one.url, other.url], requests=120, processes=processes, **asked)
        seen = [one.stats()["requests"], other.stats()["requests"]]
    assert [book.places[server.url].good for server in (one, other)] == seen
    assert sum(seen) == 120 == book.succeeded and min(seen) >= 45
    assert "endpoint_dead" not in problems(book, requests=120, processes=processes, **asked)


def test_one_client_uses_them_in_turn():
    with MockLLM() as one, MockLLM() as other, MockLLM() as third:
        load([one.url, other.url, third.url], concurrency=1, requests=9)
        assert [server.stats()["requests"] for server in (one, other, third)] == [3, 3, 3]
        assert one.stats()["max_concurrent"] == 1


def test_a_slower_one_gets_less_and_that_shows():
    with MockLLM(ttft_ms=5) as quick, MockLLM(ttft_ms=50) as slow:
        book = load([quick.url, slow.url], concurrency=8, duration=1)
    assert book.places[quick.url].good > 3 * book.places[slow.url].good > 0


def test_errors_are_told_apart():
    with MockLLM(ttft_ms=5) as good, MockLLM(ttft_ms=5, fail_status=503) as bad:
        book = load([good.url, bad.url], concurrency=4, requests=60)
    assert book.places[good.url].errors == {} and book.places[good.url].good == book.succeeded
    assert dict(book.places[bad.url].errors) == dict(book.errors) and book.places[bad.url].good == 0


def test_one_server_is_not_counted_apart():
    with MockLLM() as server:
        assert load([server.url], concurrency=2, requests=5).places == {}


@pytest.mark.parametrize("asked", [{"concurrency": 4}, {"rps": 100}])
@pytest.mark.parametrize("processes", [1, 4])
def test_one_that_is_not_there_is_named_while_the_other_bears_the_load(asked, processes):
    with MockLLM() as gone:
        pass
    with MockLLM(ttft_ms=10) as server:
        book = load([gone.url, server.url], requests=80, processes=processes, **asked)
    place = book.places[gone.url]
    assert place.refused >= processes and place.good == 0 and "Connection refused" in place.why
    assert book.places[server.url].good == book.succeeded >= 60
    told = problems(book, requests=80, processes=processes, **asked)["endpoint_dead"]
    assert told.startswith(f"{gone.url} takes no connection") and "0 good answers came from it" in told


class Executioner(ServingTally):
    """Kills a server as soon as it has answered so many requests of the load: no clock, so no machine is too slow."""

    def __init__(self, server, after):
        super().__init__(None)
        self._server, self._after = server, after

    def add(self, *call):
        if self._server and self._server.stats()["requests"] > self._after:
            self._server, server = None, self._server
            os.kill(server.pid, signal.SIGKILL)
            server.stop()
        return super().add(*call)


def test_one_that_dies_in_mid_load_is_named():
    with MockLLM(ttft_ms=5) as server:
        mortal = MockLLM(ttft_ms=5).start()
        book = load([server.url, mortal.url], lambda: Executioner(mortal, after=20), concurrency=4, requests=400)
    assert not book.stopped
    assert 10 < book.places[mortal.url].good < 200 < book.places[server.url].good
    assert "endpoint_dead" in problems(book, concurrency=4, requests=400)


def test_where_none_is_there_the_load_does_not_begin():
    with MockLLM() as one, MockLLM() as other:
        urls = [one.url, other.url]
    with pytest.raises(NotReached, match="Connection refused"):
        load(urls, concurrency=4, requests=4)
