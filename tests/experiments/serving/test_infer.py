"""`serving.infer` against a real Triton server: its numbers, its evidence, and what it reports when something fails.

Trials run in this process; three go through `bench run`, for the evidence, for load processes of gRPC, and for a server
that is started with the trial.
"""

import csv
import hashlib
import json
import re
import shutil
import threading
import urllib.request

import numpy
import pytest
from laboratory import wait_until
from pydantic import ValidationError
from services.gateway import Gateway
from services.quiet_moment import in_a_quiet_moment
from services.triton import HERE, CannotInstallError, command, environment, free_ports, install

from benchhouse.experiments.serving.infer import InferTarget, InferWorkload, Sequences, infer
from benchhouse.experiments.serving.load import serve
from benchhouse.load.protocols.calls import CallResult

FLOATS = {"shapes": {"INPUT0": [8]}}
LOAD = {"concurrency": 4, "requests": 40, "warmup": 0}
PROTOCOLS = ("http", "grpc")


def at(server, protocol="http", **target):
    """A target on that server."""
    url = server.grpc_url if protocol == "grpc" else server.url
    return {"url": url, "protocol": protocol} | target


def median_ms(ctx, name):
    return ctx.histograms[name].quantile(0.5) / 1e6


def value(ctx, name):
    (only,) = ctx.values[name]
    return only


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_planted_times_are_in_the_latency_and_in_the_statistics_of_the_server(play, triton, protocol):
    def delay():
        workload = LOAD | {"concurrency": 3, "slo": "latency.p99<10s"}
        ctx = play(infer, at(triton, protocol, model="slow"), workload)
        assert ctx.facts["server_statistics"]["requests"] == 40
        assert value(ctx, "errors") == value(ctx, "timeouts") == value(ctx, "error_rate") == 0
        assert value(ctx, "batch_mean") == 1
        assert value(ctx, "items_per_s") == value(ctx, "goodput") == value(ctx, "requests_per_s")
        assert value(ctx, "compute_ms") >= 20  # planted: 20 ms, one request at a time
        assert value(ctx, "compute_ms") < 30
        assert 35 <= value(ctx, "queue_ms") < 60  # behind two others
        assert 60 <= median_ms(ctx, "latency") < 90
        assert median_ms(ctx, "latency") == pytest.approx(median_ms(ctx, "latency_sent"), rel=0.01)
        rate = value(ctx, "requests_per_s")
        assert rate == pytest.approx(40 / ctx.facts["window_s"], rel=0.15)  # the window ends with the last answer
        assert 30 < rate < 52

    def stream():
        workload = LOAD | {"requests": 8, "values": {"count": 5}}
        ctx = play(infer, at(triton, protocol, model="decoupled", call="stream"), workload)
        assert median_ms(ctx, "itl") == pytest.approx(10, abs=2)  # planted
        assert 10 <= median_ms(ctx, "ttft") < 30
        assert 50 <= median_ms(ctx, "latency") < 80

    in_a_quiet_moment(delay)
    in_a_quiet_moment(stream)


