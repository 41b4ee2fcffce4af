"""`serving.load` from end to end: `bench run` of a scenario against the mock server, and what is in the evidence."""

import csv
import hashlib
import json
import os
import signal
import ssl
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from laboratory import wait_until
from mocks.llm import MockLLM, build
from mocks.scripted import ScriptedServer

from benchhouse.experiments.serving.load import ServerMetrics

PROMPTS = {"prompt_tokens": 16, "output_tokens": 8}
FAKE_TOKENIZERS = '''
"""A fake of the library: a word is a token."""


class Encoded:
    def __init__(self, text):
        self.ids = text.split()


class Tokenizer:
    @classmethod
    def from_file(cls, file):
        return cls()

    def no_truncation(self):
        pass

    no_padding = no_truncation

    def encode(self, text, add_special_tokens):
        return Encoded(text)
'''


def run(lab, url, workload=None, code=0, **target):
    """Run one trial to its end; the trial, and its values by metric and statistic.

    A trial on a busy machine may say that it is invalid; its numbers are there all the same.
    """
    scenario = lab.scenario(
        "serving.load",
        target={"url": url, "model": "mock", "api": "completions"} | target,
        workload={"concurrency": 4, "requests": 60, "warmup": 0, "prompts": PROMPTS} | (workload or {}),
    )
    lab.bench("run", scenario, "--json", code=code or None)
    (trial,) = lab.trials()
    assert trial.outcome in (("failed",) if code else ("succeeded", "invalid")), trial.meta["failure"]
    return trial, {(row["metric"], row["stat"]): row["value"] for row in trial.metrics["benchhouse"]["measurements"]}


def evidence_of(trial):
    """Every byte that a trial left."""
    return b"".join(path.read_bytes() for path in sorted(trial.folder.rglob("*")) if path.is_file())


@pytest.mark.serial
def test_metrics_are_those_of_the_server(lab):
    with MockLLM(ttft_ms=40, itl_ms=10) as server:
        trial, value = run(lab, server.url, {"slo": "ttft.p99<10s", "processes": 2})
        truth = server.truth()
    ttfts = sorted(row.ttft_ns / 1e6 for row in truth)
    assert value["ttft", "p50"] == pytest.approx(ttfts[30], abs=10)
    assert value["itl", "p50"] == pytest.approx(10, abs=2)
    assert value["tpot", "p50"] == pytest.approx(10, abs=2)
    assert 110 <= value["e2e", "p50"] < 200
    assert value["e2e", "p50"] == pytest.approx(value["e2e_sent", "p50"])
    assert (value["output_tokens", "value"], value["input_tokens", "value"]) == (8, 16)
    assert (value["error_rate", "value"], value["errors", "value"], value["timeouts", "value"]) == (0, 0, 0)
    rate = value["requests_per_s", "value"]
    assert rate == pytest.approx(60 / trial.meta["custom"]["window_s"], rel=0.15)  # that is to the last answer
    assert value["output_tokens_per_s", "value"] == pytest.approx(8 * rate)
    assert value["input_tokens_per_s", "value"] == pytest.approx(16 * rate)
    assert value["goodput", "value"] == value["requests_per_s", "value"]
    assert ("cost_per_request", "value") not in value and ("prompts_per_s", "value") not in value
    assert len(truth) == 60


def test_the_keys_of_the_requirements_example_drive_it(lab):
    """component, service, model, prompt_len, gen_tokens, batch and concurrency, as that example writes them."""
    with MockLLM() as server:
        path = lab.workspace / "example.yaml"
        path.write_text(
            f"scenario: example\ntarget: {{url: '{server.url}'}}\nworkload:\n  component: inference\n  service: vllm\n"
            "  model: mock\n  prompt_len: [4, 8]\n  gen_tokens: [3]\n  batch: [1, 2]\n  concurrency: [2]\n"
            "  requests: 10\n  warmup: 0\n"
        )
        lab.bench("run", path, "--json", code=None)
    trials = lab.trials("example")
    assert len(trials) == 4
    for trial in trials:
        value = {row["metric"]: row["value"] for row in trial.metrics["benchhouse"]["measurements"]}
        assert value["output_tokens"] == 3  # the mock answers a batch as one prompt
        api = "completions" if trial.metrics["config"]["batch"] == 2 else "chat"
        assert trial.meta["custom"]["protocol"] == f"openai {api}, streamed"
        assert trial.metrics["service"] == "vllm"


