"""`serving.load` against the mock server: its numbers, its evidence, and what it reports when something fails.

Trials run in this process. Tests that look for secrets, for processes that a server left running, or at whole trial
folders go through `bench run`.
"""

import csv
import hashlib
import json
import os
import signal
import ssl
import subprocess
import sys
import threading
from types import SimpleNamespace

import pytest
from laboratory import wait_until
from mocks.llm import MockLLM, build
from mocks.scripted import ScriptedServer
from services.quiet_moment import in_a_quiet_moment

from benchhouse.experiments.serving.load import ServerMetrics, serve

PROMPTS = {"prompt_tokens": 16, "output_tokens": 8}
LOAD = {"concurrency": 4, "requests": 60, "warmup": 0, "prompts": PROMPTS}


class FakeTokenizer:
    """A word is a token."""

    @classmethod
    def from_file(cls, file):
        return cls()

    def no_truncation(self):
        pass

    no_padding = no_truncation

    def encode(self, text, add_special_tokens):
        return SimpleNamespace(ids=text.split())


def target(url, **more):
    return {"url": url, "model": "mock", "api": "completions"} | more


def value(ctx, name):
    (only,) = ctx.values[name]
    return only


def median_ms(ctx, name):
    return ctx.histograms[name].quantile(0.5) / 1e6


def run(lab, targets, workload=None, code=0):
    """Run one scenario; its trials by the name of their target. A trial on a busy machine may be invalid."""
    named = [target(**each) | {"name": name} for name, each in targets.items()]
    lab.bench("run", lab.scenario("serving.load", targets=named, workload=LOAD | (workload or {})), code=code or None)
    return {trial.spec["target"]["name"]: trial for trial in lab.trials()}


def evidence_of(trial):
    """Every byte that a trial left."""
    return b"".join(path.read_bytes() for path in sorted(trial.folder.rglob("*")) if path.is_file())


def test_metrics_are_those_of_the_server(play):
    prices = {"per_million_input_tokens": 1, "per_million_output_tokens": 10}

    def measure():
        with MockLLM(ttft_ms=40, itl_ms=10) as server:
            ctx = play(serve, target(server.url, prices=prices), LOAD | {"slo": "ttft.p99<10s", "processes": 2})
            truth = server.truth()
        assert len(truth) == 60
        assert (value(ctx, "output_tokens"), value(ctx, "input_tokens")) == (8, 16)
        assert value(ctx, "error_rate") == value(ctx, "errors") == value(ctx, "timeouts") == 0
        rate = value(ctx, "requests_per_s")
        assert rate == value(ctx, "goodput")
        assert rate == pytest.approx(60 / ctx.facts["window_s"], rel=0.15)  # the window ends with the last answer
        assert value(ctx, "output_tokens_per_s") == pytest.approx(8 * rate)
        assert value(ctx, "input_tokens_per_s") == pytest.approx(16 * rate)
        assert value(ctx, "cost_per_request") == pytest.approx(16e-6 + 80e-6)
        assert value(ctx, "cost_per_million_output_tokens") == pytest.approx(10 + 2)
        ttfts = sorted(row.ttft_ns / 1e6 for row in truth)
        assert median_ms(ctx, "ttft") == pytest.approx(ttfts[30], abs=10)
        assert median_ms(ctx, "itl") == pytest.approx(10, abs=2)
        assert median_ms(ctx, "tpot") == pytest.approx(10, abs=2)
        assert 110 <= median_ms(ctx, "e2e") < 200
        assert median_ms(ctx, "e2e") == pytest.approx(median_ms(ctx, "e2e_sent"), rel=0.01)

    in_a_quiet_moment(measure)


