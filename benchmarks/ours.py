"""Our side of the serving figures: `bench run` of `serving.load` in a folder of its own, its evidence read back."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from peers import Cost, Numbers, Work

REPOSITORY = Path(__file__).parents[1]


@dataclass(frozen=True)
class Trial:
    """What one trial says: its numbers by metric and stat, its certificate, and what it used."""

    numbers: dict[str, dict[str, float]]
    outcome: str
    custom: dict[str, Any]
    warnings: list[str]
    cpu_s: float  # of the experiment's own processes
    cost: Cost  # of `bench run`, from start to sealed evidence

    @property
    def certificate(self) -> dict[str, Any]:
        return dict(self.custom["certificate"])

    def at(self, metric: str, stat: str = "value") -> float:
        return self.numbers[metric][stat]

    def summary(self) -> Numbers:
        """In the form in which peers are read."""
        return Numbers(
            self.at("requests_per_s"), self.at("ttft", "mean"), self.at("ttft", "p99"), self.at("itl", "p99")
        )


def run(url: str, workload: dict[str, Any], *, target: dict[str, Any] | None = None, timeout_s: float = 600) -> Trial:
    """One trial of `serving.load`. An invalid trial is returned like a good one; a failed one raises."""
    scenario = {
        "scenario": "figures",
        "experiment": "serving.load",
        "target": {"url": url, "api": "completions", "model": "mock"} | (target or {}),
        "workload": workload,
    }
    with tempfile.TemporaryDirectory(prefix="figures-") as name:
        folder = Path(name)
        (folder / "figures.yaml").write_text(json.dumps(scenario))
        environ = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
        line = [sys.executable, "-m", "benchhouse", "run", "figures.yaml", "--json"]
        before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
        done = subprocess.run(
            line, cwd=folder, env=environ, capture_output=True, text=True, timeout=timeout_s, check=False
        )
        after, wall_s = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic() - began
        trials = list((folder / "results" / "figures").glob("*/metrics.json"))
        if len(trials) != 1:
            raise RuntimeError(f"bench run ended with {done.returncode}: {done.stderr[-2000:]}")
        metrics = json.loads(trials[0].read_text())
        meta = json.loads(trials[0].with_name("meta.json").read_text())
    outcome = metrics["benchhouse"]["outcome"]
    if outcome not in ("succeeded", "invalid"):
        raise RuntimeError(f"the trial {outcome}: {meta['failure']}")
    numbers: dict[str, dict[str, float]] = {}
    for row in metrics["benchhouse"]["measurements"]:
        numbers.setdefault(row["metric"], {})[row["stat"]] = row["value"]
    cpu_s = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    cost = Cost(wall_s, cpu_s, meta["custom"]["certificate"]["peak_mb"])
    warnings = [f"{item['code']}: {item['message']}" for item in meta["warnings"]]
    return Trial(numbers, outcome, meta["custom"], warnings, meta["usage"]["cpu_s"], cost)


def closed_loop(work: Work, **more: Any) -> Trial:
    """The same work as a peer is given."""
    lengths = {"prompt_tokens": work.prompt_tokens, "output_tokens": work.output_tokens}
    workload = {"concurrency": work.concurrency, "requests": work.requests, "warmup": 0, "prompts": lengths}
    return run(work.url, workload | more)


def mock() -> Any:
    """The class of the mock server, which lives with the tests."""
    sys.path.insert(0, str(REPOSITORY))
    from tests.mocks.llm import MockLLM

    return MockLLM
