"""Whether `serving.load` tells what is wrong with a load: planted flaws must be named, clean loads must not be blamed.

(a) Flaws planted in a mock server, in the prompts and in the load process: each must raise its code, and no other than
    those that truly follow from it. At least 12, all of them.
(b) 50 clean loads, closed and open, streamed and not, with fixed and exponential times: at most 2 warnings in all.
A busy machine makes trials INVALID by their certificate, or some of their figures; that is counted apart, for it is
true, and no contamination.

    python benchmarks/planted_flaws.py [--clean 50] [--only stall] [--json]      exit code 1 when missed; 4-5 minutes
"""

import argparse
import json
import os
import re
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, NoReturn

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchhouse.experiments.serving.load import serve
from benchhouse.schema.experiment import ExperimentFailed
from benchhouse.schema.recipe import Recipe, Service
from tests.mocks.llm import MockLLM

MOST_FALSE = 2
FEWEST_FLAWS = 12
TRIES = (
    3  # of a flaw that was not told as it should, where the certificate has refused the trial: no evidence either way
)
LATE_CLIENT = "figures_invalid"
WARMUP_S = 0.5
STALL_S = 1.0
STREAM: dict[str, float] = {"ttft_ms": 30, "itl_ms": 5}
CLOSED: dict[str, Any] = {
    "concurrency": 8,
    "duration": 3,
    "prompts": {"distinct": 3000, "prompt_tokens": 16, "output_tokens": 12},
}
OPEN: dict[str, Any] = {
    "rps": 60,
    "duration": 3,
    "prompts": {"distinct": 3000, "prompt_tokens": 16, "output_tokens": 12},
}


@dataclass
class Trial:
    """What the experiment said about one load; it stands in for a worker's context."""

    workdir: Path
    artifacts: Path
    seed: int = 1
    trial_id: str = "planted"
    repetition: int = 1
    nodes: list[str] = field(default_factory=lambda: ["here"])
    warnings: dict[str, str] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)  # that make it or its figures invalid

    @property
    def cache(self) -> NoReturn:
        raise NotImplementedError("serving.load needs none")

    def on_node(self, node: str) -> NoReturn:
        raise NotImplementedError("there is one")

    def emit(self, name: str, value: float, *_: Any, **__: Any) -> None: ...

    def emit_all(self, name: str, values: Any, *, window: str = "") -> None: ...

    def declare(self, metric: Any) -> None: ...

    def distribution(self, name: str, histogram: Any, window: str = "") -> None: ...

    def bound(self, name: str, errors: Mapping[str, float], beyond: Collection[str] = ()) -> None: ...

    def metadata(self, **items: Any) -> None: ...

    def phase(self, name: str, begin_ns: int, end_ns: int) -> None: ...

    def energy_per(self, name: str, amount: float) -> None: ...

    def overcame_oom_kills(self, count: int) -> None: ...

    def warn(self, code: str, message: str) -> None:
        (self.problems if code == LATE_CLIENT else self.warnings)[code] = message

    def invalid(self, code: str, message: str) -> None:
        self.problems[code] = message

    def fail(self, code: str, message: str, *, retryable: bool = False) -> NoReturn:
        raise ExperimentFailed(code, message, retryable)

    def driver(self, name: str) -> Any:
        (found,) = entry_points(group="benchhouse.drivers", name=name)
        return found.load()

    def service(self, recipe: str | Recipe) -> Service:
        raise NotImplementedError(f"no server is started here: {recipe}")


@contextmanager
def nothing() -> Iterator[None]:
    yield


@dataclass(frozen=True)
class Flaw:
    """One thing that is wrong: planted in the server (`mock`), in what is asked (`workload`) or beside the load."""

    name: str
    code: str
    mock: dict[str, float]
    workload: dict[str, Any]
    invalid: bool = False  # the trial or some of its figures must be invalid by it
    follows: tuple[str, ...] = ()  # codes that are true as well
    beside: Callable[[], Any] = nothing
    holds: Callable[[str], bool] = lambda evidence: True
    prompts: tuple[str, ...] = ()  # of a dataset


