"""The load generators that ours is measured against: exact commands for the same work, and their own numbers read back.

    scripts/install-peers.sh                       once, outside the repository
    python benchmarks/peers.py http://127.0.0.1:8000 mock --requests 100 --concurrency 4

The work is a closed loop: `requests` streamed completions, `concurrency` at a time, of `output_tokens` tokens each, no
prompt sent twice. Each peer is asked in the way that suits it best: token counts from the server where it can take
them, no dashboards.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

ENDPOINT = "/v1/completions"


@dataclass(frozen=True)
class Work:
    """What each peer is asked to do."""

    url: str
    model: str
    tokenizer: Path  # a local folder that transformers can load
    concurrency: int
    requests: int
    output_tokens: int = 32
    prompt_tokens: int = 16
    rate: float | None = None  # open loop at so many requests a second, where the peer is asked for that


@dataclass(frozen=True)
class Numbers:
    """A peer's own figures. What it calls inter-token latency is its affair; `Peer.itl` says what that is."""

    requests_per_s: float
    ttft_mean_ms: float
    ttft_p99_ms: float
    itl_p99_ms: float


@dataclass(frozen=True)
class Cost:
    """What the run cost, start and report included. `peak_mb` is the largest of the peer's processes, not their sum."""

    wall_s: float
    cpu_s: float
    peak_mb: float


@dataclass(frozen=True)
class Peer:
    """One tool: where it lies, how it is asked, where its answer is."""

    program: str  # in the cache of scripts/install-peers.sh
    arguments: Callable[[Work, Path], list[str]]
    parse: Callable[[Path], Numbers]
    itl: str
    environment: dict[str, str]


OFFLINE = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
QUIET = {"HF_HUB_DISABLE_TELEMETRY": "1", "DO_NOT_TRACK": "1", "NO_COLOR": "1"}


def cache() -> Path:
    return Path(os.environ.get("BENCH_TEST_CACHE") or Path.home() / ".cache" / "benchhouse-tests")


def vllm_arguments(work: Work, folder: Path) -> list[str]:
    return [
        *("bench", "serve", "--backend", "openai", "--base-url", work.url, "--endpoint", ENDPOINT),
        *("--model", work.model, "--tokenizer", str(work.tokenizer), "--dataset-name", "random"),
        *("--random-input-len", str(work.prompt_tokens), "--random-output-len", str(work.output_tokens)),
        *(
            "--num-prompts",
            str(work.requests),
            "--max-concurrency",
            str(work.concurrency),
            "--request-rate",
            str(work.rate or "inf"),
        ),
        *("--ignore-eos", "--num-warmups", "0", "--ready-check-timeout-sec", "0", "--disable-tqdm"),
        *("--percentile-metrics", "ttft,itl", "--metric-percentiles", "50,99"),
        *("--save-result", "--result-dir", str(folder), "--result-filename", "vllm.json"),
    ]


def parse_vllm(folder: Path) -> Numbers:
    said = json.loads((folder / "vllm.json").read_text())
    return Numbers(said["request_throughput"], said["mean_ttft_ms"], said["p99_ttft_ms"], said["p99_itl_ms"])


def aiperf_arguments(work: Work, folder: Path) -> list[str]:
    return [
        *("profile", "--url", work.url, "--endpoint-type", "completions", "--streaming", "--model", work.model),
        *("--tokenizer", str(work.tokenizer), "--use-server-token-count"),
        *("--isl", str(work.prompt_tokens), "--isl-stddev", "0", "--osl", str(work.output_tokens), "--osl-stddev", "0"),
        *("--extra-inputs", "ignore_eos:true", "--num-dataset-entries", str(work.requests)),
        *("--concurrency", str(work.concurrency), "--request-count", str(work.requests)),
        *("--artifact-dir", str(folder / "aiperf"), "--ui", "none", "--no-gpu-telemetry", "--no-server-metrics"),
    ]


def parse_aiperf(folder: Path) -> Numbers:
    said = json.loads((folder / "aiperf" / "profile_export_aiperf.json").read_text())
    ttft = said["time_to_first_token"]
    return Numbers(said["request_throughput"]["avg"], ttft["avg"], ttft["p99"], said["inter_chunk_latency"]["p99"])


def guidellm_arguments(work: Work, folder: Path) -> list[str]:
    return [
        *("run", "--backend", f"kind=openai_http,target={work.url},model={work.model},request_format={ENDPOINT}"),
        *("--profile", f"kind=concurrent,streams={work.concurrency}"),
        *("--constraint", f"kind=max_requests,count={work.requests}"),
        *("--tokenizer", f"kind=hf_auto,model={work.tokenizer}"),
        *("--data", f"kind=synthetic_text,prompt_tokens={work.prompt_tokens},output_tokens={work.output_tokens}"),
        *("--output", f"kind=json,path={folder / 'guidellm.json'}", "--disable-console"),
    ]


def parse_guidellm(folder: Path) -> Numbers:
    (benchmark,) = json.loads((folder / "guidellm.json").read_text())["benchmarks"]
    rate, ttft, itl = (
        benchmark["metrics"][name]["successful"]
        for name in ("requests_per_second", "time_to_first_token_ms", "inter_token_latency_ms")
    )
    return Numbers(rate["mean"], ttft["mean"], ttft["percentiles"]["p99"], itl["percentiles"]["p99"])