def test_the_evidence_describes_the_load_and_the_model_for_both_protocols(lab, triton):
    """The scenario names the experiment by its component and service, and has the batch as an axis."""
    scenario = {
        "scenario": "s",
        "targets": [at(triton, protocol, model="identity_fp32", name=protocol) for protocol in PROTOCOLS],
        "workload": {"component": "inference", "service": "triton", **LOAD, **FLOATS, "records": True, "batch": [1, 4]},
    }
    (lab.workspace / "s.yaml").write_text(json.dumps(scenario))
    lab.bench("run", "s.yaml", "--json", code=None)
    found = {(trial.spec["target"]["protocol"], trial.spec["parameters"]["batch"]): trial for trial in lab.trials()}
    assert len(found) == 4
    assert found["http", 4].spec["parameters"] == found["grpc", 4].spec["parameters"]
    for (protocol, batch), trial in found.items():
        assert trial.outcome in ("succeeded", "invalid"), trial.meta["failure"]
        facts = trial.meta["custom"]
        assert facts["protocol"] == f"KServe v2 infer over {protocol}"
        assert facts["framework"] == facts["server"] == "triton 2.51.0"
        assert facts["deployment"] == "server"
        model = facts["model"]
        assert (model["name"], model["version"], model["versions"], model["backend"]) == (
            "identity_fp32", "1", ["1"], "python",
        )  # fmt: skip
        assert model["max_batch"] == 64
        assert model["inputs"] == [{"name": "INPUT0", "datatype": "FP32", "shape": [-1], "optional": False}]
        assert [spec["name"] for spec in model["outputs"]] == ["OUTPUT0"]
        assert facts["certificate"]["delivered"] == 40
        assert (trial.folder / "artifacts" / "requests.parquet").exists()
        rows = list(csv.DictReader((trial.folder / "artifacts" / "intervals.csv").open()))
        assert sum(int(row["due"]) for row in rows) == 40
        assert (trial.metrics["component"], trial.metrics["service"]) == ("inference", "triton")
        measured = {row["metric"]: row["value"] for row in trial.metrics["benchhouse"]["measurements"]}
        assert measured["items_per_s"] == pytest.approx(batch * measured["requests_per_s"])
        assert facts["server_statistics"]["inferences"] == 40 * batch
        assert measured["batch_mean"] >= batch
    lab.is_tidy()


def test_shapes_are_values_and_never_axes_unless_an_axis_lists_them(play, lab, triton):
    target = at(triton, model="identity_fp32")
    workload = LOAD | {"shapes": {"INPUT0": [[4], [16], [1024]]}, "distinct": 3, "records": True}
    one = lab.bench("plan", lab.scenario("serving.infer", target=target, workload=workload), "--json")
    assert json.loads(one.stdout)["trials"] == 1
    axes = [{"grid": {"shapes.INPUT0": [[4], [16]]}}]
    two = lab.bench("plan", lab.scenario("serving.infer", target=target, workload=LOAD, axes=axes), "--json")
    assert json.loads(two.stdout)["trials"] == 2

    import pyarrow.parquet

    ctx = play(infer, target, workload)
    sizes = pyarrow.parquet.read_table(ctx.artifacts / "requests.parquet")["size"].to_pylist()
    heads = [size - 4 * elements for size, elements in zip(sorted(set(sizes)), (4, 16, 1024), strict=True)]
    assert max(heads) - min(heads) < 10  # what is not tensor is about the same


def test_inputs_of_a_file_are_sent_and_the_file_is_named_by_its_digest(play, triton, tmp_path):
    numpy.save(tmp_path / "x.npy", numpy.arange(24, dtype="<f4").reshape(6, 4))
    workload = LOAD | {"inputs": str(tmp_path / "x.npy"), "batch": 2}
    ctx = play(infer, at(triton, model="onnx_linear"), workload)
    assert ctx.facts["inputs"]["sha256"] == hashlib.sha256((tmp_path / "x.npy").read_bytes()).hexdigest()
    assert ctx.facts["distinct_requests"] == 3
    assert value(ctx, "error_rate") == 0


def test_processes_share_a_load_and_keep_the_order_of_each_sequence(play, lab, triton):
    """The model refuses another order. gRPC forks no process here, where its threads run already."""
    workload = LOAD | {"sequence_length": 5, "requests": 100, "processes": 2}
    ctx = play(infer, at(triton, model="sequence"), workload)
    scenario = lab.scenario("serving.infer", target=at(triton, "grpc", model="sequence"), workload=workload)
    lab.bench("run", scenario, code=None)
    (trial,) = lab.trials()
    for facts in (ctx.facts, trial.meta["custom"]):
        assert facts["certificate"]["processes"] == 2
        assert (facts["errors"], facts["measured"]) == ({}, 100)
        assert facts["server_statistics"]["requests"] == 100


