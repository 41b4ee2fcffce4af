"""`serving.infer` from end to end: `bench run` against a real Triton server, and what is in the evidence."""

import csv
import hashlib
import json
import re
import shutil
import subprocess
import threading
import urllib.request

import numpy
import pytest
from laboratory import wait_until
from services.triton import HERE, CannotInstallError, Triton, command, environment, free_ports, install

from benchhouse.experiments.serving.infer import Sequences
from benchhouse.load.protocols.calls import Reply

FLOATS = {"shapes": {"INPUT0": [8]}}
LOAD = {"concurrency": 4, "requests": 40, "warmup": 0}
PROTOCOLS = ("http", "grpc")


def at(server, protocol="http", **target):
    """A target on that server."""
    url = server.grpc_url if protocol == "grpc" else server.url
    return {"url": url, "protocol": protocol} | target


def values(trial):
    return {(row["metric"], row["stat"]): row["value"] for row in trial.metrics["benchhouse"]["measurements"]}


def run(lab, target, workload=None, code=0):
    """Run one trial to its end. On a busy machine it may say that it is invalid; its numbers are there all the same."""
    scenario = lab.scenario("serving.infer", target=target, workload=LOAD | (workload or {}))
    lab.bench("run", scenario, "--json", code=code or None)
    (trial,) = lab.trials()
    assert trial.outcome in (("failed",) if code else ("succeeded", "invalid")), trial.meta["failure"]
    return trial, values(trial)


@pytest.mark.serial
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_planted_delay_is_in_the_latency_and_in_the_servers_own_account(lab, triton, protocol):
    workload = {"concurrency": 3, "slo": "latency.p99<10s"}
    trial, value = run(lab, at(triton, protocol, model="slow"), workload)
    assert 20 <= value["compute_ms", "value"] < 30  # planted: 20 ms, one request at a time
    assert 35 <= value["queue_ms", "value"] < 60  # behind two others
    assert 60 <= value["latency", "p50"] < 90
    assert value["latency", "p50"] == pytest.approx(value["latency_sent", "p50"], rel=0.01)
    assert value["batch_mean", "value"] == 1
    seconds = trial.meta["custom"]["window_s"]
    assert value["requests_per_s", "value"] == pytest.approx(40 / seconds, rel=0.15)  # that is to the last answer
    assert 30 < value["requests_per_s", "value"] < 52
    assert value["items_per_s", "value"] == value["goodput", "value"] == value["requests_per_s", "value"]
    assert (value["error_rate", "value"], value["errors", "value"], value["timeouts", "value"]) == (0, 0, 0)
    assert trial.meta["custom"]["server_statistics"]["requests"] == 40


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_evidence_says_what_was_asked_of_what(lab, triton, protocol):
    trial, _ = run(lab, at(triton, protocol, model="identity_fp32"), FLOATS | {"records": True})
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
    lab.is_tidy()


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_batch_is_an_axis_and_items_are_counted(lab, triton, protocol):
    lab.run(
        "serving.infer",
        code=None,
        target=at(triton, protocol, model="identity_fp32"),
        workload=LOAD | FLOATS | {"batch": [1, 4, 16]},
    )
    found = lab.by("batch")
    assert set(found) == {1, 4, 16}
    for batch, trial in found.items():
        value = values(trial)
        assert value["items_per_s", "value"] == pytest.approx(batch * value["requests_per_s", "value"])
        assert trial.meta["custom"]["server_statistics"]["inferences"] == 40 * batch
        assert value["batch_mean", "value"] >= batch


def test_shapes_are_values_and_never_axes_unless_an_axis_says_so(lab, triton):
    target = at(triton, model="identity_fp32")
    workload = LOAD | {"shapes": {"INPUT0": [[4], [16], [1024]]}, "distinct": 3, "records": True}
    one = lab.bench("plan", lab.scenario("serving.infer", target=target, workload=workload), "--json")
    assert json.loads(one.stdout)["trials"] == 1
    trial, _ = run(lab, target, workload)
    sizes = _column(trial, "size")
    heads = [size - 4 * elements for size, elements in zip(sorted(set(sizes)), (4, 16, 1024), strict=True)]
    assert max(heads) - min(heads) < 10  # what is not tensor is about the same
    axes = [{"grid": {"shapes.INPUT0": [[4], [16]]}}]
    two = lab.scenario("serving.infer", "two", target=target, workload=LOAD, axes=axes)
    lab.bench("run", two, code=None)
    assert sorted(trial.spec["parameters"]["shapes"]["INPUT0"] for trial in lab.trials("two")) == [[4], [16]]


