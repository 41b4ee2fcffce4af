"""Does `bench serve` disturb a benchmark on the same machine? What it takes while pages are open and nobody clicks.

    python benchmarks/serve_quiet.py [--seconds 60] [--rounds 3] [--no-truth] [--json]

Five listeners hold the events of one run open, as five open pages do: of a run that is over, of one that sleeps under
way, and with none at all. Then our client is held to the mock server's own log (`serving_truth.py`) with five pages of
a run that goes on and without them, in turns: rounds without are the control. Where the control misses a bar too, the
machine is not quiet enough to tell, and that is said.
Bars: 1% of a core while pages are open; the errors of the client within their bars.
Exits 1 when one is missed, or can't be told.
"""

import argparse
import http.client
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil  # type: ignore[import-untyped]
import serving_truth
from serve_scale import serving

from benchhouse.api.workspace import Workspace

MOST_CORES, PAGES = 0.01, 5
SCENARIO = "scenario: sleeps\nexperiment: command\ntarget: {name: t, shell: 'sleep 3600'}\n"


@contextmanager
def open_pages(address: str, run_id: str) -> Iterator[None]:
    """What the script of a page does: it fetches the page, and listens until it is closed."""
    at, over = urlsplit(address), threading.Event()
    connections, ready = [], threading.Barrier(PAGES + 1)

    def listen() -> None:
        connection = http.client.HTTPConnection(at.hostname or "", at.port)
        connections.append(connection)
        connection.request("GET", f"/runs/{run_id}")
        connection.getresponse().read()
        connection.request("GET", f"/api/runs/{run_id}/events")
        response = connection.getresponse()
        ready.wait()
        try:
            while not over.is_set() and response.readline():  # a run that is over ends it, and a page asks no more
                pass
        except (OSError, ValueError, AttributeError):  # closed below, in the midst of reading
            return

    threads = [threading.Thread(target=listen, daemon=True) for _ in range(PAGES)]
    for thread in threads:
        thread.start()
    ready.wait(120)
    try:
        yield
    finally:
        over.set()
        for connection in connections:
            if connection.sock:
                connection.sock.close()


def cores(process: psutil.Process, seconds: float) -> float:
    began, before = time.monotonic(), process.cpu_times()
    time.sleep(seconds)
    after = process.cpu_times()
    return float(after.user + after.system - before.user - before.system) / (time.monotonic() - began)


def in_turns(address: str, run_id: str, rounds: int) -> dict[str, dict[str, list[float]]]:
    """The errors of the client in each round with pages and in each without; now one is first, now the other."""
    errors: dict[str, dict[str, list[float]]] = {side: defaultdict(list) for side in ("beside 5 pages", "without")}
    for number in range(rounds):
        for side in list(errors)[:: -1 if number % 2 else 1]:
            with open_pages(address, run_id) if side != "without" else nullcontext():
                measured = serving_truth.measure(1, [], 0)["error_ms"]["benchhouse"]
            for name, value in measured.items():
                errors[side][name].append(value)
    return errors


def missed_in_turns(errors: dict[str, dict[str, list[float]]]) -> list[str]:
    """The bars that the client missed beside pages; and whether it did without them, too."""
    missed = []
    for name, most in serving_truth.MOST_MS.items():
        beside, alone = (abs(statistics.median(errors[side][name])) for side in ("beside 5 pages", "without"))
        if beside > most:
            missed.append(f"{name} beside 5 pages" + (", without them too: the machine is busy" * (alone > most)))
    return missed


def measure(root: Path, options: argparse.Namespace) -> dict[str, Any]:
    (root / "sleeps.yaml").write_text(SCENARIO)
    (root / "ends.yaml").write_text("scenario: ends\nexperiment: command\ntarget: {name: t, shell: 'true'}\n")
    bench = [sys.executable, "-m", "benchhouse", "-C", str(root)]
    subprocess.run([*bench, "run", str(root / "ends.yaml")], check=True, capture_output=True)
    workspace = Workspace(root)
    ended = workspace["ends"].id
    running = workspace.submit(root / "sleeps.yaml").run_id
    found: dict[str, Any] = {}
    try:
        with serving(root) as (address, process, _):
            found["no page"] = cores(process, options.seconds)
            with open_pages(address, ended):
                found["5 pages of a run that is over"] = cores(process, options.seconds)
            with open_pages(address, running):
                found["5 pages of a run under way"] = cores(process, options.seconds)
            truth = None if options.no_truth else in_turns(address, running, options.rounds)
    finally:
        workspace[running].stop()
    missed = [name for name, value in found.items() if value > MOST_CORES]
    missed += missed_in_turns(truth) if truth else []
    return {
        "cores": found,
        "most_cores": MOST_CORES,
        "truth": truth,
        "at_most_ms": serving_truth.MOST_MS,
        "missed": missed,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0, help="That each is looked at.")
    parser.add_argument("--rounds", type=int, default=5, help="Of the truth benchmark, each with and without pages.")
    parser.add_argument("--no-truth", action="store_true", help="The CPU of the server alone.")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="serve-quiet-") as folder:
        found = measure(Path(folder), options)
    if options.json:
        print(json.dumps(found, indent=2))
    else:
        for name, value in found["cores"].items():
            print(f"{name:32} {value:.2%} of a core (at most {MOST_CORES:.0%})")
        for side, errors in (found["truth"] or {}).items():
            print(f"truth {side}: " + ", ".join(
                f"{name} {statistics.median(errors[name]):+.3f} ms (at most {most:g}; "
                f"{min(errors[name]):+.3f} to {max(errors[name]):+.3f})" for name, most in found["at_most_ms"].items()
            ))  # fmt: skip
        print(f"missed: {', '.join(found['missed'])}" if found["missed"] else "all bars met")
    return 1 if found["missed"] else 0


if __name__ == "__main__":
    sys.exit(main())