@contextmanager
def interrupted(after_s: float, pause_s: float, every_s: float, times: int) -> Iterator[None]:
    """A child stops this process again and again, as a machine does that has something better to do."""
    child = os.fork()
    if child == 0:
        time.sleep(after_s)
        for _ in range(times):
            os.kill(os.getppid(), signal.SIGSTOP)
            time.sleep(pause_s)
            os.kill(os.getppid(), signal.SIGCONT)
            time.sleep(every_s - pause_s)
        os._exit(0)
    try:
        yield
    finally:
        os.waitpid(child, 0)  # never killed: it could leave this process stopped


def names_its_length(evidence: str) -> bool:
    found = re.search(r"nothing came for ([0-9.]+) s", evidence)
    return found is not None and abs(float(found[1]) - STALL_S) <= 0.1 * STALL_S


def words(*numbers: int) -> str:
    return " ".join(f"word{number}" for number in numbers)


COMMON_BEGINNINGS = tuple(f"{words(*range(64))} {words(number, number + 7, number + 9)}" for number in range(3000))
ONE_IN_TEN_TWICE = tuple(f"tell me about {words(number - (number % 10 == 9))}" for number in range(3000))
STALL: dict[str, float] = {"stall_at": WARMUP_S + 1.5, "stall_for": STALL_S}
DATASET: dict[str, Any] = {"kind": "dataset", "output_tokens": 12}

FLAWS = (
    Flaw("prefix cache, told by the server", "prefix_cache", STREAM | {"prefix_cache": 1},
         CLOSED | {"prompts": DATASET}, prompts=COMMON_BEGINNINGS),
    Flaw("prefix cache, told by no answer", "prompts_repeated", STREAM | {"prefix_cache": 1, "no_usage": 1},
         CLOSED | {"prompts": {"distinct": 40, "prompt_tokens": 80, "output_tokens": 12}},
         # The mock can only hide its cache with all of its counts; its metrics still tell of it.
         follows=("tokens_unknown", "prefix_cache")),
    Flaw("one prompt in ten twice in the dataset", "prompts_repeated", STREAM, CLOSED | {"prompts": DATASET},
         prompts=ONE_IN_TEN_TWICE),
    Flaw("5% of outputs short", "short_outputs", STREAM | {"short_share": 0.05}, CLOSED),
    Flaw("four tokens an event", "merged_tokens", STREAM | {"merge": 4}, CLOSED),
    Flaw("no token counts", "tokens_unknown", STREAM | {"no_usage": 1}, CLOSED),
    Flaw("stall of 1 s, closed loop", "stall", STREAM | STALL, CLOSED | {"duration": 4}, holds=names_its_length),
    Flaw("stall of 1 s, open loop", "stall", STREAM | STALL, OPEN | {"duration": 4}, holds=names_its_length),
    Flaw("stall of 1 s, closed loop, not streamed", "stall", {"ttft_ms": 10, "ttft_exp": 1, **STALL},
         CLOSED | {"duration": 4}, holds=names_its_length),
    Flaw("3% of streams reset", "failures", STREAM | {"reset_share": 0.03}, CLOSED, holds=lambda e: "reset" in e),
    Flaw("3% of streams end in an error", "failures", STREAM | {"error_share": 0.03}, OPEN,
         holds=lambda e: "server_error" in e),
    Flaw("429 for 1 s of the window", "failures", STREAM | {"fail_status": 429, "fail_for": WARMUP_S + 1}, CLOSED,
         holds=lambda e: "http_429" in e),
    Flaw("500 for 5% of requests", "failures", STREAM | {"fail_status": 500, "fail_share": 0.05}, OPEN,
         holds=lambda e: "http_500" in e),
    Flaw("2% of streams never end", "timeouts", STREAM | {"never_end": 0.02}, CLOSED | {"timeout": 1}),
    Flaw("cold start, no warm-up", "cold_start", STREAM | {"cold": 0.7}, CLOSED | {"warmup": 0, "duration": 4}),
    Flaw("cold start, open loop", "cold_start", STREAM | {"cold": 0.7}, OPEN | {"warmup": 0, "duration": 4}),
    Flaw("times grow by half", "drift", STREAM | {"drift": 1.5, "drift_over": 4.5}, CLOSED | {"duration": 4}),
    Flaw("times double, open loop", "drift", STREAM | {"drift": 2, "drift_over": 4.5}, OPEN | {"duration": 4}),
    Flaw("open loop at 1.6 times the capacity", "overload", {"servers": 2, "service_exp_ms": 20},
         OPEN | {"rps": 160, "duration": 4, "prompts": {"distinct": 3000, "prompt_tokens": 16, "output_tokens": 1}}),
    Flaw("load process runs half of the time", LATE_CLIENT, STREAM, CLOSED, invalid=True,
         beside=lambda: interrupted(0.1, 0.08, 0.16, 27)),
    Flaw("load process stops for 0.6 s", LATE_CLIENT, STREAM, CLOSED | {"duration": 4}, invalid=True,
         beside=lambda: interrupted(2.5, 0.6, 0.7, 1)),
)  # fmt: skip


