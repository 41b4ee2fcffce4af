"""Several clients and several servers in one trial, from end to end: `bench run`, and what is in the evidence."""

import json
import os
import signal
import threading
from pathlib import Path

import pytest
from laboratory import wait_until
from mocks.llm import MockLLM, build
from mocks.scripted import ScriptedServer
from services.triton import CannotInstallError, Triton

from benchhouse.experiments.serving.infer import InferTarget, _together
from benchhouse.experiments.serving.load import ServerMetrics, ServingTarget
from benchhouse.schema.service import split_endpoints

PROMPTS = {"prompt_tokens": 16, "output_tokens": 4}


def run(lab, experiment="serving.load", workload=None, code=None, services=None, **target):
    """One trial; on a busy machine it may say that it is invalid."""
    scenario = lab.scenario(
        experiment,
        target=({"model": "mock", "api": "completions"} if experiment == "serving.load" else {}) | target,
        workload={"concurrency": 4, "requests": 80, "warmup": 0} | (workload or {}),
        **({"services": services} if services else {}),
    )
    lab.bench("run", scenario, "--json", code=code)
    (trial,) = lab.trials()
    values = {row["metric"]: row["value"] for row in trial.metrics["benchhouse"]["measurements"]}
    return trial, values


def reasons(trial):
    return {reason["code"]: reason["message"] for reason in trial.meta["custom"]["certificate"]["problems"]}