def test_the_evidence_describes_the_load_that_the_keys_of_the_requirements_example_ask_for(lab):
    """component, service, model, prompt_len, gen_tokens, batch and concurrency, as that example writes them."""
    with MockLLM() as server:
        path = lab.workspace / "s.yaml"
        path.write_text(
            f"scenario: s\ntarget: {{url: '{server.url}', framework: mock}}\nworkload:\n"
            "  component: inference\n  service: vllm\n  model: mock\n  prompt_len: [4]\n  gen_tokens: [3]\n"
            "  batch: [1, 2]\n  concurrency: [2]\n  requests: 10\n  warmup: 0\n  records: true\n"
        )
        lab.bench("run", path, "--json", code=None)
    trials = {trial.metrics["config"]["batch"]: trial for trial in lab.trials()}
    assert sorted(trials) == [1, 2]
    for batch, trial in trials.items():
        measured = {row["metric"]: row["value"] for row in trial.metrics["benchhouse"]["measurements"]}
        assert measured["output_tokens"] == 3  # the mock answers a batch as one prompt
        assert ("cost_per_request" in measured, "prompts_per_s" in measured) == (False, batch == 2)
        assert trial.metrics["service"] == "vllm"
        facts = trial.meta["custom"]
        api = "completions" if batch == 2 else "chat"
        described = (facts["protocol"], facts["framework"], facts["deployment"], facts["server_version"])
        assert described == (f"openai {api}, streamed", "mock", "server", "0.1-mock")
        certificate = facts["certificate"]
        assert (certificate["loop"], certificate["offered"], certificate["delivered"]) == ("closed", 10, 10)
        assert certificate["in_flight"] == 2
        assert facts["tokens_counted_by"] == "server"
        assert facts["finishes"] == {"length": 10}
        assert len(facts["prompts"]["digest"]) == 64
        assert (trial.folder / "artifacts" / "requests.parquet").exists()
        assert not list((trial.folder / "artifacts").glob("*.spool"))
    assert lab.damage() == []


def test_the_seconds_of_the_load_add_up_to_its_counts(play):
    with MockLLM(ttft_ms=20, fail_status=500, fail_share=0.1, seed=4) as server:
        workload = {"requests": None, "duration": 1.5, "warmup": 0.3, "slo": "e2e.p99<1s"}
        ctx = play(serve, target(server.url), LOAD | workload)
    rows = list(csv.DictReader((ctx.artifacts / "intervals.csv").open()))
    assert [row["second"] for row in rows] == ["0", "1"]
    total = {name: sum(int(row[name]) for row in rows) for name in rows[0]}
    facts = ctx.facts
    rate = value(ctx, "requests_per_s")
    assert total["due"] == facts["measured"] + sum(facts["errors"].values())
    assert total["completed"] == pytest.approx(rate * 1.5, abs=4)  # one for each client
    assert value(ctx, "goodput") == pytest.approx(rate * total["good"] / facts["measured"])
    assert total["over:e2e.p99<1s"] == total["due"] - total["good"]
    assert int(rows[0]["in_flight"]) in (3, 4)
    assert value(ctx, "error_rate") == pytest.approx(facts["errors"]["http_500"] / total["due"])


def test_an_open_loop_is_certified_with_its_arrivals_and_the_digest_of_its_trace(play, tmp_path):
    file = tmp_path / "trace.txt"
    file.write_text("".join(f"{at / 20}\n" for at in range(30)))
    arrivals = {"kind": "trace", "file": str(file)}
    with MockLLM() as server:
        workload = LOAD | {"concurrency": None, "requests": None, "duration": 5, "arrivals": arrivals}
        ctx = play(serve, target(server.url), workload)
    assert ctx.facts["trace"]["sha256"] == hashlib.sha256(file.read_bytes()).hexdigest()
    assert ctx.facts["certificate"]["offered"] == 30
    assert 1.4 < ctx.facts["window_s"] < 2.5
    assert value(ctx, "requests_per_s") == pytest.approx(20, rel=0.05)  # of the trace, not less by the last answer