def test_the_evidence_says_how_the_load_was_and_how_it_was_counted(lab):
    with MockLLM() as server:
        trial, _ = run(lab, server.url, {"records": True}, framework="mock")
    facts = trial.meta["custom"]
    assert facts["certificate"]["loop"] == "closed"
    assert (facts["certificate"]["offered"], facts["certificate"]["delivered"]) == (60, 60)
    assert facts["certificate"]["in_flight"] == 4
    assert facts["tokens_counted_by"] == "server"
    assert (facts["protocol"], facts["framework"], facts["deployment"]) == (
        "openai completions, streamed",
        "mock",
        "server",
    )
    assert facts["server_version"] == "0.1-mock"
    assert facts["finishes"] == {"length": 60}
    assert len(facts["prompts"]["digest"]) == 64
    assert (trial.folder / "artifacts" / "requests.parquet").exists()
    assert not list((trial.folder / "artifacts").glob("*.spool"))
    assert lab.damage() == []


def test_the_seconds_of_the_load_add_up_to_its_counts(lab):
    with MockLLM(ttft_ms=20, fail_status=500, fail_share=0.1, seed=4) as server:
        workload = {"requests": None, "duration": 2.5, "warmup": 0.3, "slo": "e2e.p99<1s"}
        trial, value = run(lab, server.url, workload)
    rows = list(csv.DictReader((trial.folder / "artifacts" / "intervals.csv").open()))
    assert [row["second"] for row in rows] == ["0", "1", "2"]
    total = {name: sum(int(row[name]) for row in rows) for name in rows[0]}
    facts = trial.meta["custom"]
    assert total["due"] == facts["measured"] + sum(facts["errors"].values())
    assert total["completed"] == pytest.approx(value["requests_per_s", "value"] * 2.5, abs=4)  # one for each client
    assert value["goodput", "value"] == pytest.approx(
        value["requests_per_s", "value"] * total["good"] / facts["measured"]
    )
    assert total["over:e2e.p99<1s"] == total["due"] - total["good"]
    assert int(rows[0]["in_flight"]) in (3, 4)
    assert value["error_rate", "value"] == pytest.approx(facts["errors"]["http_500"] / total["due"])


def test_an_open_loop_is_certified_with_its_arrivals_and_the_digest_of_its_trace(lab):
    file = lab.root / "trace.txt"
    file.write_text("".join(f"{at / 20}\n" for at in range(30)))
    with MockLLM() as server:
        workload = {
            "concurrency": None,
            "requests": None,
            "duration": 5,
            "arrivals": {"kind": "trace", "file": str(file)},
        }
        trial, value = run(lab, server.url, workload)
    assert trial.meta["custom"]["trace"]["sha256"] == hashlib.sha256(file.read_bytes()).hexdigest()
    assert trial.meta["custom"]["certificate"]["offered"] == 30
    assert 1.4 < trial.meta["custom"]["window_s"] < 2.5
    assert value["requests_per_s", "value"] == pytest.approx(
        20, rel=0.05
    )  # as in the trace, not less by the last answer


def test_prices_give_costs(lab):
    with MockLLM(ttft_ms=5) as server:
        prices = {"per_million_input_tokens": 1, "per_million_output_tokens": 10}
        _, value = run(lab, server.url, prices=prices)
    assert value["cost_per_request", "value"] == pytest.approx(16e-6 + 80e-6)
    assert value["cost_per_million_output_tokens", "value"] == pytest.approx(10 + 2)


def test_a_secret_key_reaches_the_server_and_no_evidence(lab):
    secret = "sk-very-secret-indeed-42"
    body = json.dumps(
        {"choices": [{"text": "hi", "finish_reason": "stop"}], "usage": {"prompt_tokens": 1, "completion_tokens": 1}}
    )

    def script(wire):
        while wire.request():
            wire.send(f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())

    lab.variables["MY_KEY"] = secret
    with ScriptedServer(script) as server:
        trial, _ = run(lab, server.url, {"requests": 5}, api_key="$MY_KEY", stream=False)
        posts = [request for request in server.requests if request.startswith(b"POST")]
    assert len(posts) == 5
    assert all(b"Authorization: Bearer " + secret.encode() in request for request in posts)
    assert secret.encode() not in evidence_of(trial)
    for path in lab.workspace.rglob("*"):
        assert not path.is_file() or secret.encode() not in path.read_bytes(), path


def test_a_key_that_the_server_repeats_in_its_refusal_is_redacted(lab):
    secret = "sk-very-secret-indeed-43"

    def script(wire):
        while wire.request():
            said = f'{{"error":"the key {secret} is wrong"}}'
            wire.send(f"HTTP/1.1 401 No\r\nContent-Length: {len(said)}\r\n\r\n{said}".encode())

    lab.variables["MY_KEY"] = secret
    with ScriptedServer(script) as server:
        trial, _ = run(lab, server.url, {"requests": 5}, code=1, api_key="$MY_KEY")
    assert trial.code == "no_good_answer" and "http_401" in trial.meta["failure"]["message"]
    assert secret.encode() not in evidence_of(trial)