def _column(trial, name):
    import pyarrow.parquet

    return pyarrow.parquet.read_table(trial.folder / "artifacts" / "requests.parquet")[name].to_pylist()


def test_inputs_of_a_file_are_sent_and_the_file_is_named_by_its_digest(lab, triton, tmp_path):
    numpy.save(tmp_path / "x.npy", numpy.arange(24, dtype="<f4").reshape(6, 4))
    workload = {"inputs": str(tmp_path / "x.npy"), "batch": 2}
    trial, value = run(lab, at(triton, model="onnx_linear"), workload)
    digest = hashlib.sha256((tmp_path / "x.npy").read_bytes()).hexdigest()
    assert trial.meta["custom"]["inputs"]["sha256"] == digest
    assert trial.meta["custom"]["distinct_requests"] == 3
    assert value["error_rate", "value"] == 0


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_processes_share_a_load(lab, triton, protocol):
    trial, _ = run(lab, at(triton, protocol, model="slow"), {"processes": 2})
    facts = trial.meta["custom"]
    assert facts["certificate"]["processes"] == 2
    assert (facts["measured"], facts["server_statistics"]["requests"]) == (40, 40)


@pytest.mark.parametrize(("protocol", "processes"), [("http", 1), ("http", 2), ("grpc", 1), ("grpc", 2)])
def test_the_requests_of_a_sequence_follow_each_other(lab, triton, protocol, processes):
    workload = {"sequence_length": 5, "requests": 100, "processes": processes}
    trial, value = run(lab, at(triton, protocol, model="sequence"), workload)  # its model refuses another order
    assert (value["errors", "value"], trial.meta["custom"]["measured"]) == (0, 100)


def test_a_sequence_waits_for_its_answers_and_ends_at_an_error():
    source = Sequences(3, lambda item: b"%d" % item.number, seed=0)
    first, second = source.take(0), source.take(1)
    assert [(one.item.start, one.item.end) for one in (first, second)] == [(True, False)] * 2
    assert first.item.sequence != second.item.sequence
    source.answered(first.item, Reply())
    source.answered(second.item, Reply(error="reset"))
    step = source.take(2).item
    assert (step.sequence, step.number, step.start, step.end) == (first.item.sequence, 1, False, False)
    source.answered(step, Reply())
    assert source.take(3).item.end
    assert source.take(4).item.start


def test_shared_memory_leaves_no_region_behind(lab, triton):
    trial, _ = run(lab, at(triton, model="identity_fp32", shared_memory=True), FLOATS)
    assert trial.meta["custom"]["protocol"].endswith("tensors in shared memory")
    with urllib.request.urlopen(f"{triton.url}/v2/systemsharedmemory/status") as answer:
        assert json.load(answer) == []


@pytest.mark.serial
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_streamed_answers_have_a_first_one_and_gaps(lab, triton, protocol):
    target = at(triton, protocol, model="decoupled", call="stream")
    _, value = run(lab, target, {"requests": 8, "values": {"count": 5}})
    assert value["itl", "p50"] == pytest.approx(10, abs=2)  # planted
    assert 10 <= value["ttft", "p50"] < 30
    assert 50 <= value["latency", "p50"] < 80


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize(
    ("target", "workload", "words"),
    [
        ({"model": "identity_fp23"}, {}, "did you mean 'identity_fp32'?"),
        ({"model": "slow"}, {"shapes": {"INPUT0": [5]}}, "INPUT0 takes [4], and [5] does not fit"),
        ({"model": "text"}, {"shapes": {"TEXT": [1]}, "values": {"TEXT": "fail"}}, "asked to fail"),
        ({"model": "decoupled", "call": "stream"}, {"sequence_length": 2}, "sequence_length is for call: infer"),
    ],
)
def test_what_does_not_fit_fails_with_what_would(lab, triton, protocol, target, workload, words):
    trial, _ = run(lab, at(triton, protocol, **target), workload, code=1)
    assert trial.code == "bad_load"
    assert words in trial.meta["failure"]["message"]