def test_a_secret_key_reaches_the_server_and_is_not_in_the_evidence(lab):
    """Also where a server repeats the key in its refusal."""
    secret = "sk-very-secret-indeed-42"
    usage = {"prompt_tokens": 1, "completion_tokens": 1}
    body = json.dumps({"choices": [{"text": "hi", "finish_reason": "stop"}], "usage": usage})

    def answer(wire):
        while wire.request():
            wire.send(f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())

    def refuse(wire):
        while wire.request():
            refusal = f'{{"error":"the key {secret} is wrong"}}'
            wire.send(f"HTTP/1.1 401 No\r\nContent-Length: {len(refusal)}\r\n\r\n{refusal}".encode())

    lab.variables["MY_KEY"] = secret
    with ScriptedServer(answer) as good, ScriptedServer(refuse) as bad:
        key = {"api_key": "$MY_KEY", "stream": False}
        trials = run(lab, {"good": {"url": good.url} | key, "bad": {"url": bad.url} | key}, {"requests": 5}, code=1)
        posts = [request for request in good.requests if request.startswith(b"POST")]
    assert trials["good"].outcome in ("succeeded", "invalid")
    assert trials["bad"].code == "no_good_answer" and "http_401" in trials["bad"].meta["failure"]["message"]
    assert len(posts) == 5
    assert all(b"Authorization: Bearer " + secret.encode() in request for request in posts)
    for path in lab.workspace.rglob("*"):
        assert not path.is_file() or secret.encode() not in path.read_bytes(), path


# Bad luck and bad input


def test_a_wrong_address_is_a_clear_failure(failure_of):
    for url, model, code, words in [
        ("http://127.0.0.1:1", "mock", "not_reached", "Connection refused"),
        ("http://no-such-host.invalid:80", "mock", "bad_load", "can't be resolved"),
        ("ftp://127.0.0.1", "mock", "bad_load", "not an http"),
        ("127.0.0.1:8000", "mock", "bad_load", "not an http"),
        ("http://127.0.0.1:1", "", "not_reached", "is the server up, and is target.url right?"),
        ("http://no-such-host.invalid", "", "not_reached", "is the server up, and is target.url right?"),
    ]:
        failure = failure_of(serve, target(url, model=model), LOAD)
        assert (failure.code, words in failure.message) == (code, True), (url, model, failure.message)


def test_the_words_of_a_server_that_refuses_all_are_in_the_failure_and_the_load_ends_early(failure_of):
    with MockLLM(check_model=True) as server:
        failure = failure_of(serve, target(server.url, model="gpt-9"), LOAD)
        early = failure_of(serve, target(server.url, model="gpt-9"), LOAD | {"requests": None, "duration": 600})
    assert failure.code == "no_good_answer"
    assert "http_404 60 times: the model does not exist" in failure.message
    assert failure.context.facts["certificate"]["delivered"] == 60
    assert failure.context.facts["errors"] == {"http_404": 60}
    assert early.code == "all_refused"
    assert "http_404: the model does not exist" in early.message


def test_a_tls_error_is_named(failure_of, tmp_path):
    made = subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
         "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", tmp_path / "key.pem",
         "-out", tmp_path / "cert.pem"],
        capture_output=True,
    )  # fmt: skip
    assert made.returncode == 0, made.stderr
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "cert.pem", tmp_path / "key.pem")
    with ScriptedServer(lambda wire: None, context) as server:
        failure = failure_of(serve, target(server.url), LOAD)
    assert failure.code == "not_reached" and "tls: " in failure.message


def test_errors_of_a_server_that_answers_nonsense_have_their_kind(failure_of):
    for flaw, kind in [
        ({"html": True}, "malformed"),
        ({"redirect": True}, "redirect"),
        ({"malformed": "json"}, "malformed"),
        ({"malformed": "sse"}, "malformed"),
        ({"error_share": 1}, "server_error"),
        ({"cut_share": 1, "itl_ms": 1}, "reset"),
    ]:
        with MockLLM(**flaw) as server:
            failure = failure_of(serve, target(server.url), LOAD | {"requests": 10})
        assert (failure.code, failure.context.facts["errors"]) == ("no_good_answer", {kind: 10}), flaw


def test_a_window_that_no_request_began_in_is_a_failure(failure_of):
    with MockLLM(ttft_ms=900, itl_ms=10) as server:
        failure = failure_of(serve, target(server.url), LOAD | {"requests": None, "warmup": 0.1, "duration": 0.3})
    assert failure.code == "window_too_short"
    assert "0.3 s" in failure.message


