"""Each way to ask whether a server is up, against something that answers so."""

import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import grpc
import pytest
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from benchhouse.processes.probes import ServerProbe
from benchhouse.schema.recipe import Ready


def probe(endpoint="", places=None, log="", **ready):
    return ServerProbe(Ready(**ready), endpoint, places or {}, lambda lines: log)


@pytest.fixture
def listening():
    """A port that takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.fixture
def answering():
    """A server whose answers can be chosen: an address, and the list of states it gives in turn."""
    states = [200]

    class Answers(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(states.pop(0) if len(states) > 1 else states[0])
            self.end_headers()

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/", states
    server.shutdown()
    server.server_close()


def test_a_port_is_up_when_it_takes_a_connection(listening):
    assert probe(places={"port": str(listening)}, kind="tcp").answers()
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        assert not probe(places={"port": str(closed.getsockname()[1])}, kind="tcp").answers()


def test_an_address_is_up_when_it_answers_200(answering):
    url, states = answering
    assert probe(url, kind="http").answers()
    states[:] = [503, 404, 200]
    asked = probe(kind="http", url=url)
    assert [asked.answers() for _ in range(3)] == [False, False, True]


def test_an_address_that_takes_a_connection_and_never_answers_is_not_up(listening):
    began = time.monotonic()
    assert not probe(f"http://127.0.0.1:{listening}/", kind="http").answers()
    assert time.monotonic() - began < 60


def test_one_that_comes_and_goes_is_up_when_it_answers_often_enough_in_a_row(answering):
    url, states = answering
    states[:] = [200, 200, 503, 200, 503, 200, 200, 200]
    assert probe(url, kind="http", in_a_row=3, timeout=5).wait(lambda: None)
    assert states == [200], "it was asked until the third good answer in a row"
    states[:] = [200, 503] * 200
    assert not probe(url, kind="http", in_a_row=3, timeout=0.5).wait(lambda: None)


def test_grpc_is_asked_by_its_health_service():
    server = grpc.server(ThreadPoolExecutor(1))
    servicer = health.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    asked = probe(f"grpc://127.0.0.1:{port}", kind="grpc")
    servicer.set("", health_pb2.HealthCheckResponse.NOT_SERVING)
    assert not asked.answers()
    servicer.set("", health_pb2.HealthCheckResponse.SERVING)
    assert asked.answers()
    server.stop(None).wait()
    assert not asked.answers()


def test_sql_is_up_when_the_database_answers_a_query(postgres_server):
    assert probe(postgres_server.endpoint, kind="sql").answers()
    assert not probe(postgres_server.endpoint, kind="sql", query="SELECT * FROM nothing_of_that_name").answers()
    assert not probe("postgresql://postgres@127.0.0.1:1/postgres", kind="sql").answers()


def test_a_line_of_the_log_says_that_it_is_up():
    assert probe(log="loading\nServer is ready on 80\n", kind="log", pattern="^Server is ready").answers()
    assert not probe(log="loading\nnot ready\n", kind="log", pattern="^Server is ready").answers()


def test_a_command_says_by_its_exit_code_that_it_is_up():
    assert probe(places={"port": "7"}, kind="command", command=("sh", "-c", "test {port} = 7")).answers()
    assert not probe(kind="command", command=("false",)).answers()


def test_waiting_ends_when_the_server_has_ended():
    began = time.monotonic()
    assert not probe(kind="command", command=("false",), timeout=30).wait(lambda: 1)
    assert time.monotonic() - began < 20