def test_a_sequence_waits_for_its_answers_and_ends_at_an_error():
    source = Sequences(3, lambda item: b"%d" % item.number, seed=0)
    first, second = source.take(0), source.take(1)
    assert [(one.item.start, one.item.end) for one in (first, second)] == [(True, False)] * 2
    assert first.item.sequence != second.item.sequence
    source.answered(first.item, CallResult())
    source.answered(second.item, CallResult(error="reset"))
    step = source.take(2).item
    assert (step.sequence, step.number, step.start, step.end) == (first.item.sequence, 1, False, False)
    source.answered(step, CallResult())
    assert source.take(3).item.end
    assert source.take(4).item.start


def test_shared_memory_leaves_no_region_behind(play, triton):
    ctx = play(infer, at(triton, model="identity_fp32", shared_memory=True), LOAD | FLOATS)
    assert ctx.facts["protocol"].endswith("tensors in shared memory")
    assert triton.get("/v2/systemsharedmemory/status") == []


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_failure_has_a_code_and_a_message_that_names_the_cause(failure_of, triton, protocol):
    nowhere = f"{protocol}://127.0.0.1:{free_ports(1)[0]}"
    down = {"url": nowhere, "model": "m", "timeout": 5}
    cases = [
        ({"model": "identity_fp23"}, {}, "bad_load", "did you mean 'identity_fp32'?"),
        ({"model": "slow"}, {"shapes": {"INPUT0": [5]}}, "bad_load", "INPUT0 takes [4], and [5] does not fit"),
        ({"model": "text"}, {"shapes": {"TEXT": [1]}, "values": {"TEXT": "fail"}}, "bad_load", "asked to fail"),
        ({"model": "decoupled", "call": "stream"}, {"sequence_length": 2}, "bad_load", "is for call: infer"),
        (down, {}, "not_reached", f"no Triton server answers at {nowhere}"),
    ]
    for target, workload, code, words in cases:
        failure = failure_of(infer, at(triton, protocol, **target), LOAD | workload)
        assert (failure.code, words in failure.message) == (code, True), failure.message

    late = {"timeout": "50ms", "requests": 8, "values": {"count": 40}}  # an answer takes 400 ms
    failure = failure_of(infer, at(triton, protocol, model="decoupled", call="stream"), LOAD | late)
    assert failure.code == "no_good_answer"
    assert failure.context.facts["errors"] == {"timeout": 8}


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_server_that_goes_down_during_a_load_is_in_the_errors(failure_of, triton, protocol):
    def requests():
        return triton.get("/v2/models/slow/stats")["model_stats"][0]["inference_stats"]["success"]["count"]

    before = requests()
    with Gateway(triton.grpc_port if protocol == "grpc" else triton.http_port) as gateway:

        def go_down():
            wait_until(lambda: requests() > before + 20, "the load to begin")
            gateway.close()

        threading.Thread(target=go_down, daemon=True).start()
        target = {"url": f"{protocol}://127.0.0.1:{gateway.port}", "protocol": protocol, "model": "slow", "timeout": 2}
        failure = failure_of(infer, target, {"concurrency": 2, "warmup": 0, "duration": 60})
    assert failure.code == "server_gone"
    assert set(failure.context.facts["errors"]) & {"refused", "reset"}
    assert failure.context.facts["server_statistics"] == {}


def test_a_server_is_started_for_the_trial_and_ended_with_it(lab, tmp_path):
    try:
        home = install()
    except CannotInstallError as reason:
        pytest.skip(f"no Triton server: {reason}")
    shutil.copytree(HERE / "triton_models" / "slow", tmp_path / "models" / "slow")
    started = [word for word in command(home, tmp_path, 0, 0) if not word.startswith(("--http-port", "--grpc"))]
    needed = {name: environment(home)[name] for name in ("PATH", "LD_LIBRARY_PATH")}
    start = {"command": [*started, "--http-port={port}", "--allow-grpc=false"], "environment": needed, "timeout": 60}
    target = {"url": "http://127.0.0.1:{port}", "model": "slow", "start": start}
    lab.bench("run", lab.scenario("serving.infer", target=target, workload=LOAD | {"requests": 10}), code=None)
    (trial,) = lab.trials()
    assert trial.outcome in ("succeeded", "invalid"), trial.meta["failure"]
    facts = trial.meta["custom"]
    assert facts["deployment"] == "embedded"
    assert facts["server_statistics"]["requests"] == 10
    assert "slow" in (trial.folder / "logs" / "server.log").read_text()
    assert lab.left_running() == []