def test_a_server_that_goes_in_mid_run_is_a_failure_after_good_answers(failure_of):
    server = MockLLM(ttft_ms=5).start()

    def kill_when_busy():
        wait_until(lambda: server.stats()["requests"] > 50, "some requests")
        os.kill(server.pid, signal.SIGKILL)

    watching = threading.Thread(target=kill_when_busy)
    watching.start()
    try:
        failure = failure_of(serve, target(server.url), LOAD | {"requests": None, "duration": 60})
    finally:
        watching.join()
        server.stop()
    assert failure.code == "server_gone"
    assert "has not taken a connection" in failure.message
    assert failure.context.facts["measured"] > 0


# Tokens that the server does not count, and batches


@pytest.mark.parametrize("processes", [1, 2])
def test_the_tokenizer_of_the_target_counts_what_the_server_does_not(play, processes, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "tokenizers", SimpleNamespace(Tokenizer=FakeTokenizer))
    file = tmp_path / "tokenizer.json"
    file.write_text("{}")
    with MockLLM(no_usage=True, merge=2) as server:
        ctx = play(serve, target(server.url, tokenizer=str(file)), LOAD | {"processes": processes})
        uncounted = play(serve, target(server.url), LOAD)
    assert ctx.facts["tokens_counted_by"] == "tokenizer"
    assert (value(ctx, "output_tokens"), value(ctx, "input_tokens")) == (8, 16)
    assert value(ctx, "output_tokens_per_s") == pytest.approx(8 * value(ctx, "requests_per_s"))
    assert uncounted.facts["tokens_counted_by"] == "nobody"
    assert "output_tokens_per_s" not in uncounted.values and uncounted.histograms["ttft"].n
    assert "tpot" not in uncounted.histograms, "without a count there is no figure per token"


def test_a_batch_counts_its_prompts_and_a_chat_refuses_it(play, failure_of):
    with MockLLM() as server:
        ctx = play(serve, target(server.url), LOAD | {"batch": 4})
        assert value(ctx, "prompts_per_s") == pytest.approx(4 * value(ctx, "requests_per_s"))
        assert value(ctx, "input_tokens") == 64
        failure = failure_of(serve, target(server.url, api="chat"), LOAD | {"batch": 2})
    assert "a chat request holds one conversation" in failure.message


# Embedded


def embedded(*more, program=()):
    command = [*program, str(build()), "--port", "{port}", *more]
    return {"url": "http://127.0.0.1:{port}", "start": {"command": command, "ready": "/mock/stats"}}


DIES = """
import json, subprocess, sys, time, urllib.request
server = subprocess.Popen(sys.argv[1:])
while True:
    try:
        if json.load(urllib.request.urlopen(f"http://127.0.0.1:{sys.argv[3]}/mock/stats"))["requests"] > 50:
            break
    except OSError:
        pass
    time.sleep(0.05)
server.kill()
print('CUDA out of memory', flush=True)
sys.exit(7)
"""


def test_an_embedded_server_is_started_for_the_trial_and_gone_after_it(lab):
    """Also when the load fails."""
    targets = {"good": embedded(), "refuses": embedded("--check-model", "1") | {"model": "none"}}
    trials = run(lab, targets, code=1)
    good = trials["good"]
    assert good.outcome in ("succeeded", "invalid"), good.meta["failure"]
    assert good.meta["custom"]["deployment"] == "embedded"
    assert good.meta["custom"]["errors"] == {}
    assert good.meta["custom"]["services"]["server"]["start_s"] < 120
    assert (good.folder / "logs" / "server.log").exists()
    assert trials["refuses"].code == "no_good_answer"
    lab.is_tidy()


def test_the_log_of_an_embedded_server_that_dies_during_the_load_is_in_the_failure(lab):
    program = lab.root / "dying.py"
    program.write_text(DIES)
    server = embedded(program=(sys.executable, str(program)))
    trials = run(lab, {"dies": server}, {"requests": None, "duration": 30}, code=1)
    failure = trials["dies"].meta["failure"]
    assert failure["code"] == "server_died"
    assert "ended with 7 during the trial" in failure["message"]
    assert "CUDA out of memory" in failure["message"]
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