@pytest.mark.parametrize("scheme", PROTOCOLS)
def test_a_server_that_is_down_is_told(lab, scheme):
    url = f"{scheme}://127.0.0.1:{free_ports(1)[0]}"
    trial, _ = run(lab, {"url": url, "protocol": scheme, "model": "m", "timeout": 5}, code=1)
    assert trial.code == "not_reached"
    assert f"no Triton server answers at {url}" in trial.meta["failure"]["message"]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_answers_that_come_too_late_are_timeouts_and_no_latencies(lab, triton, protocol):
    target = at(triton, protocol, model="decoupled", call="stream")
    trial, _ = run(lab, target, {"timeout": "50ms", "requests": 8, "values": {"count": 40}}, code=1)  # takes 400 ms
    assert trial.code == "no_good_answer"
    assert trial.meta["custom"]["errors"] == {"timeout": 8}


def test_a_server_is_started_for_the_trial_and_ended_with_it(lab, tmp_path):
    home = installed()
    shutil.copytree(HERE / "triton_models" / "slow", tmp_path / "models" / "slow")
    started = [word for word in command(home, tmp_path, 0, 0) if not word.startswith(("--http-port", "--grpc"))]
    needed = {name: environment(home)[name] for name in ("PATH", "LD_LIBRARY_PATH")}
    start = {"command": [*started, "--http-port={port}", "--allow-grpc=false"], "environment": needed, "timeout": 60}
    trial, value = run(lab, {"url": "http://127.0.0.1:{port}", "model": "slow", "start": start}, {"requests": 10})
    facts = trial.meta["custom"]
    assert facts["deployment"] == "embedded"
    assert facts["server_statistics"]["requests"] == 10
    assert value["requests_per_s", "value"] * facts["window_s"] == pytest.approx(10, rel=0.5)  # timed to the last send
    assert "slow" in (trial.folder / "logs" / "server.log").read_text()
    assert lab.left_running() == []


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_server_that_goes_down_in_mid_load_is_told(lab, protocol):
    installed()
    server = Triton.start(["slow"])
    target = at(server, protocol, model="slow", timeout=2)
    workload = {"concurrency": 2, "warmup": 0, "duration": 4}
    process = lab.start("run", lab.scenario("serving.infer", target=target, workload=workload))
    try:
        wait_until(lambda: _requests(server) > 20, "the load to begin")
        server.stop()
        process.communicate(timeout=60)
    finally:
        process.kill()
    (trial,) = lab.trials()
    assert trial.outcome in ("failed", "invalid")
    assert set(trial.meta["custom"]["errors"]) & {"refused", "reset"}
    assert trial.meta["custom"]["server_statistics"] == {}


def _requests(server):
    return server.get("/v2/models/slow/stats")["model_stats"][0]["inference_stats"]["success"]["count"]


def test_the_load_of_others_is_told(lab, triton):
    over = threading.Event()

    def disturb():
        body = json.dumps({"inputs": [{"name": "INPUT0", "shape": [4], "datatype": "INT32", "data": [1] * 4}]})
        while not over.is_set():
            urllib.request.urlopen(f"{triton.url}/v2/models/slow/infer", body.encode()).read()

    crew = [threading.Thread(target=disturb) for _ in range(2)]
    for thread in crew:
        thread.start()
    try:
        trial, _ = run(lab, at(triton, model="slow"))
    finally:
        over.set()
        for thread in crew:
            thread.join()
    (told,) = [warning for warning in trial.meta["warnings"] if warning["code"] == "other_load"]
    assert "40 are of this load" in told["message"]


def test_a_clean_load_has_no_warning(lab, triton):
    """With a limit that a client on a busy machine keeps to as well, which is told."""
    trial, _ = run(lab, at(triton, model="slow"), {"error_limit": "10s"})
    assert [warning["code"] for warning in trial.meta["warnings"]] == ["limits_relaxed"]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_an_answer_from_the_response_cache_is_told(lab, caching, protocol):
    trial, _ = run(lab, at(caching, protocol, model="slow"), {"distinct": 4})
    (told,) = [warning for warning in trial.meta["warnings"] if warning["code"] == "response_cache"]
    assert "of 40 answers" in told["message"]
    assert trial.meta["custom"]["server_statistics"]["cache_hits"] >= 36 - 4  # those in flight at first find it empty


