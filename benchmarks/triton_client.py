"""Our Triton client beside tritonclient, the vendor's: same real server, same model, same input, 32 requests in flight.

tritonclient.http runs with asyncio and with 32 threads (its `async_infer` sleeps 10 ms a request and is no match); in
each round we are compared with the faster in requests/s, and with the thriftier in client CPU. Rounds alternate, their
median counts. At least 2 times the requests/s, with at most a fifth of the CPU a request. The server
(scripts/install-triton.sh) shares the machine's cores, so what a client leaves unused the server can use.

    python benchmarks/triton_client.py [--rounds 11] [--seconds 2] [--json]

Exit code 1 when missed, 2 without a server.
"""

import argparse
import asyncio
import importlib
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

LEAST_RATE, MOST_CPU = 2.0, 0.2
IN_FLIGHT = 32
MODEL, ELEMENTS = "identity_fp32", 16
WARMUP_S = 0.5
OURS, PEERS = "benchhouse", ("asyncio", "threads")
ROOT = Path(__file__).parent.parent


class Window:
    """Counts answers between a start after the warm-up and an end, and the CPU of this process meanwhile."""

    def __init__(self, seconds: float) -> None:
        self.begin = time.monotonic() + WARMUP_S
        self.end = self.begin + seconds
        self.answer = itertools.count().__next__  # safe from several threads
        self._before = -1
        self._cpu = 0.0

    def going_on(self) -> bool:
        now = time.monotonic()
        if self._before < 0 and now >= self.begin:
            self.begin, self._cpu, self._before = now, time.process_time(), self.answer()
        return now < self.end

    def close(self) -> dict[str, float]:
        taken, cpu = time.monotonic() - self.begin, time.process_time() - self._cpu
        answers = self.answer() - self._before - 1
        return {"rate": answers / taken, "cpu_us": cpu / answers * 1e6}


def benchhouse(url: str, file: str, seconds: float) -> dict[str, float]:
    from benchhouse.drivers.triton import TritonHttp, TritonTarget
    from benchhouse.load.engine import run_load
    from benchhouse.load.shape import Shape
    from benchhouse.load.source import Planned, RequestPool

    class Nothing:
        """The engine's own counts are enough."""

        def add(self, *_: Any) -> int:
            return 0

        def merge(self, _: Any) -> None: ...

        def streams(self) -> tuple[()]:
            return ()

    driver = TritonHttp(TritonTarget(url=url, model=MODEL, inputs=file))
    pool = RequestPool([Planned(number, driver.request(number)) for number in range(driver.distinct)], seed=0)
    shape = Shape(concurrency=IN_FLIGHT, duration=seconds, warmup=WARMUP_S)
    book = run_load(lambda: driver, pool, shape, Nothing)
    if book.failed:
        raise SystemExit(f"{book.failed} requests failed: {book.details}")
    answers = book.completed_in_window
    return {"rate": answers / seconds, "cpu_us": book.cpu_all_ns / answers / 1e3}


def _inputs(client: Any, file: str) -> list[Any]:
    """The input, encoded once and used for all requests: tritonclient at its best."""
    array = importlib.import_module("numpy").load(file)
    tensor = client.InferInput("INPUT0", list(array.shape), "FP32")
    tensor.set_data_from_numpy(array, binary_data=True)
    return [tensor]


def with_asyncio(url: str, file: str, seconds: float) -> dict[str, float]:
    aio = importlib.import_module("tritonclient.http.aio")
    inputs = _inputs(aio, file)

    async def work(client: Any, window: Window) -> None:
        while window.going_on():
            await client.infer(MODEL, inputs)
            window.answer()

    async def load() -> dict[str, float]:
        async with aio.InferenceServerClient(url.removeprefix("http://"), conn_limit=IN_FLIGHT) as client:
            window = Window(seconds)
            await asyncio.gather(*(work(client, window) for _ in range(IN_FLIGHT)))
            return window.close()

    return asyncio.run(load())


