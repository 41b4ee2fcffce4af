"""Endpoints as sources: pages that real servers gave, real servers, and servers that misbehave."""

import contextlib
import math
import socket
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from services.metrics_page import serving
from tables import check_rows

from benchhouse.worker.monitors import prometheus
from benchhouse.worker.monitors.prometheus import PrometheusEndpoint, choose, reader

PAGES = Path(__file__).parent / "pages"


def values(source: PrometheusEndpoint) -> dict[str, float]:
    return {series.name: value for series, value in zip(source.series, source.sample(), strict=True)}


def read(page: str, patterns=(), labels=()) -> dict[str, float]:
    chosen = choose(page, patterns, labels)
    return dict(zip((wanted.series.name for _, wanted in chosen), reader(chosen)(page), strict=True))


def test_vllm_is_told_in_the_words_that_all_servers_share():
    with serving((PAGES / "vllm_0_32.txt").read_bytes()) as url:
        source = PrometheusEndpoint(url, name="llm")
        assert source.name == "service:llm"
        assert values(source) == pytest.approx(
            {
                "requests_waiting": 0, "requests_running": 0, "kv_cache_used": 0, "prompt_tokens": 15,
                "output_tokens": 48, "requests_done": 3, "requests_preempted": 0, "queue_time": 6.2e-5,
            },
            rel=1e-2,
        )  # fmt: skip
        assert source.problems == []
    assert {item.family for item in source.series} == {"service"}


def test_triton_is_told_in_the_same_words_over_all_its_models():
    page = (PAGES / "triton_2_51.txt").read_text()
    page = page.replace('success{model="text",version="1"} 0', 'success{model="text",version="1"} 5')
    page = page.replace('success{model="slow",version="1"} 0', 'success{model="slow",version="1"} 2')
    seen = read(page)
    assert seen["requests_done"] == 7
    assert set(seen) == {"requests_waiting", "requests_done", "requests_failed", "queue_time", "executions"}


def test_chosen_names_are_summed_over_labels_or_kept_apart():
    page = """# TYPE a_total counter
a_total{model="x",worker="1"} 1
a_total{model="x",worker="2"} 2
a_total{model="y",worker="1"} 4
# TYPE b_ratio gauge
b_ratio{worker="1"} 0.2
b_ratio{worker="2"} 0.4
c 9
"""
    assert read(page, ["a_*"]) == {"a_total": 7}
    assert read(page, ["a_*"], ["model"]) == {"a_total_x": 3, "a_total_y": 4}
    assert read(page, ["b_*"]) == pytest.approx({"b_ratio": 0.3}), "shares are averaged"
    assert read(page, ["?"]) == {"c": 9}


def test_lines_of_every_shape_are_read():
    rows = [
        ("x 1", 1), ("x 1.5e3 1700000000000", 1500), ("x{} 2", 2), ("x\t3", 3), ('x{a="}"} 4', 4),
        ('x{a="\\"b\\\\",c="d"} 5', 5), ('x{a="ü"} 6', 6), ("x +Inf", math.nan), ("x NaN", math.nan),
        ('x 7 # {trace_id="abc"} 0.1 1700000000.0', 7), ("x 8\r", 8),
    ]  # fmt: skip

    def check(line, value):
        assert read(f"{line}\n", ["x"]) == pytest.approx({"x": value}, nan_ok=True)

    check_rows(check, rows)


def test_a_line_that_can_not_be_read_costs_its_own_value_alone():
    assert read('x 1\ny word\nz{a="b} 3\nw 4\n', ["*"]) == {"x": 1, "w": 4}


