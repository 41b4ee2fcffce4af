"""`serving.load` against real servers: llama.cpp's own, and vLLM where its environment has been made."""

import hashlib
import json
import os
from pathlib import Path

import pytest
from services import llm

EXAMPLE = Path(__file__).parents[3] / "examples" / "llm_vllm_baseline.yaml"
PROMPTS = {"prompt_tokens": 32, "output_tokens": 24}


def run(lab, server, name, workload, target=None):
    scenario = lab.scenario(
        "serving.load",
        name=name,
        target={"url": server.url, "extra": {"ignore_eos": True}, **(target or {})},
        workload={"prompts": PROMPTS, "warmup": 0.5} | workload,
    )
    lab.bench("run", scenario, "--json", code=None, timeout_s=200)
    (trial,) = lab.trials(name)
    assert trial.metrics["benchhouse"]["outcome"] in ("succeeded", "invalid"), trial.meta["failure"]
    return trial, {(row["metric"], row["stat"]): row["value"] for row in trial.metrics["benchhouse"]["measurements"]}


@pytest.mark.parametrize("api", ["completions", "chat"])
@pytest.mark.parametrize("stream", [True, False])
def test_every_token_of_a_real_server_is_counted(lab, real_llm, api, stream):
    trial, value = run(
        lab, real_llm, f"{api}-{stream}".lower(), {"concurrency": 4, "requests": 40}, {"api": api, "stream": stream}
    )
    assert value["error_rate", "value"] == 0, trial.meta["custom"]["first_errors"]
    assert value["output_tokens", "value"] == 24
    assert trial.meta["custom"]["tokens_counted_by"] == "server"
    assert trial.meta["custom"]["finishes"] == {"length": 40}
    if stream:
        assert 0 < value["ttft", "p50"] <= value["e2e", "p50"]
        assert 0 <= value["tpot", "p50"] <= value["e2e", "p50"]  # 0 where a busy client reads all tokens at once
    else:
        assert ("ttft", "p50") not in value, "without a stream nobody knows when the first token was there"


def test_the_example_config_runs_where_its_server_is_llama_cpp(lab, real_llm):
    """As the requirements give it, but for the server, its model, and counts that a small machine can bear."""
    text = EXAMPLE.read_text()
    for theirs, ours in (
        ("service: vllm", "service: llama.cpp"),
        ("mistral-7b-instruct", str(llm.model_path(".gguf"))),
        ("repetitions: 3", "repetitions: 1"),
        ("[128, 512]", "[8, 16]"),
        ("gen_tokens: [128]", "gen_tokens: [4]"),
        ("[1, 4, 8]", "[1]"),
        ("[1, 8, 32]", "[2]"),
        ("gpus: 1", "gpus: 0"),
        ("cpus_per_task: 8", "cpus_per_task: 1"),
        ("mem_gb: 32", "mem_gb: 1"),
    ):
        assert theirs in text
        text = text.replace(theirs, ours)
    scenario = lab.workspace / "example.yaml"
    scenario.write_text(text.replace("workload:\n", "workload:\n  duration: 1\n  warmup: 0\n"))
    lab.variables["WORK"] = str(lab.workspace)
    dataset = lab.workspace / "data" / "prompts.jsonl"
    dataset.parent.mkdir()
    dataset.write_text('{"prompt": "why is the sky blue and the grass green"}\n{"prompt": "how do ships float"}\n')
    lab.variables["PATH"] = f"{llm.cache() / 'llm' / 'bin'}{os.pathsep}{os.environ['PATH']}"
    lab.bench("run", scenario, "--executor", "local", "--json", code=None, timeout_s=200)
    trials = lab.trials("llm_vllm_baseline")
    assert len(trials) == 2
    for trial in trials:
        assert trial.metrics["benchhouse"]["outcome"] in ("succeeded", "invalid"), trial.meta["failure"]
        assert trial.meta["custom"]["finishes"]["length"] > 0
        assert (trial.folder / "logs" / "llama_cpp.log").stat().st_size, "it was started in the trial"
        sha256 = hashlib.sha256(dataset.read_bytes()).hexdigest()
        assert trial.meta["dataset"]["sha256"] == trial.meta["custom"]["prompts"]["file_sha256"] == sha256
        assert f"sha256: {sha256}" in (trial.folder / "effective_config.yaml").read_text()
        assert trial.meta["custom"]["prompts"]["prompts"] == 2


def test_a_wrong_model_name_is_told_in_the_servers_words(lab, real_vllm):
    scenario = lab.scenario(
        "serving.load",
        target={"url": real_vllm.url, "model": "no-such-model"},
        workload={"concurrency": 1, "requests": 3, "warmup": 0},
    )
    done = lab.bench("run", scenario, code=1, timeout_s=200)
    assert "no_good_answer" in done.stderr
    assert "no-such-model" in done.stderr


@pytest.mark.slow
@pytest.mark.serial
def test_vllm_streams_what_it_was_asked_for(lab, real_vllm):
    trial, value = run(lab, real_vllm, "vllm", {"concurrency": 8, "requests": 64, "slo": "e2e.p99<60s"})
    assert value["error_rate", "value"] == 0, trial.meta["custom"]["first_errors"]
    assert value["output_tokens", "value"] == 24
    assert value["goodput", "value"] == pytest.approx(value["requests_per_s", "value"])
    assert ("queue_delay", "value") in value, "vLLM tells its queue in /metrics"
    assert json.dumps(trial.meta["custom"]["server_metrics"]).count("vllm:") > 0
