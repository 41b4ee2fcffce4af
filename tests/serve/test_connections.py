"""How many connections a client may hold, and whose address counts: nobody can lock others out of a server."""

import contextlib
import http.client
import json
import os
import select
import socket
from urllib.parse import urlsplit

import pytest
from asking import ask, bearer, token
from laboratory import wait_until

from benchhouse.api.workspace import Workspace
from benchhouse.processes.tcp_peer import account_of_peer, accounts_are_visible
from benchhouse.schema.errors import BenchError
from benchhouse.serve.server import check
from benchhouse.serve.settings import Settings

SMALL = ("--max-connections", "64")  # 16 of unknown clients, 8 of each address, 16 of each known client


@pytest.fixture
def connect():
    """Return a function that opens idle connections to a server from an address of the loopback network."""
    with contextlib.ExitStack() as opened:

        def connect(base, count, source):
            server = urlsplit(base)
            for _ in range(count):
                opened.enter_context(socket.create_connection((server.hostname, server.port), 10, (source, 0)))

        yield connect


@pytest.fixture
def hold():
    """Return a function that sends a request, returns the status of the answer, and keeps the connection open."""
    opened = []

    def hold(base, path="/api/baselines", **headers):
        server = urlsplit(base)
        connection = http.client.HTTPConnection(server.hostname, server.port, timeout=10)
        connection.request("GET", path, headers=headers)
        opened.append((connection, answer := connection.getresponse()))
        return answer.status

    yield hold
    for connection, answer in opened:
        answer.close()
        connection.close()


def test_idle_connections_lock_out_neither_other_addresses_nor_their_own(lab, serve, connect):
    secret = token(lab, "ada")
    base = serve("--login")
    connect(base, 530, "127.0.0.2")
    for number in range(12):
        connect(base, 40, f"127.0.1.{number + 1}")
    for source in ("127.0.0.1", "127.0.0.2", "127.0.1.1"):
        for _ in range(3):
            assert ask(base, source_=source, **bearer(secret))[0] == 200, source


def test_an_endless_head_is_refused_before_it_fills_the_memory(serve):
    server = urlsplit(serve())
    for start, more in ((b"GET / HTTP/1.1\r\n", b"a: b\r\n"), (b"GET / HTTP/1.1\r\nX: ", b"a"), (b"GET /", b"a")):
        with socket.create_connection((server.hostname, server.port), 10) as connection:
            with contextlib.suppress(ConnectionError):
                connection.sendall(start + more * (1 << 18))
            with contextlib.suppress(ConnectionError):
                assert connection.recv(100).startswith(b"HTTP/1.1 400"), (start, more)


def test_a_known_client_can_hold_only_a_share_of_all_connections(lab, serve, hold):
    secrets = [token(lab, name) for name in ("ada", "bob", "eve", "joe")]
    base = serve("--login", "--rate", "1000", *SMALL)
    assert [hold(base, **bearer(secrets[0])) for _ in range(40)] == [200] * 40, "idle ones make room for new ones"
    lab.hold(0)
    scenario = lab.scenario("slow", "held", axes=[{"grid": {"n": [0, 1]}}], workload={"seconds": 0})
    process = lab.fork("run", scenario, "--new")
    try:
        runs = "/api/runs?state=running"
        wait_until(lambda: json.loads(ask(base, runs, **bearer(secrets[1]))[2])["runs"], "the run")
        follow = "/api/runs/@last/events"
        for secret in secrets[:3]:
            assert [hold(base, follow, **bearer(secret)) for _ in range(17)] == [200] * 16 + [429]
            assert ask(base, **bearer(secret))[0] == 429
        # Together they hold all the room that known clients have; a fourth still gets its part of it.
        assert [hold(base, follow, **bearer(secrets[3])) for _ in range(17)] == [200] * 17
        assert [ask(base, **bearer(secret))[0] for secret in secrets] == [200] * 4
    finally:
        lab.release()
        process.communicate()


def test_the_bodies_that_a_client_sends_at_once_have_a_limit(lab, serve):
    """Each request states how much it will send, and sends nothing until all of them are open."""
    ada, bob = (bearer(token(lab, name)) for name in ("ada", "bob"))
    base = serve("--login", "--max-body", "1M")

    def begin(opened, size, **headers):
        server = urlsplit(base)
        connection = opened.enter_context(socket.create_connection((server.hostname, server.port), 10))
        stated = {"Host": "localhost", "Content-Type": "application/json", "Content-Length": size} | headers
        head = "".join(f"{name}: {value}\r\n" for name, value in stated.items())
        connection.sendall(f"POST /api/query HTTP/1.1\r\n{head}\r\n".encode())
        return connection

    def answers(connection):
        return select.select([connection], [], [], 0.5)[0]

    body = json.dumps({"sql": "select 1"}).encode()
    with contextlib.ExitStack() as opened:
        large = [begin(opened, 1 << 20, **ada) for _ in range(8)]
        assert select.select(large, [], [], 0.5)[0] == []
        assert begin(opened, len(body), **ada).recv(12) == b"HTTP/1.1 429"
        other = begin(opened, len(body), **bob)
        other.sendall(body)
        assert other.recv(12) == b"HTTP/1.1 200"
        large.pop().close()
        wait_until(lambda: not answers(begin(opened, len(body), **ada)), "room")
    assert ask(base, "/login", "POST", b"x" * (1 << 16), Content_Type="application/x-www-form-urlencoded")[0] == 413