# Bad luck and bad input


@pytest.mark.parametrize(
    ("url", "code", "said"),
    [
        ("http://127.0.0.1:1", "not_reached", "Connection refused"),
        ("http://no-such-host.invalid:80", "bad_load", "can't be resolved"),
        ("ftp://127.0.0.1", "bad_load", "not an http"),
        ("127.0.0.1:8000", "bad_load", "not an http"),
    ],
)
def test_a_wrong_address_is_a_clear_failure(lab, url, code, said):
    trial, _ = run(lab, url, code=1)
    assert (trial.outcome, trial.code) == ("failed", code)
    assert said in trial.meta["failure"]["message"]


def test_a_wrong_model_is_told_in_the_servers_words_and_the_certificate_is_kept(lab):
    with MockLLM(check_model=True) as server:
        trial, _ = run(lab, server.url, code=1, model="gpt-9")
    assert trial.code == "no_good_answer"
    assert "http_404 60 times: the model does not exist" in trial.meta["failure"]["message"]
    assert trial.meta["custom"]["certificate"]["delivered"] == 60
    assert trial.meta["custom"]["errors"] == {"http_404": 60}


def test_a_server_that_refuses_all_is_not_asked_for_the_whole_time(lab):
    with MockLLM(check_model=True) as server:
        trial, _ = run(lab, server.url, {"requests": None, "duration": 60}, code=1, model="gpt-9")
    assert trial.code == "all_refused"
    assert "http_404: the model does not exist" in trial.meta["failure"]["message"]
    assert trial.meta["duration_s"] < 55


@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "http://no-such-host.invalid"])
def test_nobody_there_to_say_which_model_it_has_is_told_as_that(lab, url):
    trial, _ = run(lab, url, code=1, model="")
    assert trial.code == "not_reached"
    assert "is the server up, and is target.url right?" in trial.meta["failure"]["message"]


def test_a_tls_error_is_told(lab, tmp_path):
    made = subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1", "-addext",
         "subjectAltName=IP:127.0.0.1", "-keyout", tmp_path / "key.pem", "-out", tmp_path / "cert.pem"],
        capture_output=True,
    )  # fmt: skip
    assert made.returncode == 0, made.stderr
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "cert.pem", tmp_path / "key.pem")
    with ScriptedServer(lambda wire: None, context) as server:
        trial, _ = run(lab, server.url, code=1)
    assert trial.code == "not_reached" and "tls: " in trial.meta["failure"]["message"]


@pytest.mark.parametrize(
    ("flaw", "kind"),
    [
        ({"html": True}, "malformed"),
        ({"redirect": True}, "redirect"),
        ({"malformed": "json"}, "malformed"),
        ({"malformed": "sse"}, "malformed"),
        ({"error_share": 1}, "server_error"),
        ({"cut_share": 1, "itl_ms": 1}, "reset"),
    ],
)
def test_a_server_that_answers_nonsense_is_told_by_its_kind(lab, flaw, kind):
    with MockLLM(**flaw) as server:
        trial, _ = run(lab, server.url, {"requests": 10}, code=1)
    assert trial.code == "no_good_answer"
    assert trial.meta["custom"]["errors"] == {kind: 10}


def test_a_window_that_no_request_began_in_is_told(lab):
    with MockLLM(ttft_ms=900, itl_ms=10) as server:
        trial, _ = run(lab, server.url, {"requests": None, "warmup": 0.1, "duration": 0.3}, code=1)
    assert trial.code == "window_too_short"
    assert "0.3 s" in trial.meta["failure"]["message"]


def test_a_server_that_goes_in_mid_run_is_told(lab):
    server = MockLLM(ttft_ms=5).start()
    watching = threading.Thread(target=_kill_when_busy, args=(server,))
    watching.start()
    try:
        trial, _ = run(lab, server.url, {"requests": None, "duration": 60}, code=1)
    finally:
        watching.join()
        server.stop()
    assert trial.code == "server_gone"
    assert "has not taken a connection" in trial.meta["failure"]["message"]
    assert trial.meta["custom"]["measured"] > 0


def _kill_when_busy(server):
    wait_until(lambda: server.stats()["requests"] > 50, "some requests")
    os.kill(server.pid, signal.SIGKILL)


# Tokens that the server does not count, and batches