def clients_of(port):
    """Processes that have a connection to that port of this machine."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    sockets = {f"socket:[{row[9]}]" for row in rows if row[2].endswith(f":{port:04X}") and row[3] == "01"}
    found = set()
    for link in Path("/proc").glob("[0-9]*/fd/*"):
        try:
            if os.readlink(link) in sockets:
                found.add(int(link.parts[2]))
        except OSError:
            continue
    return found - {os.getpid()}


def test_the_load_is_spread_and_each_replica_is_told(lab):
    with MockLLM(ttft_ms=5) as one, MockLLM(ttft_ms=5) as other:
        trial, values = run(lab, url=f"{one.url},{other.url}", workload={"processes": 2, "prompts": PROMPTS})
        seen = {server.url: server.stats()["requests"] for server in (one, other)}
    told = trial.meta["custom"]["endpoints"]
    assert {url: place["good"] for url, place in told.items()} == seen and min(seen.values()) >= 30
    assert all(place["errors"] == {} and not place["gone"] for place in told.values())
    assert values["errors"] == 0 and "endpoint_dead" not in reasons(trial)


def test_a_replica_that_is_not_there_makes_the_trial_invalid_and_is_named(lab):
    with MockLLM() as gone:
        pass
    with MockLLM(ttft_ms=5) as server:
        trial, _ = run(lab, url=f"{gone.url}, {server.url}", model="", workload={"prompts": PROMPTS})
    assert trial.outcome == "invalid"
    assert reasons(trial)["endpoint_dead"].startswith(f"{gone.url} takes no connection (refused: Connection refused)")
    told = trial.meta["custom"]["endpoints"]
    assert (told[gone.url]["good"], told[gone.url]["gone"]) == (0, True)
    assert told[server.url]["good"] > 60


def test_replicas_of_a_service_share_the_load(lab):
    recipe = {
        "name": "mock",
        "program": [str(build())],
        "command": ["{program}", "--port", "{port}", "--ttft-ms", "5"],
        "endpoint": "http://127.0.0.1:{port}",
    }
    (lab.workspace / "recipes").mkdir()
    (lab.workspace / "recipes" / "mock.yaml").write_text(json.dumps(recipe))
    services = {"llm": {"recipe": "mock", "replicas": 3}}
    trial, _ = run(lab, url="service:llm", services=services, workload={"requests": 90, "prompts": PROMPTS})
    told = trial.meta["custom"]["endpoints"]
    assert len(told) == 3 and sum(place["good"] for place in told.values()) == 90
    assert min(place["good"] for place in told.values()) >= 20


def test_a_load_process_that_is_killed_makes_the_trial_invalid_and_the_others_measure_on(lab):
    with MockLLM(ttft_ms=20) as server:

        def kill_one():
            wait_until(lambda: server.stats()["requests"] > 30, "the load")
            os.kill(max(clients_of(server.port)), signal.SIGKILL)

        threading.Thread(target=kill_one, daemon=True).start()
        workload = {"concurrency": 6, "requests": None, "duration": 3, "processes": 3, "prompts": PROMPTS}
        trial, values = run(lab, url=server.url, workload=workload)
    assert trial.outcome == "invalid"
    certificate = trial.meta["custom"]["certificate"]
    (lost,) = certificate["lost"]
    assert (lost["how"], lost["in_flight"], certificate["processes"]) == ("ended by signal 9", 2, 2)
    assert f"load process {lost['shard']} ended by signal 9" in reasons(trial)["shard_lost"]
    assert trial.meta["custom"]["errors"] == {"lost": 2} and values["errors"] == 2
    assert values["requests_per_s"] > 20 and 0 < values["error_rate"] < 0.05


def test_a_load_whose_processes_all_die_fails_with_how(lab):
    with MockLLM(ttft_ms=20) as server:

        def kill_all():
            wait_until(lambda: server.stats()["requests"] > 30, "the load")
            for pid in clients_of(server.port):
                os.kill(pid, signal.SIGKILL)

        threading.Thread(target=kill_all, daemon=True).start()
        trial, _ = run(lab, url=server.url, workload={"requests": None, "duration": 30, "processes": 2}, code=1)
    assert trial.meta["failure"]["code"] == "shards_lost"
    assert "load process 1 ended by signal 9" in trial.meta["failure"]["message"]


def test_metrics_of_all_servers_are_added_up_and_one_without_is_left_out():
    def script(wire):
        if wire.request():
            page = f"vllm:prompt_tokens_total {wire.number * 10}\n".encode()
            wire.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(page) + page)

    with ScriptedServer(script) as one, ScriptedServer(script) as other:
        metrics = ServerMetrics([one.url, "http://127.0.0.1:1", f"{other.url}/v1"])
        metrics.finish()
    assert metrics.facts() == {"vllm:prompt_tokens_total": 20}


@pytest.fixture
def another_triton():
    try:
        server = Triton.start(["identity_fp32"])
    except CannotInstallError as reason:
        pytest.skip(str(reason))
    yield server
    server.stop()


def test_two_triton_servers_share_the_load_and_their_accounts_are_one(lab, triton, another_triton):
    urls = f"{triton.url},{another_triton.url}"
    trial, values = run(
        lab, "serving.infer", {"shapes": {"INPUT0": [8]}, "processes": 2}, url=urls, model="identity_fp32"
    )
    told = trial.meta["custom"]["endpoints"]
    assert sum(place["good"] for place in told.values()) == 80
    # Each has two of the four connections, which all begin with a request. How many more a server gets in a closed loop
    # is for its speed to say: one that was started a moment ago may be many times slower than one that is warm.
    assert min(place["good"] for place in told.values()) >= 2
    assert trial.meta["custom"]["server_statistics"]["requests"] == 80
    assert values["compute_ms"] > 0 and values["batch_mean"] >= 1


def test_a_triton_server_that_is_not_there_is_named(lab, triton):
    with MockLLM() as gone:
        pass
    urls = f"{gone.url},{triton.url}"
    trial, _ = run(lab, "serving.infer", {"shapes": {"INPUT0": [8]}}, url=urls, model="identity_fp32")
    assert trial.outcome == "invalid" and "endpoint_dead" in reasons(trial)
    assert trial.meta["custom"]["endpoints"][triton.url]["good"] > 60


def test_accounts_of_servers_are_joined_by_their_requests():
    one = {"requests": 30, "inferences": 60, "executions": 30, "queue_ms": 1.0, "batch_mean": 2.0}
    other = {"requests": 10, "inferences": 10, "executions": 10, "queue_ms": 5.0, "batch_mean": 1.0}
    idle = {"requests": 0, "inferences": 0, "executions": 0}
    found = {"requests": 40, "inferences": 70, "executions": 40, "queue_ms": 2.0, "batch_mean": 1.75}
    assert _together([one, {}, idle, other]) == found
    assert _together([idle, idle]) == idle
    assert _together([one]) == one and _together([{}]) == {}


def test_addresses_are_split_where_one_begins():
    assert split_endpoints("http://a:1/v1, http://b:2/v1") == ("http://a:1/v1", "http://b:2/v1")
    assert split_endpoints("http://a/x,y") == ("http://a/x,y",)


@pytest.mark.parametrize(
    ("url", "more", "words"),
    [
        ("http://a:1,http://b:1/v1", {}, "one scheme and one path"),
        ("http://a:1,https://b:1", {}, "one scheme and one path"),
        ("http://a:1,http://a:1", {}, "stands twice"),
        ("http://a:1,http://b:{port}", {"start": {"command": ["serve", "{port}"]}}, "start is for one server"),
    ],
)
@pytest.mark.parametrize("target", [ServingTarget, InferTarget])
def test_addresses_that_are_not_replicas_are_refused(target, url, more, words):
    with pytest.raises(ValueError, match=words):
        target(url=url, model="m", **more)


@pytest.mark.parametrize("more", [{"shared_memory": True}, {"protocol": "grpc", "url": "grpc://a:1,grpc://b:1"}])
def test_several_addresses_are_for_plain_http(more):
    with pytest.raises(ValueError, match="several addresses are for protocol http"):
        InferTarget(**{"url": "http://a:1,http://b:1", "model": "m"} | more)