def test_a_redirect_is_not_followed():
    def elsewhere(handler):
        handler.wfile.write(b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n")

    with serving(elsewhere) as url:
        assert "answers 302 Found" in PrometheusEndpoint(url).problems[0]


def test_openmetrics_is_read_and_buckets_are_left_out():
    page = """# TYPE http_seconds histogram
# UNIT http_seconds seconds
# HELP http_seconds How long.
http_seconds_bucket{le="1.0"} 3 # {trace_id="q"} 0.5
http_seconds_bucket{le="+Inf"} 4
http_seconds_count 4
http_seconds_sum 5.5
http_seconds_created 1700000000.0
# TYPE jobs counter
jobs_total 12
# EOF"""
    assert read(page) == {"http_seconds_count": 4, "http_seconds_sum": 5.5, "jobs_total": 12}
    chosen = {wanted.series.name: wanted.series for _, wanted in choose(page, (), ())}
    assert {item.kind for item in chosen.values()} == {"counter"}
    assert chosen["http_seconds_sum"].unit == "s"
    assert "How long." in chosen["http_seconds_sum"].description


def test_families_of_exporters_are_told_by_their_names():
    names = {
        "DCGM_FI_DEV_GPU_UTIL": "gpu",
        "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL": "nvlink",
        "DCGM_FI_DEV_PCIE_REPLAY_COUNTER": "pcie",
        "DCGM_FI_DEV_POWER_USAGE": "energy",
        "node_network_receive_bytes_total": "network",
        "ping_loss_ratio": "network",
        "node_load1": "node",
        "problem_counter": "node",
        "process_cpu_seconds_total": "process",
        "my_own": "service",
    }
    page = "".join(f"{name} 1\n" for name in names)
    chosen = choose(page, ["*"], ())
    assert {name: wanted.series.family for name, wanted in chosen} == names


def test_names_that_look_alike_get_a_number():
    assert read("a:b 1\na_b 2\nA_B 3\n", ["*"]) == {"a_b": 1, "a_b_2": 2, "a_b_3": 3}


def test_what_is_over_the_budget_is_dropped_and_told(monkeypatch):
    monkeypatch.setattr(prometheus, "SERIES_BUDGET", 10)
    with serving("".join(f"m{at} {at}\n" for at in range(50)).encode()) as url:
        source = PrometheusEndpoint(url)
        assert len(source.sample()) == len(source.series) == 10
    assert source.problems == [f"{source.name}: 50 series are chosen, 10 are kept; name fewer in `series`"]


def test_garbage_is_named_once_and_then_nan():
    with serving(b"<html>\n<body>welcome</body>\n") as url:
        source = PrometheusEndpoint(url, name="odd", patterns=["x"])
        for _ in range(3):
            assert list(map(math.isnan, source.sample())) == [True]
        assert source.problems == [f"service:odd: {url} answers no metrics but '<html>'; values are missing"]


@pytest.mark.parametrize(
    ("body", "words"),
    [(b"\x00\xff\x80" * 1000, "answers no metrics"), (b"x 1\ny 2", "middle of a line"), (b"", "without any")],
)
def test_other_garbage_is_named_too(body, words):
    with serving(body) as url:
        source = PrometheusEndpoint(url, patterns=["x"])
        source.sample()
        assert len(source.problems) == 1
        assert words in source.problems[0]


def test_a_refusal_and_a_closed_port_are_told():
    with serving(b"no", status=503) as url:
        assert "answers 503" in PrometheusEndpoint(url).problems[0]
    source = PrometheusEndpoint(url, patterns=["x", "y*"])
    assert "refused" in source.problems[0]
    assert [item.name for item in source.series] == ["x"], "a pattern can't be waited for, a name can"


def test_an_address_that_is_none_is_told():
    assert "is not the address of a server" in PrometheusEndpoint("localhost:9100/metrics").problems[0]


def test_an_endpoint_that_comes_up_later_is_read_then():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    source = PrometheusEndpoint(f"http://127.0.0.1:{port}/metrics", name="late")
    assert all(map(math.isnan, source.sample()))
    server = ThreadingHTTPServer(("127.0.0.1", port), BaseHTTPRequestHandler)

    def answer(handler):
        handler.wfile.write(b"HTTP/1.0 200 OK\r\n\r\n" + (PAGES / "vllm_0_32.txt").read_bytes())

    server.RequestHandlerClass = type(
        "H", (BaseHTTPRequestHandler,), {"do_GET": answer, "log_message": lambda *a: None}
    )
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        assert values(source)["output_tokens"] == 48
    finally:
        server.shutdown()
        server.server_close()


def _hangs(handler):
    time.sleep(20)


def _drips_head(handler):
    with contextlib.suppress(OSError):
        for _ in range(400):
            handler.wfile.write(b"H")
            time.sleep(0.05)


def _drips_body(handler):
    with contextlib.suppress(OSError):
        handler.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
        for _ in range(400):
            handler.wfile.write(b"x")
            time.sleep(0.05)


@pytest.mark.parametrize("answer", [_hangs, _drips_head, _drips_body])
def test_an_endpoint_that_hangs_or_drips_costs_no_more_than_the_limit(answer, monkeypatch):
    monkeypatch.setattr(prometheus, "LIMIT_S", 0.3)
    with serving(answer) as url:
        began = time.monotonic()
        source = PrometheusEndpoint(url, patterns=["x"])
        assert all(map(math.isnan, source.sample()))
        assert time.monotonic() - began < 15
    assert source.problems == [f"{source.name}: {url} did not answer within 0.3 s; values are missing"]


def test_an_endless_page_ends_at_the_limit_of_size(monkeypatch):
    monkeypatch.setattr(prometheus, "LIMIT_BYTES", 1 << 20)

    def endless(handler):
        with contextlib.suppress(OSError):
            handler.wfile.write(b"HTTP/1.1 200 OK\r\n\r\n")
            while True:
                handler.wfile.write(b"x 1\n" * 16384)

    with serving(endless) as url:
        source = PrometheusEndpoint(url, patterns=["x"])
    assert "more than 1 MiB" in source.problems[0]


def test_chunks_are_joined():
    def chunked(handler):
        handler.wfile.write(
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nx 1\r\n1\r\n\n\r\n4\r\ny 2\n\r\n0\r\n\r\n"
        )

    with serving(chunked) as url:
        assert values(PrometheusEndpoint(url)) == {"x": 1, "y": 2}


def test_a_password_in_the_address_is_not_told():
    source = PrometheusEndpoint("http://me:secret@127.0.0.1:1/metrics?token=secret")
    assert "secret" not in source.name + source.problems[0]


def test_a_page_of_vllm_is_read_in_less_than_two_milliseconds_of_cpu_time():
    page = (PAGES / "vllm_0_32.txt").read_text()
    values_of = reader(choose(page, (), ()))
    best = min(_timed(lambda: values_of(page)) for _ in range(50))
    assert best < 2e-3


def _timed(what) -> float:
    began = time.thread_time()
    what()
    return time.thread_time() - began


def test_every_known_name_is_a_declared_series():
    assert {wanted.series.name for _, wanted in prometheus.KNOWN} == {item.name for item in prometheus.SERIES}