def perf_analyzer_arguments(work: Work, folder: Path) -> list[str]:
    """It makes no prompts: they are written for it. That the answer is a stream it learns from the answer."""
    filler = " ".join(f"word{number}" for number in range(work.prompt_tokens - 1))
    request = {"model": work.model, "max_tokens": work.output_tokens, "stream": True, "ignore_eos": True}
    request["stream_options"] = {"include_usage": True}
    data = [{"payload": [request | {"prompt": f"{number} {filler}"}]} for number in range(work.requests)]
    prompts = folder / "prompts.json"
    prompts.write_text(json.dumps({"data": data}))
    return [
        *(
            "-m",
            work.model,
            "--service-kind",
            "openai",
            "--endpoint",
            ENDPOINT.lstrip("/"),
            "-u",
            work.url,
            "-i",
            "http",
        ),
        *("--async", "--concurrency-range", str(work.concurrency), "--request-count", str(work.requests)),
        *("--input-data", str(prompts), "--stability-percentage", "999"),
        *("--profile-export-file", str(folder / "perf_analyzer.json")),
    ]


def parse_perf_analyzer(folder: Path) -> Numbers:
    """From its record of each event: its own throughput counts time after the last answer, so short runs read low."""
    (experiment,) = json.loads((folder / "perf_analyzer.json").read_text())["experiments"]
    requests = experiment["requests"]
    events = [output_stamps(request) for request in requests]
    ttft_ms = [(stamps[0] - request["timestamp"]) / 1e6 for request, stamps in zip(requests, events, strict=True)]
    gaps_ms = np.concatenate([np.diff(stamps) for stamps in events]) / 1e6
    began = min(request["timestamp"] for request in requests)
    ended = max(request["response_timestamps"][-1] for request in requests)
    return Numbers(
        requests_per_s=len(requests) / (ended - began) * 1e9,
        ttft_mean_ms=float(np.mean(ttft_ms)),
        ttft_p99_ms=float(np.percentile(ttft_ms, 99)),
        itl_p99_ms=float(np.percentile(gaps_ms, 99)),
    )


def output_stamps(request: dict[str, Any]) -> list[int]:
    """When each event with output came, in ns; the events for usage and the end of the stream carry none."""
    said = (output["response"] for output in request["response_outputs"])
    stamped = zip(request["response_timestamps"], said, strict=True)
    return [stamp for stamp, text in stamped if '"choices":[{' in text.replace(" ", "")]


PEERS = {
    "vllm": Peer("vllm/bin/vllm", vllm_arguments, parse_vllm, "gaps between events", OFFLINE),
    # With the hub's offline switch on it refuses a tokenizer that is a local folder.
    "aiperf": Peer("peers/aiperf/bin/aiperf", aiperf_arguments, parse_aiperf, "gaps between events", {}),
    "guidellm": Peer(
        "peers/guidellm/bin/guidellm", guidellm_arguments, parse_guidellm, "each request's mean gap", OFFLINE
    ),
    "perf_analyzer": Peer(
        "peers/perf_analyzer/bin/perf_analyzer",
        perf_analyzer_arguments,
        parse_perf_analyzer,
        "gaps between events",
        {},
    ),
}


def installed() -> list[str]:
    """The peers that can be run here."""
    return [name for name, peer in PEERS.items() if (cache() / peer.program).exists()]


def command(peer: str, work: Work, folder: Path) -> list[str]:
    """What to run. Files that the peer needs are written into `folder`, and its own will come there."""
    return [str(cache() / PEERS[peer].program), *PEERS[peer].arguments(work, folder)]


def environment(peer: str) -> dict[str, str]:
    """All variables to run it with; what the tools compile of themselves is kept, so that a second start is quick."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return kept | QUIET | PEERS[peer].environment


def parse(peer: str, folder: Path) -> Numbers:
    return PEERS[peer].parse(folder)


def run(peer: str, work: Work, timeout_s: float = 600) -> tuple[Numbers, Cost]:
    """Run it to its end in a folder of its own; a peer that fails raises with its last words."""
    with tempfile.TemporaryDirectory(prefix=f"{peer}-") as name:
        folder = Path(name)
        said = folder / "said.txt"
        line = command(peer, work, folder)
        began = time.monotonic()
        with said.open("w") as out:
            process = subprocess.Popen(
                line, env=environment(peer), cwd=folder, stdout=out, stderr=out, start_new_session=True
            )
        hung = threading.Timer(timeout_s, os.killpg, (process.pid, signal.SIGKILL))
        hung.start()
        _, status, used = os.wait4(process.pid, 0)  # unlike `wait`, it gives back what this one process used
        hung.cancel()
        wall_s = time.monotonic() - began
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise RuntimeError(f"{peer} ended with {process.returncode}: {said.read_text()[-2000:]}")
        return parse(peer, folder), Cost(wall_s, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024)


def main() -> None:
    parser = argparse.ArgumentParser(description="Run the peers in turn against a server, and print JSON lines.")
    parser.add_argument("url")
    parser.add_argument("model")
    parser.add_argument("--tokenizer", type=Path, help="a local folder; the tiny model of the tests when not given")
    parser.add_argument("--concurrency", type=int, default=4)
    parser.add_argument("--requests", type=int, default=100)
    parser.add_argument("--output-tokens", type=int, default=32)
    parser.add_argument("--peer", action="append", choices=sorted(PEERS), help="all that are installed when not given")
    asked = parser.parse_args()
    work = Work(
        asked.url,
        asked.model,
        asked.tokenizer or tiny_tokenizer(),
        asked.concurrency,
        asked.requests,
        asked.output_tokens,
    )
    for peer in asked.peer or installed():
        numbers, cost = run(peer, work)
        print(json.dumps({"peer": peer, **asdict(numbers), **asdict(cost)}), flush=True)


def tiny_tokenizer() -> Path:
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
    from services import llm, tiny_model  # type: ignore[import-not-found]

    return Path(tiny_model.write_checkpoint(llm.model_path()))


if __name__ == "__main__":
    main()
