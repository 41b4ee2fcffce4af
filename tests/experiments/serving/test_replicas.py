"""Several clients and several servers in one trial: what is measured, and what the evidence says of each."""

import json
import os
import signal
import threading
from pathlib import Path

import pytest
from laboratory import children, wait_until
from mocks.llm import MockLLM, build
from mocks.scripted import ScriptedServer

from benchhouse.experiments.serving.infer import InferTarget, _together, infer
from benchhouse.experiments.serving.inputs import ServingTarget
from benchhouse.experiments.serving.load import ServerMetrics, serve
from benchhouse.schema.service import split_endpoints

PROMPTS = {"prompt_tokens": 16, "output_tokens": 4}
LOAD = {"concurrency": 4, "requests": 80, "warmup": 0}
FLOATS = LOAD | {"shapes": {"INPUT0": [8]}}


def target(url, **more):
    return {"url": url, "model": "mock", "api": "completions"} | more


def reasons(facts):
    return {reason["code"]: reason["message"] for reason in facts["certificate"]["problems"]}


def clients_of(port):
    """Child processes that have a connection to that port of this machine."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    sockets = {f"socket:[{row[9]}]" for row in rows if row[2].endswith(f":{port:04X}") and row[3] == "01"}
    found = set()
    for child in children(os.getpid()):
        for link in Path(f"/proc/{child}/fd").glob("*"):
            try:
                if os.readlink(link) in sockets:
                    found.add(child)
            except OSError:
                continue
    return found


def test_the_load_is_spread_over_replicas_and_each_has_its_counts(play):
    with MockLLM(ttft_ms=5) as one, MockLLM(ttft_ms=5) as other:
        ctx = play(serve, target(f"{one.url},{other.url}"), LOAD | {"processes": 2, "prompts": PROMPTS})
        seen = {server.url: server.stats()["requests"] for server in (one, other)}
    places = ctx.facts["endpoints"]
    assert {url: place["good"] for url, place in places.items()} == seen and min(seen.values()) >= 30
    assert all(place["errors"] == {} and not place["gone"] for place in places.values())
    assert ctx.values["errors"] == [0] and "endpoint_dead" not in reasons(ctx.facts)


def test_a_replica_that_is_not_there_makes_the_trial_invalid_and_is_named(play):
    with MockLLM() as gone:
        pass
    with MockLLM(ttft_ms=5) as server:
        ctx = play(serve, target(f"{gone.url}, {server.url}", model=""), LOAD | {"prompts": PROMPTS})
    dead = f"{gone.url} takes no connection (refused: Connection refused)"
    assert ctx.invalidities["endpoint_dead"].startswith(dead)
    places = ctx.facts["endpoints"]
    assert (places[gone.url]["good"], places[gone.url]["gone"]) == (0, True)
    assert places[server.url]["good"] > 60


def test_replicas_of_a_service_share_the_load(lab):
    recipe = {
        "name": "mock",
        "program": [str(build())],
        "command": ["{program}", "--port", "{port}", "--ttft-ms", "5"],
        "endpoint": "http://127.0.0.1:{port}",
    }
    (lab.workspace / "recipes").mkdir()
    (lab.workspace / "recipes" / "mock.yaml").write_text(json.dumps(recipe))
    scenario = lab.scenario(
        "serving.load",
        target=target("service:llm"),
        workload=LOAD | {"requests": 90, "prompts": PROMPTS},
        services={"llm": {"recipe": "mock", "replicas": 3}},
    )
    lab.bench("run", scenario, "--json", code=None)
    (trial,) = lab.trials()
    places = trial.meta["custom"]["endpoints"]
    assert len(places) == 3 and sum(place["good"] for place in places.values()) == 90
    assert min(place["good"] for place in places.values()) >= 20


def test_a_load_process_that_is_killed_makes_the_trial_invalid_and_the_others_measure_on(play):
    with MockLLM(ttft_ms=20) as server:

        def kill_one():
            wait_until(lambda: server.stats()["requests"] > 30, "the load")
            os.kill(max(clients_of(server.port)), signal.SIGKILL)

        threading.Thread(target=kill_one, daemon=True).start()
        workload = {"concurrency": 6, "duration": 2, "warmup": 0, "processes": 3, "prompts": PROMPTS}
        ctx = play(serve, target(server.url), workload)
    certificate = ctx.facts["certificate"]
    (lost,) = certificate["lost"]
    assert (lost["how"], lost["in_flight"], certificate["processes"]) == ("ended by signal 9", 2, 2)
    assert f"load process {lost['shard']} ended by signal 9" in ctx.invalidities["shard_lost"]
    assert ctx.facts["errors"] == {"lost": 2} and ctx.values["errors"] == [2]
    assert ctx.values["requests_per_s"][0] > 20 and 0 < ctx.values["error_rate"][0] < 0.1


def test_a_load_whose_processes_all_die_fails_and_the_message_says_how(failure_of):
    with MockLLM(ttft_ms=20) as server:

        def kill_all():
            wait_until(lambda: server.stats()["requests"] > 30, "the load")
            for pid in clients_of(server.port):
                os.kill(pid, signal.SIGKILL)

        threading.Thread(target=kill_all, daemon=True).start()
        workload = {"concurrency": 4, "duration": 30, "warmup": 0, "processes": 2}
        failure = failure_of(serve, target(server.url), workload)
    assert failure.code == "shards_lost"
    assert "load process 1 ended by signal 9" in failure.message


def test_metrics_of_all_servers_are_added_up_and_one_without_is_left_out():
    def script(wire):
        if wire.request():
            page = f"vllm:prompt_tokens_total {wire.number * 10}\n".encode()
            wire.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(page) + page)

    with ScriptedServer(script) as one, ScriptedServer(script) as other:
        metrics = ServerMetrics([one.url, "http://127.0.0.1:1", f"{other.url}/v1"])
        metrics.finish()
    assert metrics.facts() == {"vllm:prompt_tokens_total": 20}


def test_two_triton_servers_share_the_load_and_their_statistics_are_joined(play, triton, second_triton):
    where = {"url": f"{triton.url},{second_triton.url}", "model": "identity_fp32"}
    ctx = play(infer, where, FLOATS | {"processes": 2})
    places = ctx.facts["endpoints"]
    assert sum(place["good"] for place in places.values()) == 80
    # Each has two of the four connections, which all begin with a request. How many more requests a server receives in
    # a closed loop depends on its speed: a server that has just started may be many times slower than a warm one.
    assert min(place["good"] for place in places.values()) >= 2
    assert ctx.facts["server_statistics"]["requests"] == 80
    assert ctx.values["compute_ms"][0] > 0 and ctx.values["batch_mean"][0] >= 1


def test_a_triton_server_that_is_not_there_is_named(play, triton):
    with MockLLM() as gone:
        pass
    ctx = play(infer, {"url": f"{gone.url},{triton.url}", "model": "identity_fp32"}, FLOATS)
    assert "endpoint_dead" in ctx.invalidities
    assert ctx.facts["endpoints"][triton.url]["good"] > 60


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


def test_addresses_that_are_not_replicas_are_refused():
    started = {"start": {"command": ["serve", "{port}"]}}
    for url, more, words in [
        ("http://a:1,http://b:1/v1", {}, "one scheme and one path"),
        ("http://a:1,https://b:1", {}, "one scheme and one path"),
        ("http://a:1,http://a:1", {}, "stands twice"),
        ("http://a:1,http://b:{port}", started, "start is for one server"),
    ]:
        for model in (ServingTarget, InferTarget):
            with pytest.raises(ValueError, match=words):
                model(url=url, model="m", **more)
    for more in ({"shared_memory": True}, {"protocol": "grpc", "url": "grpc://a:1,grpc://b:1"}):
        with pytest.raises(ValueError, match="several addresses are for protocol http"):
            InferTarget(**{"url": "http://a:1,http://b:1", "model": "m"} | more)