def clean_loads(count: int) -> Iterator[tuple[str, dict[str, float], dict[str, Any], bool]]:
    """Name, mock, workload, and whether streamed: ten kinds in turn, at several loads, in windows of 2 to 4.4 s."""
    few: dict[str, Any] = {"distinct": 6000, "prompt_tokens": 16, "output_tokens": 12}
    one = few | {"output_tokens": 1}
    mixed = few | {"output_tokens": {"kind": "uniform", "low": 4, "high": 24}}
    shared = few | {"shared_prefix_tokens": 64}
    natural: dict[str, float] = {"ttft_ms": 40, "ttft_exp": 1, "itl_ms": 4, "itl_exp": 1}
    queue: dict[str, float] = {"servers": 4, "service_exp_ms": 25}
    for number in range(count):
        turn, kind = divmod(number, 10)
        clients, rate = (1, 4, 16, 24, 8)[turn % 5], (30, 60, 90, 120, 135)[turn % 5]
        closed: dict[str, Any] = {"concurrency": clients}
        opened: dict[str, Any] = {"rps": rate}
        streamed = turn % 2 == 0
        kinds: tuple[tuple[str, dict[str, float], dict[str, Any], dict[str, Any], bool], ...] = (
            ("closed, fixed times", STREAM, closed, few, True),
            ("closed, exponential", natural, closed, few, True),
            ("closed, mixed lengths", STREAM, closed, mixed, True),
            ("closed, exponential, not streamed", {"ttft_ms": 50, "ttft_exp": 1}, closed, few, False),
            ("closed, queue at 4 servers", queue, {"concurrency": max(clients, 4)}, one, streamed),
            ("closed, shared prefix as asked", STREAM | {"ttft_ms": 300, "prefix_cache": 1}, closed, shared, True),
            ("open, exponential", natural, opened, few, True),
            ("open, queue at 4 servers", queue, opened, one, streamed),
            ("open, queue at 1 server", {"servers": 1, "service_exp_ms": 6}, opened, one, True),
            ("open, constant arrivals", STREAM, opened | {"arrivals": "constant"}, few, streamed),
        )
        name, mock, load, prompts, stream = kinds[kind]
        yield (
            name,
            mock,
            load | {"prompts": prompts, "duration": 2 + number * 7 % 13 / 5, "warmup": 0.5 + kind // 6 / 2},
            stream,
        )


def play(
    mock: dict[str, float],
    workload: dict[str, Any],
    *,
    stream: bool = True,
    seed: int = 1,
    prompts: tuple[str, ...] = (),
) -> Trial:
    """One load, by the experiment itself: what it measures, certifies and warns of is what a user would see."""
    with tempfile.TemporaryDirectory() as name, MockLLM(**(mock | {"seed": seed})) as server:
        trial = Trial(Path(name), Path(name), seed)
        if prompts:
            (trial.workdir / "prompts.txt").write_text("\n".join(prompts))
            workload = workload | {"prompts": workload["prompts"] | {"file": str(trial.workdir / "prompts.txt")}}
        target = {"url": server.url, "stream": stream, "model": "mock"}
        serve.call(target, {"warmup": WARMUP_S} | workload, trial)
        return trial


def plant(flaw: Flaw, seed: int) -> dict[str, Any]:
    with flaw.beside():
        trial = play(flaw.mock, flaw.workload, stream="not streamed" not in flaw.name, seed=seed, prompts=flaw.prompts)
    found = trial.problems if flaw.invalid else trial.warnings
    evidence = found.get(flaw.code, "")
    explained = {flaw.code, *flaw.follows}
    return {
        "flaw": flaw.name,
        "code": flaw.code,
        "detected": bool(evidence) and flaw.holds(evidence),
        "evidence": evidence,
        "others": {code: says for code, says in trial.warnings.items() if code not in explained},
        "invalid": {code: says for code, says in trial.problems.items() if code not in explained},
    }


def measure(clean: int, only: str, seed: int) -> dict[str, Any]:
    busy = os.getloadavg()[0]
    chosen = [flaw for flaw in FLAWS if only in f"{flaw.name} {flaw.code}"]
    flaws = []
    for flaw in chosen:
        for attempt in range(TRIES):
            found = plant(flaw, seed + attempt)
            if (found["detected"] and not found["others"]) or not found["invalid"]:
                break
        flaws.append(found | {"tries": attempt + 1})
        _say(f"{flaw.name}: {'detected' if flaws[-1]['detected'] else 'MISSED'}")
    blamed: list[dict[str, Any]] = []
    invalid: list[dict[str, Any]] = []
    for number, (name, mock, workload, stream) in enumerate(clean_loads(clean)):
        trial = play(mock, workload, stream=stream, seed=seed * 1000 + number)
        for rows, said in ((blamed, trial.warnings), (invalid, trial.problems)):
            rows += [{"load": name, "number": number, "code": code, "says": says} for code, says in said.items()]
        _say(f"clean {number}: {name}: {', '.join([*trial.warnings, *trial.problems]) or 'nothing'}")
    enough = bool(only) or len(flaws) >= FEWEST_FLAWS
    told = all(row["detected"] and not row["others"] for row in flaws)
    return {
        "flaws": flaws,
        "detected": sum(row["detected"] for row in flaws),
        "codes": sorted({row["code"] for row in flaws}),
        "clean": clean,
        "false_warnings": blamed,
        "invalid_clean": invalid,
        "load_average": [busy, os.getloadavg()[0]],
        "met": enough and told and len(blamed) <= MOST_FALSE,
    }


def table(figures: dict[str, Any]) -> str:
    lines = [f"{'planted':40} {'code':16} {'':8} evidence, and what else was said"]
    for row in figures["flaws"]:
        verdict = "detected" if row["detected"] else "MISSED"
        lines.append(f"{row['flaw']:40} {row['code']:16} {verdict:8} {row['evidence'][:120]}")
        lines += [f"{'':40} (try {row['tries']}; the machine was too busy before)"] * (row["tries"] > 1)
        lines += [f"{'':40} ALSO {code}: {says[:120]}" for code, says in row["others"].items()]
        lines += [f"{'':40} (invalid: {code}: {says[:90]})" for code, says in row["invalid"].items()]
    refused, blamed = figures["invalid_clean"], figures["false_warnings"]
    lines += [
        "",
        f"{figures['detected']} of {len(figures['flaws'])} flaws detected, by {len(figures['codes'])} codes",
        f"{figures['clean']} clean loads: {len(blamed)} false warnings (at most {MOST_FALSE})",
        *(f"  {row['number']} {row['load']}: {row['code']}: {row['says']}" for row in blamed),
        f"clean loads that the certificate refused (a busy machine): {len({row['number'] for row in refused})}",
        *(f"  {row['number']} {row['load']}: {row['code']}: {row['says'][:110]}" for row in refused),
        "load average before and after: " + ", ".join(f"{load:.1f}" for load in figures["load_average"]),
        "met" if figures["met"] else "MISSED",
    ]
    return "\n".join(lines)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--clean", type=int, default=50, help="clean loads")
    parser.add_argument("--only", default="", help="only flaws whose name or code has this in it")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    figures = measure(options.clean, options.only, options.seed)
    print(json.dumps(figures, indent=2) if options.json else table(figures))
    return 0 if figures["met"] else 1


if __name__ == "__main__":
    raise SystemExit(main())