def with_threads(url: str, file: str, seconds: float) -> dict[str, float]:
    http = importlib.import_module("tritonclient.http")
    inputs = _inputs(http, file)
    window = Window(seconds)

    def work() -> None:
        with http.InferenceServerClient(url.removeprefix("http://")) as client:
            while window.going_on():
                client.infer(MODEL, inputs)
                window.answer()

    crew = [threading.Thread(target=work) for _ in range(IN_FLIGHT)]
    for thread in crew:
        thread.start()
    for thread in crew:
        thread.join()
    return window.close()


CLIENTS: dict[str, Callable[[str, str, float], dict[str, float]]] = {
    OURS: benchhouse, "asyncio": with_asyncio, "threads": with_threads,
}  # fmt: skip


def measure(server: Any, rounds: int, seconds: float) -> dict[str, Any]:
    import numpy

    taken: dict[str, list[dict[str, float]]] = {name: [] for name in CLIENTS}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "input.npy"
        numpy.save(file, numpy.random.default_rng(0).random((1, ELEMENTS), dtype=numpy.float32))
        for _ in range(rounds):
            for name in CLIENTS:
                python = sys.executable if name == OURS else server.python
                command = [python, __file__, "--client", name, "--url", server.url, "--input", file]
                done = subprocess.run(
                    [*map(str, command), "--seconds", str(seconds)], check=True, stdout=subprocess.PIPE, text=True
                )
                taken[name].append(json.loads(done.stdout.splitlines()[-1]))
    rates, costs = [], []
    for number, ours in enumerate(taken[OURS]):
        peers = [taken[name][number] for name in PEERS]
        rates.append(ours["rate"] / max(peer["rate"] for peer in peers))
        costs.append(ours["cpu_us"] / min(peer["cpu_us"] for peer in peers))
    rate, cost = statistics.median(rates), statistics.median(costs)
    return {
        "in_flight": IN_FLIGHT,
        "rounds": rounds,
        "load_average": os.getloadavg()[0],
        "clients": {
            name: {
                "requests_per_s": statistics.median(each["rate"] for each in found),
                "cpu_us_per_request": statistics.median(each["cpu_us"] for each in found),
            }
            for name, found in taken.items()
        },
        "rate_ratio": {"median": rate, "min": min(rates), "max": max(rates), "at_least": LEAST_RATE},
        "cpu_ratio": {"median": cost, "min": min(costs), "max": max(costs), "at_most": MOST_CPU},
        "passed": rate >= LEAST_RATE and cost <= MOST_CPU,
    }


def table(found: dict[str, Any]) -> str:
    lines = [
        f"{name:<12} {each['requests_per_s']:>8.0f} requests/s  {each['cpu_us_per_request']:>6.1f} us CPU a request"
        for name, each in found["clients"].items()
    ]
    for what, name, bar in (
        ("requests/s, ours to the faster", "rate_ratio", f"at least {LEAST_RATE:g}"),
        ("client CPU, ours to the thriftier", "cpu_ratio", f"at most {MOST_CPU:g}"),
    ):
        ratio = found[name]
        lines.append(f"{what}: median {ratio['median']:.3f}, {ratio['min']:.3f} to {ratio['max']:.3f}  ({bar})")
    return "\n".join([*lines, "passed" if found["passed"] else "MISSED"])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=11, help="Alternating rounds, at least 3.")
    parser.add_argument("--seconds", type=float, default=2.0, help="Measured time of a client in a round.")
    parser.add_argument("--json", action="store_true", help="Print JSON.")
    for name in ("--client", "--url", "--input"):  # how it calls itself, for one client
        parser.add_argument(name, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.client:
        print(json.dumps(CLIENTS[options.client](options.url, options.input, options.seconds)))
        return 0
    sys.path.insert(0, str(ROOT / "tests"))
    services = importlib.import_module("services.triton")
    try:
        server = services.Triton.start([MODEL])
    except services.CannotInstallError as reason:
        print(f"no Triton server: {reason}", file=sys.stderr)
        return 2
    try:
        found = measure(server, max(3, options.rounds), options.seconds)
    finally:
        server.stop()
    print(json.dumps(found, indent=2) if options.json else table(found))
    return 0 if found["passed"] else 1


if __name__ == "__main__":
    sys.exit(main())
