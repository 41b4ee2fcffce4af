"""`serving.load` against real servers: llama.cpp's own, and vLLM where its environment has been made."""

import hashlib
import json
import os
from pathlib import Path

import pytest
from services import llm

from benchhouse.experiments.serving.load import serve

EXAMPLE = Path(__file__).parents[3] / "examples" / "llm_vllm_baseline.yaml"
PROMPTS = {"prompt_tokens": 32, "output_tokens": 24}


def target(server, **more):
    return {"url": server.url, "extra": {"ignore_eos": True}} | more


def load(**workload):
    return {"prompts": PROMPTS, "warmup": 0.2} | workload


@pytest.mark.parametrize("api", ["completions", "chat"])
def test_every_token_of_a_real_server_is_counted(play, real_llm, api):
    for stream in (True, False):
        asked = load(concurrency=4, requests=20)
        ctx = play(serve, target(real_llm, api=api, stream=stream), asked)
        assert ctx.values["error_rate"] == [0], ctx.facts["first_errors"]
        assert ctx.values["output_tokens"] == [24]
        assert ctx.facts["tokens_counted_by"] == "server"
        assert ctx.facts["finishes"] == {"length": 20}
        if stream:
            ttft, tpot, e2e = (ctx.histograms[name].quantile(0.5) for name in ("ttft", "tpot", "e2e"))
            assert 0 < ttft <= e2e
            assert 0 <= tpot <= e2e  # 0 where a busy client reads all tokens at once
        else:
            assert "ttft" not in ctx.histograms, "without a stream nobody knows when the first token was there"


def test_the_example_config_runs_where_its_server_is_llama_cpp(lab, real_llm):
    """As the requirements give it, but for the server, its model, and counts that a small machine can bear."""
    text = EXAMPLE.read_text()
    for theirs, ours in (
        ("service: vllm", "service: llama.cpp"),
        ("mistral-7b-instruct", str(llm.model_path(".gguf"))),
        ("repetitions: 3", "repetitions: 1"),
        ("[128, 512]", "[8]"),
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
    assert len(trials) == 1
    for trial in trials:
        assert trial.metrics["benchhouse"]["outcome"] in ("succeeded", "invalid"), trial.meta["failure"]
        assert trial.meta["custom"]["finishes"]["length"] > 0
        assert (trial.folder / "logs" / "llama_cpp.log").stat().st_size, "it was started in the trial"
        sha256 = hashlib.sha256(dataset.read_bytes()).hexdigest()
        assert trial.meta["dataset"]["sha256"] == trial.meta["custom"]["prompts"]["file_sha256"] == sha256
        assert f"sha256: {sha256}" in (trial.folder / "effective_config.yaml").read_text()
        assert trial.meta["custom"]["prompts"]["prompts"] == 2


@pytest.mark.slow("vLLM on the CPU takes up to three minutes to start; skipped where its environment is not made")
def test_vllm_streams_what_it_was_asked_for_and_refuses_an_unknown_model(play, failure_of, real_vllm):
    ctx = play(serve, target(real_vllm), load(concurrency=8, requests=64, slo="e2e.p99<60s"))
    assert ctx.values["error_rate"] == [0], ctx.facts["first_errors"]
    assert ctx.values["output_tokens"] == [24]
    assert ctx.values["goodput"] == pytest.approx(ctx.values["requests_per_s"])
    assert "queue_delay" in ctx.values, "vLLM reports its queue in /metrics"
    assert json.dumps(ctx.facts["server_metrics"]).count("vllm:") > 0
    unknown = {"url": real_vllm.url, "model": "no-such-model"}
    failure = failure_of(serve, unknown, {"concurrency": 1, "requests": 3, "warmup": 0})
    assert failure.code == "no_good_answer"
    assert "no-such-model" in failure.message