def test_the_load_of_others_is_a_warning_and_a_load_alone_has_none(play, triton):
    """The load alone has a limit of errors that a client on a busy machine keeps to as well, which is a warning."""
    alone = play(infer, at(triton, model="slow"), LOAD | {"error_limit": "10s"})
    assert list(alone.warnings) == ["limits_relaxed"]
    over = threading.Event()

    def disturb():
        body = json.dumps({"inputs": [{"name": "INPUT0", "shape": [4], "datatype": "INT32", "data": [1] * 4}]})
        while not over.is_set():
            urllib.request.urlopen(f"{triton.url}/v2/models/slow/infer", body.encode()).read()

    crew = [threading.Thread(target=disturb) for _ in range(2)]
    for thread in crew:
        thread.start()
    try:
        ctx = play(infer, at(triton, model="slow"), LOAD)
    finally:
        over.set()
        for thread in crew:
            thread.join()
    assert "40 are of this load" in ctx.warnings["other_load"]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_answers_from_the_response_cache_are_a_warning(play, second_triton, protocol):
    seed_of_its_own = {"values": {"INPUT0": PROTOCOLS.index(protocol) + 7}, "distinct": 1}
    ctx = play(infer, at(second_triton, protocol, model="slow"), LOAD | seed_of_its_own)
    assert "of 40 answers" in ctx.warnings["response_cache"]
    assert ctx.facts["server_statistics"]["cache_hits"] >= 36  # those in flight at first find it empty


def test_impossible_inputs_are_refused_before_anything_runs(lab):
    over_grpc = {"url": "grpc://h:{port}", "protocol": "grpc", "start": {"command": ["s", "{port}"]}}
    cases = [
        ({}, {"inputs": "/nowhere/x.npy"}, "there is no file /nowhere/x.npy"),
        ({}, {"batch": 0}, "batch"),
        ({}, {"shapes": {"INPUT0": "8"}}, "shapes"),
        ({"url": "http://h:{port}"}, {}, "start.command listens on"),
        ({"start": {"command": ["s", "{port}"]}}, {}, "start.command listens on"),
        (over_grpc, {}, "is for protocol http"),
    ]
    for target, workload, words in cases:
        with pytest.raises(ValidationError, match=words):
            InferTarget(**{"url": "http://127.0.0.1:1", "model": "m"} | target)
            InferWorkload(**LOAD | workload)
    target = {"url": "http://127.0.0.1:1", "model": "m"}
    scenario = lab.scenario("serving.infer", target=target, workload=LOAD | {"inputs": "x.npy"})
    done = lab.bench("plan", scenario, code=2)
    assert "ws/x.npy" in done.stdout + done.stderr, "a relative path is looked for next to the scenario"


# Text models, by `serving.load`


def test_serving_load_drives_a_text_model_on_triton(play, triton):
    target = {"driver": "triton_llm", "url": triton.url, "model": "decoupled", "extra": {"length_input": "count"}}
    workload = LOAD | {"requests": 20, "prompts": {"prompt_tokens": 8, "output_tokens": 10}}

    def measure():
        ctx = play(serve, target, workload)
        assert ctx.facts["events"] == 200
        assert ctx.facts["tokens_counted_by"] == "nobody"
        assert median_ms(ctx, "itl") == pytest.approx(10, abs=2)  # planted
        assert 100 <= median_ms(ctx, "e2e") < 150

    in_a_quiet_moment(measure)


def test_the_scenarios_of_the_how_to_can_be_planned(lab):
    page = (HERE.parent.parent / "docs" / "how-to" / "benchmark-triton.md").read_text()
    shown = re.findall(r"^```yaml\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert len(shown) == 2
    for number, text in enumerate(shown):
        (lab.workspace / f"{number}.yaml").write_text(text)
        lab.bench("plan", f"{number}.yaml")