@pytest.mark.parametrize("processes", [1, 2])
def test_the_targets_tokenizer_counts_what_the_server_does_not(lab, processes):
    (lab.root / "site" / "tokenizers.py").write_text(FAKE_TOKENIZERS)
    (lab.root / "tokenizer.json").write_text("{}")
    with MockLLM(no_usage=True, merge=2) as server:
        trial, value = run(lab, server.url, {"processes": processes}, tokenizer=str(lab.root / "tokenizer.json"))
    assert trial.meta["custom"]["tokens_counted_by"] == "tokenizer"
    assert (value["output_tokens", "value"], value["input_tokens", "value"]) == (8, 16)
    assert value["output_tokens_per_s", "value"] == pytest.approx(8 * value["requests_per_s", "value"])


def test_without_a_count_there_is_no_figure_by_token(lab):
    with MockLLM(no_usage=True) as server:
        trial, value = run(lab, server.url)
    assert trial.meta["custom"]["tokens_counted_by"] == "nobody"
    assert ("output_tokens_per_s", "value") not in value and ("tpot", "p50") not in value
    assert ("ttft", "p50") in value


def test_a_batch_counts_its_prompts_and_a_chat_refuses_it(lab):
    with MockLLM() as server:
        _, value = run(lab, server.url, {"batch": 4})
        assert value["prompts_per_s", "value"] == pytest.approx(4 * value["requests_per_s", "value"])
        assert value["input_tokens", "value"] == 64
        scenario = lab.scenario("serving.load", name="chat", target={"url": server.url, "api": "chat"},
                                workload={"concurrency": 1, "batch": 2})  # fmt: skip
        assert "a chat request holds one conversation" in lab.bench("run", scenario, code=1).stderr


# Embedded


EMBEDDED = {
    "url": "http://127.0.0.1:{port}",
    "start": {"command": [str(build()), "--port", "{port}"], "ready": "/mock/stats"},
}


def test_an_embedded_server_is_started_for_the_trial_and_gone_after_it(lab):
    trial, value = run(lab, **EMBEDDED)
    assert value["error_rate", "value"] == 0
    assert trial.meta["custom"]["deployment"] == "embedded"
    assert trial.meta["custom"]["services"]["server"]["start_s"] < 120
    assert (trial.folder / "logs" / "server.log").exists()
    lab.is_tidy()


def test_an_embedded_server_is_gone_also_when_the_load_fails(lab):
    start = EMBEDDED["start"] | {"command": [*EMBEDDED["start"]["command"], "--check-model", "1"]}
    trial, _ = run(lab, EMBEDDED["url"], code=1, start=start, model="none")
    assert trial.code == "no_good_answer"
    lab.is_tidy()


def test_an_embedded_server_that_dies_under_the_load_is_told_with_its_log(lab):
    program = Path(lab.root / "dying.py")
    program.write_text(
        "import subprocess, sys, time\n"
        "server = subprocess.Popen(sys.argv[1:])\n"
        "time.sleep(2.5)\n"
        "server.kill()\n"
        "print('CUDA out of memory', flush=True)\n"
        "sys.exit(7)\n"
    )
    start = EMBEDDED["start"] | {"command": [sys.executable, str(program), *EMBEDDED["start"]["command"]]}
    trial, _ = run(lab, EMBEDDED["url"], {"requests": None, "duration": 30}, code=1, start=start)
    assert trial.code == "server_died"
    assert "ended with 7 during the trial" in trial.meta["failure"]["message"]
    assert "CUDA out of memory" in trial.meta["failure"]["message"]
    lab.is_tidy()


# Metrics of the server


def test_the_growth_of_the_servers_counters_is_kept_and_its_queue_is_a_metric():
    first = """# HELP x
vllm:request_queue_time_seconds_sum{m="a"} 1.5
vllm:request_queue_time_seconds_count{m="a"} 10
vllm:prefix_cache_hits{m="a"} 5
vllm:prefix_cache_hits{m="b"} 1
other 3
"""
    second = """vllm:request_queue_time_seconds_sum{m="a"} 4.5
vllm:request_queue_time_seconds_count{m="a"} 30
vllm:prefix_cache_hits{m="a"} 9
vllm:prefix_cache_hits{m="b"} 2
other 9
vllm:queue_time_bad NaNN
"""
    pages = [first, second]

    def script(wire):
        if wire.request():
            page = pages[min(wire.number, 1)].encode()
            wire.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(page) + page)

    with ScriptedServer(script) as server:
        metrics = ServerMetrics([f"{server.url}/v1"])
        metrics.finish()
    assert metrics.queue_delay_ms() == pytest.approx(150)
    assert metrics.facts()["vllm:prefix_cache_hits"] == 5
    assert "other" not in metrics.facts()


def test_a_server_without_metrics_is_no_error():
    metrics = ServerMetrics(["http://127.0.0.1:1"])
    metrics.finish()
    assert (metrics.queue_delay_ms(), metrics.facts()) == (None, {})