def test_unknown_clients_behind_a_proxy_are_limited_by_their_own_address(serve):
    base = serve("--trusted-proxy", "127.0.0.1", "--trusted-proxy", "10.0.0.0/8")

    def statuses(forwarded, count=1, source="127.0.0.1"):
        return {ask(base, source_=source, X_Forwarded_For=forwarded)[0] for _ in range(count)}

    assert statuses("192.0.2.1", 40) == {401, 429}
    assert statuses("192.0.2.2") == {401}
    for same_client in ("192.0.2.1, 10.1.2.3", "198.51.100.7, 192.0.2.1", "x, 192.0.2.1:4711"):
        assert statuses(same_client) == {429}, same_client
    assert statuses("2001:db8::1", 40) == {401, 429}
    assert statuses("[2001:db8::ffff]:80") == {429}, "one network, one client"
    assert statuses("2001:db8:0:1::1") == {401}
    for malformed in ("", "unknown", ","):
        assert statuses(malformed) <= {401, 429}
    assert 429 in {ask(base, source_="127.0.0.3", X_Forwarded_For=f"203.0.113.{n}")[0] for n in range(40)}, "forged"
    known = {"X_Forwarded_User": "ada", "X_Forwarded_For": "192.0.2.1"}
    assert ask(base, **known)[0] == 200, "a user of the proxy has a limit of their own"


def test_another_account_of_this_machine_needs_a_token(lab, serve):
    if os.geteuid() != 0:
        pytest.skip("only root can become another account")

    def reads(base, account, **headers):
        os.seteuid(account)  # a socket belongs to the account that makes it
        try:
            return ask(base, **headers)[0] == 200
        finally:
            os.seteuid(0)

    secret = token(lab, "ada")
    base = serve()
    assert reads(base, 0)
    assert not reads(base, 65533)
    assert reads(base, 65533, **bearer(secret))
    assert not reads(serve("--login"), 0)
    assert reads(serve("--no-login"), 65533)


def test_the_account_of_a_connection_is_known_as_long_as_it_is_open(monkeypatch):
    for family, host in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
        with socket.create_server((host, 0), family=family) as server:
            client = socket.create_connection(server.getsockname()[:2])
            accepted = server.accept()[0]
            ends = client.getsockname()[:2], server.getsockname()[:2]
            assert account_of_peer(*ends) == os.geteuid()
            assert account_of_peer(ends[1], ("127.0.0.9", 1)) is None
            client.close()
            assert account_of_peer(*ends) is None, "a closed socket would belong to user 0"
            accepted.close()
    assert account_of_peer(("nowhere", 1), ends[1]) is None
    monkeypatch.delattr(socket, "AF_NETLINK")
    assert not accounts_are_visible()


def test_a_server_that_can_not_recognize_accounts_needs_a_choice(tmp_path, monkeypatch):
    workspace = Workspace(tmp_path)
    monkeypatch.delattr(socket, "AF_NETLINK")
    with pytest.raises(BenchError, match="account"):
        check(workspace, Settings())
    check(workspace, Settings(login=False))
    workspace.tokens.make("ada")
    check(workspace, Settings(login=True))


def test_settings_that_let_others_in_are_warned_of(lab, serve, bench):
    token(lab, "ada")
    everywhere = ("--host", "0.0.0.0")
    for options, warned in (
        (everywhere, "unencrypted"),
        ((*everywhere, "--trusted-proxy", "10.0.0.5"), ""),
        (("--no-login", "--allow", "run"), "every account"),
        (("--no-login",), ""),
        (("--allow", "run"), ""),
    ):
        serve(*options)
        serve.process.terminate()
        said = serve.process.stderr.read()
        assert warned in said and bool(said) == bool(warned), options
    refused = bench("serve", "--port", "0", "--host", "0.0.0.0", "--no-login", cwd=lab.workspace)
    assert refused.code == 2 and "--no-login" in refused.err


def test_a_page_of_another_site_can_open_pages_and_read_nothing_else(lab, serve):
    base = serve("--public-badges")
    link = {"Sec_Fetch_Mode": "navigate", "Sec_Fetch_Dest": "document", "Accept": "text/html"}
    for site in ("cross-site", "same-site"):
        read = {"Sec_Fetch_Site": site, "Sec_Fetch_Mode": "no-cors", "Sec_Fetch_Dest": "image"}
        for path in ("/api/query?sql=select+1", "/runs", "/metrics", "/feed.atom"):
            assert ask(base, path, **read)[0] == 403, (site, path)
            assert ask(base, path, "HEAD", **read)[0] == 403, (site, path)
        here = {"Sec_Fetch_Site": site}
        assert ask(base, "/runs", **link, **here)[0] == 200
        assert ask(base, "/api/query?sql=select+1", **link, **here)[0] == 403
        assert ask(base, "/runs", **link | {"Sec_Fetch_Dest": "iframe"}, **here)[0] == 403
        assert ask(base, "/runs", **link, **here, Sec_Purpose="prefetch")[0] == 403
        assert ask(base, "/badge/demo/qps.svg", **read)[0] == ask(base, "/badge/demo/qps.svg")[0] != 403
        assert ask(base, "/api/baselines", **read, **bearer(token(lab, "ada")))[0] == 200
    for site in ("same-origin", "none"):
        assert ask(base, "/api/baselines", Sec_Fetch_Site=site)[0] == 200