@pytest.fixture(scope="module")
def caching(tmp_path_factory):
    """A server that keeps the answers of its model `slow`."""
    home, folder = installed(), tmp_path_factory.mktemp("caching")
    shutil.copytree(HERE / "triton_models" / "slow", folder / "models" / "slow")
    with (folder / "models" / "slow" / "config.pbtxt").open("a") as config:
        config.write("response_cache { enable: true }\n")
    caches = next(home.glob("lib/python*/site-packages/pytriton/tritonserver/caches"))
    ports = free_ports(2)
    extra = ["--cache-config=local,size=1048576", f"--cache-directory={caches}"]
    with (folder / "server.log").open("wb") as log:
        process = subprocess.Popen(
            [*command(home, folder, *ports), *extra], env=environment(home), stdout=log, stderr=log
        )
    server = Triton(home, folder, *ports, process)
    try:
        server.wait_until_ready()
        yield server
    finally:
        server.stop()


def installed():
    try:
        return install()
    except CannotInstallError as reason:
        pytest.skip(f"no Triton server: {reason}")


@pytest.mark.parametrize(
    ("workload", "words"),
    [
        ({"inputs": "x.npy"}, "ws/x.npy"),  # beside the scenario
        ({"inputs": "/nowhere/x.npy"}, "there is no file /nowhere/x.npy"),
        ({"batch": 0}, "batch"),
        ({"shapes": {"INPUT0": "8"}}, "shapes"),
        ({"target": {"url": "http://h:{port}"}}, "start.command listens on"),
        ({"target": {"start": {"command": ["s", "{port}"]}}}, "start.command listens on"),
        ({"target": {"url": "grpc://h:1", "protocol": "grpc", "start": {"command": ["s"]}}}, "is for protocol http"),
    ],
)
def test_what_can_not_be_is_refused_before_anything_runs(lab, workload, words):
    target = {"url": "http://127.0.0.1:1", "model": "m"} | workload.get("target", {})
    workload = {key: value for key, value in workload.items() if key != "target"}
    done = lab.bench("plan", lab.scenario("serving.infer", target=target, workload=LOAD | workload), code=2)
    assert words in done.stdout + done.stderr


def test_a_workload_is_the_same_whichever_protocol_serves_it(lab, triton):
    targets = [at(triton, protocol, model="slow", name=protocol) for protocol in PROTOCOLS]
    lab.run("serving.infer", code=None, targets=targets, workload=LOAD)
    one, other = lab.trials()
    assert one.spec["parameters"] == other.spec["parameters"]
    assert {trial.spec["target"]["protocol"] for trial in (one, other)} == set(PROTOCOLS)


# Text models, by `serving.load`


@pytest.mark.serial
def test_serving_load_drives_a_text_model_on_triton(lab, triton):
    target = {"driver": "triton_llm", "url": triton.url, "model": "decoupled", "extra": {"length_input": "count"}}
    workload = LOAD | {"requests": 20, "prompts": {"prompt_tokens": 8, "output_tokens": 10}}
    lab.bench("run", lab.scenario("serving.load", target=target, workload=workload), code=None)
    (trial,) = lab.trials()
    assert trial.outcome in ("succeeded", "invalid"), trial.meta["failure"]
    value = values(trial)
    assert value["itl", "p50"] == pytest.approx(10, abs=2)  # planted
    assert 100 <= value["e2e", "p50"] < 150
    assert trial.meta["custom"]["events"] == 200
    assert trial.meta["custom"]["tokens_counted_by"] == "nobody"


def test_the_scenarios_of_the_how_to_can_be_planned(lab):
    page = (HERE.parent.parent / "docs" / "how-to" / "benchmark-triton.md").read_text()
    shown = re.findall(r"^```yaml\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert len(shown) == 2
    for number, text in enumerate(shown):
        (lab.workspace / f"{number}.yaml").write_text(text)
        lab.bench("plan", f"{number}.yaml")


def test_component_and_service_name_the_experiment(lab):
    scenario = lab.workspace / "named.yaml"
    named = {"component": "inference", "service": "triton", **LOAD}
    target = {"url": "http://h:8000", "model": "m"}
    scenario.write_text(json.dumps({"scenario": "named", "target": target, "workload": named}))
    assert "serving.infer" in lab.bench("plan", scenario, "--json").stdout
