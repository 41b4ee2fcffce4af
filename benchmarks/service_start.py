"""What starting and ending a server through Benchhouse costs beyond the server's own time, recipe by recipe.

By hand: the recipe's own command, asked every millisecond by its own probe until it answers, then its stop signal and
waiting for its end. `trial` is what an experiment does (`ctx.service`), `kept` what `bench servers start` and attached
services do: a keeper process is started, which starts the server. In each round all three start in a new order; their
medians' difference counts. At most 0.3 s for start, readiness and end together.

    python benchmarks/service_start.py [--recipe postgres ...] [--rounds 5] [--json]

Exit code 1 when missed; recipes whose program is not here are named and left out.
"""

import argparse
import contextlib
import json
import os
import random
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchhouse.catalog.entries import plug
from benchhouse.processes.programs import find_program
from benchhouse.runs.service_control import start_keeper, stop_keepers, wait_ready
from benchhouse.schema.experiment import ExperimentFailed
from benchhouse.schema.recipe import Recipe
from benchhouse.schema.service import ServiceFolder, ServiceSpec
from benchhouse.worker import services as module
from benchhouse.worker.output import Capture
from benchhouse.worker.service_supervisor import keep
from benchhouse.worker.services import Services, single_server

MOST_S = 0.3
PLAIN = ("postgres", "seaweedfs", "chroma", "milvus_lite", "prometheus", "node_exporter")


def by_hand(recipe: Recipe, folder: Path) -> float:
    """The same command in the same place, with nothing around it."""
    logs = Capture.begin(folder, "", streams=())
    with contextlib.closing(logs), logs.pumping():
        return _by_hand(recipe, Services(folder / "services", logs))


def _by_hand(recipe: Recipe, made: Services) -> float:
    began = time.monotonic()
    item = made._begin(
        recipe, recipe.name, module._chosen(recipe, {}), 0
    )  # what is written and prepared is the server's own affair
    while not item.probe.answers():
        time.sleep(0.001)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(item.process.pid, signal.Signals[f"SIG{recipe.stop_signal}"])
    item.process.wait()
    return time.monotonic() - began


def trial(recipe: Recipe, folder: Path) -> float:
    began = time.monotonic()
    with single_server(recipe, folder):
        pass
    return time.monotonic() - began


def kept(recipe: Recipe, folder: Path) -> float:
    place = ServiceFolder(folder / "kept")
    began = time.monotonic()
    start_keeper(place, ServiceSpec(id=recipe.name, recipe=recipe), keep)
    wait_ready({recipe.name: place}, lambda text: None)
    stop_keepers([place])
    return time.monotonic() - began


WAYS: dict[str, Callable[[Recipe, Path], float]] = {"by hand": by_hand, "trial": trial, "kept": kept}


def measure(recipe: Recipe, rounds: int) -> dict[str, list[float]]:
    taken: dict[str, list[float]] = {name: [] for name in WAYS}
    for number in range(rounds + 1):  # the first one warms the page cache
        for name in random.sample(sorted(WAYS), len(WAYS)):
            with tempfile.TemporaryDirectory(prefix="service-start-") as folder:
                seconds = WAYS[name](recipe, Path(folder))
            if number:
                taken[name].append(seconds)
    return taken


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipe", action="append", help="One of them; all that need no parameter otherwise.")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    figures: dict[str, Any] = {}
    missed = []
    for name in options.recipe or PLAIN:
        recipe = plug("recipes", name)
        try:
            find_program(recipe)
        except ExperimentFailed as reason:
            print(f"left out: {reason.message}", file=sys.stderr)
            continue
        taken = measure(recipe, options.rounds)
        own = statistics.median(taken["by hand"])
        over = {way: statistics.median(taken[way]) - own for way in ("trial", "kept")}
        figures[name] = {"own_s": own, "trial_overhead_s": over["trial"], "kept_overhead_s": over["kept"]}
        missed += [f"{name} ({way})" for way, seconds in over.items() if seconds > MOST_S]
        if not options.json:
            print(f"{name:14} own {own:6.2f} s   trial {over['trial']:+.2f} s   kept {over['kept']:+.2f} s", flush=True)
    if options.json:
        print(json.dumps({"most_s": MOST_S, "recipes": figures, "missed": missed}, indent=2))
    else:
        print(f"missed: {', '.join(missed)}" if missed else f"met: at most {MOST_S} s each")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
