"""Our S3 client beside s5cmd and boto3: one real server (SeaweedFS on tmpfs), same objects, same number in flight.

- get_small: 1 KB, 16 in flight. At least 1.5 times the operations/s of s5cmd (one `cp` of all objects into tmpfs, so
  that it asks for nothing but their content), and at most 260 microseconds of client CPU an operation.
- get_large: 64 MB, 8 in flight. At least 1.5 times the MB/s of boto3, and at most 20 ms of client CPU an object.
- put_large: 64 MB, 8 in flight. At least 3 times the MB/s of boto3.

boto3 runs in threads as its documentation has it: get_object and read, put_object, and its transfer manager; the faster
counts. `boto3_pieces`, which reads an answer by the MiB and throws it away, is shown beside them. Ours is the load of
`storage.s3`, a tenth of the contents compared. Clients alternate; the median of the rounds' ratios counts.

The server has the same cores, and its CPU time is shown beside each client's. Where the two have all cores and keep
them busy, rates are as the inverse of their CPU together, and no client is faster than one without any cost (`bound`).
Of a put the server computes several MD5s, and the bound is far below the bar. A ratio above the bound tells that
others had the cores meanwhile, and is worth as little as one below it by chance. For puts that bound is also measured:
`bare` is a socket a thread, one signed head made before the time, and 64 MB of memory handed to the kernel. A bar that
it misses too is told as the server's, and is missed all the same.

    scripts/install-peers.sh s3_clients
    python benchmarks/s3_clients.py [--rounds 5] [--case get_small ...] [--json]

Exit code 1 when missed, 2 without the peers.
"""

import argparse
import importlib
import io
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

OURS = "benchhouse"
CACHE = Path(os.environ.get("BENCH_TEST_CACHE", "~/.cache/benchhouse-tests")).expanduser() / "peers" / "s3_clients"
PREFIX = "figure/"
_PIECE = 1 << 20


@dataclass(frozen=True)
class Case:
    """What is asked, and what must come out of it."""

    operation: str
    size: int
    in_flight: int
    objects: int
    peers: tuple[str, ...]
    least_ratio: float
    most_cpu_us: float | None
    shown: tuple[str, ...] = ()  # without a bar


CASES = {
    "get_small": Case("get", 1000, 16, 3000, ("s5cmd",), 1.5, 260),
    "get_large": Case("get", 64_000_000, 8, 8, ("boto3", "boto3_transfer"), 1.5, 20_000, ("boto3_pieces",)),
    "put_large": Case("put", 64_000_000, 8, 16, ("boto3", "boto3_transfer"), 3.0, None, ("bare",)),
}
TIMES = {"get_small": 1, "get_large": 4, "put_large": 1}  # how often each object is asked for


def benchhouse(name: str, endpoint: str, bucket: str) -> dict[str, float]:
    """The load of `storage.s3`, without what it does around it."""
    from benchhouse.drivers.s3 import S3
    from benchhouse.experiments.storage.s3_content import make_contents
    from benchhouse.experiments.storage.s3_source import ObjectRequests, Places, PreparedBucket, RequestMix, S3Tally
    from benchhouse.load.engine import run_load
    from benchhouse.load.protocols.s3 import S3Target
    from benchhouse.load.shape import Shape

    case = CASES[name]
    driver = S3.for_target(S3Target(), endpoint, bucket)
    contents = make_contents(0, case.size, case.objects)
    prepared = PreparedBucket(Places(PREFIX), contents, case.objects, 0, named_by_md5=True)
    source = ObjectRequests(driver, prepared, RequestMix({case.operation: 1.0}))
    source.make_ready(writes=case.operation == "put")
    operations = case.objects * TIMES[name]
    shape = Shape(concurrency=case.in_flight, requests=operations, warmup=0)
    book = run_load(lambda: driver, source, shape, S3Tally)
    if book.failed or book.stopped:
        raise SystemExit(f"{book.failed} requests failed: {book.details} {book.stopped}")
    return {"rate": operations / book.window_s, "cpu_us": book.cpu_all_ns / operations / 1e3}


def s5cmd(name: str, endpoint: str, bucket: str) -> dict[str, float]:
    case = CASES[name]
    program = [CACHE / "bin" / "s5cmd", "--log", "error", "--numworkers", case.in_flight, "--endpoint-url", endpoint]
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
        asked = ["cp", "--concurrency", "1", f"s3://{bucket}/{PREFIX}read/*", f"{folder}/"]
        subprocess.run([*map(str, program), *asked], check=True)
        taken, after = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
        found = [file.stat().st_size for file in Path(folder).iterdir()]
    if found != [case.size] * case.objects:
        raise SystemExit(f"s5cmd brought {len(found)} objects of {set(found)} bytes")
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"rate": case.objects / taken, "cpu_us": cpu / case.objects * 1e6}


def boto3(name: str, endpoint: str, bucket: str, *, transfer: bool = False, pieces: bool = False) -> dict[str, float]:
    case, config = CASES[name], importlib.import_module("botocore.config").Config
    client = importlib.import_module("boto3").client(
        "s3", endpoint_url=endpoint, region_name="us-east-1", config=config(max_pool_connections=64)
    )
    content = os.urandom(_PIECE) * (case.size // _PIECE + 1)
    content = content[: case.size]

    def ask(number: int) -> None:
        key = f"{PREFIX}read/{number % case.objects:08d}"
        if case.operation == "put" and transfer:
            client.upload_fileobj(io.BytesIO(content), bucket, f"{PREFIX}written/{number}")
        elif case.operation == "put":
            client.put_object(Bucket=bucket, Key=f"{PREFIX}written/{number}", Body=content)
        elif transfer:
            client.download_fileobj(bucket, key, io.BytesIO())
        else:
            body = client.get_object(Bucket=bucket, Key=key)["Body"]
            assert (sum(map(len, body.iter_chunks(_PIECE))) if pieces else len(body.read())) == case.size

    operations = case.objects * TIMES[name]
    with ThreadPoolExecutor(case.in_flight) as crew:
        list(crew.map(lambda _: time.sleep(0.01), range(case.in_flight)))
        began, cpu = time.monotonic(), time.process_time()
        list(crew.map(ask, range(operations)))
        taken, cpu = time.monotonic() - began, time.process_time() - cpu
    return {"rate": operations / taken, "cpu_us": cpu / operations * 1e6}


def bare(name: str, endpoint: str, bucket: str) -> dict[str, float]:
    """Puts as lean as can be: nothing is looked at but the status of the answer."""
    import socket

    from benchhouse.drivers.s3 import S3
    from benchhouse.load.protocols.s3 import S3Target

    case, driver = CASES[name], S3.for_target(S3Target(), endpoint, bucket)
    content = memoryview((os.urandom(_PIECE) * (case.size // _PIECE + 1))[: case.size])
    place = urlsplit(driver.url)
    heads = []
    for number in range(case.objects):
        path = f"{driver.path}{PREFIX}written/{number}"
        head = f"PUT {path} HTTP/1.1\r\n{driver.signer.lines('PUT', path)}Content-Length: {case.size}\r\n\r\n"
        heads.append(head.encode())
    places = [socket.create_connection((place.hostname or "", place.port or 80)) for _ in range(case.in_flight)]

    def put(first: int) -> None:
        """Every n-th object, over one connection."""
        for head in heads[first :: case.in_flight]:
            places[first].sendall(head)
            places[first].sendall(content)
            answer = b""
            while b"\r\n\r\n" not in answer:
                answer += places[first].recv(65536) or b"\r\n\r\n"
            if not answer.startswith(b"HTTP/1.1 200"):
                raise SystemExit(f"bare: {answer[:200]!r}")

    with ThreadPoolExecutor(case.in_flight) as crew:
        began, cpu = time.monotonic(), time.process_time()
        list(crew.map(put, range(case.in_flight)))
        taken, cpu = time.monotonic() - began, time.process_time() - cpu
    return {"rate": case.objects / taken, "cpu_us": cpu / case.objects * 1e6}


CLIENTS: dict[str, Callable[[str, str, str], dict[str, float]]] = {
    OURS: benchhouse,
    "bare": bare,
    "s5cmd": s5cmd,
    "boto3": boto3,
    "boto3_transfer": lambda *asked: boto3(*asked, transfer=True),
    "boto3_pieces": lambda *asked: boto3(*asked, pieces=True),
}


def prepare(case: Case, endpoint: str, bucket: str) -> None:
    """The objects that are read, as the load knows them."""
    from benchhouse.drivers.s3 import S3
    from benchhouse.experiments.storage.s3 import S3Writes
    from benchhouse.experiments.storage.s3_content import make_contents
    from benchhouse.experiments.storage.s3_source import Places
    from benchhouse.load.calls import CallTally
    from benchhouse.load.engine import run_load
    from benchhouse.load.protocols.s3 import S3Target
    from benchhouse.load.shape import Shape

    driver, contents = S3.for_target(S3Target(), endpoint, bucket), make_contents(0, case.size, case.objects)
    keys = map(Places(PREFIX).read, range(case.objects if case.operation == "get" else 1))
    objects = [(key, contents[number % len(contents)]) for number, key in enumerate(keys)]
    shape = Shape(concurrency=min(8, len(objects)), requests=len(objects), warmup=0)
    book = run_load(lambda: driver, S3Writes(driver, objects, 0), shape, CallTally)
    if book.failed:
        raise SystemExit(f"objects could not be written: {book.details}")


@contextmanager
def objects(case: Case, endpoint: str, bucket: str) -> Iterator[str]:
    """A bucket with the objects that are read; with it, the server gives their memory back."""
    from benchhouse.drivers.s3 import S3
    from benchhouse.load.protocols.s3 import S3Target

    house = S3.for_target(S3Target(), endpoint, bucket).bucket()
    house.make_sure(create=True)
    prepare(case, endpoint, bucket)
    yield bucket
    house.remove(list(house.keys("")))
    house.remove_bucket()
    house.close()


def run_client(client: str, name: str, endpoint: str, bucket: str) -> dict[str, float]:
    """In a process of its own, with the Python that has it."""
    python = CACHE / "bin" / "python" if client.startswith("boto3") else sys.executable
    parts = urlsplit(endpoint)
    plain = endpoint if client in (OURS, "bare") else f"{parts.scheme}://{parts.hostname}:{parts.port}"
    keys = {
        "AWS_ACCESS_KEY_ID": parts.username or "",
        "AWS_SECRET_ACCESS_KEY": parts.password or "",
        "AWS_REGION": "us-east-1",
    }
    command = [python, __file__, "--client", client, "--case", name, "--endpoint", plain, "--bucket", bucket]
    done = subprocess.run(
        [*map(str, command)], check=True, stdout=subprocess.PIPE, text=True, env=dict(os.environ) | keys
    )
    return dict(json.loads(done.stdout.splitlines()[-1]))


def server_cpu_s(pid: int) -> float:
    """CPU time of the server so far; `pid` is that of the shell which waits for it."""
    from benchhouse.processes.tree import descendants

    files = [Path(f"/proc/{each}/stat") for each in descendants(pid)]
    fields = [file.read_text().rpartition(")")[2].split() for file in files]
    return sum(int(each[11]) + int(each[12]) for each in fields) / os.sysconf("SC_CLK_TCK")


def measure(name: str, endpoint: str, server: int, rounds: int) -> dict[str, Any]:
    case = CASES[name]
    operations = case.objects * TIMES[name]
    clients = (OURS, *case.peers, *case.shown)
    taken: dict[str, list[dict[str, float]]] = {client: [] for client in clients}
    writes = case.operation == "put"
    with nullcontext("") if writes else objects(case, endpoint, name.replace("_", "-")) as common:
        for number in range(rounds):
            for client in clients if number % 2 else clients[::-1]:
                own = f"{name}-{number}-{client}".replace("_", "-")
                with objects(case, endpoint, own) if writes else nullcontext(common) as bucket:
                    before = server_cpu_s(server)
                    taken[client].append(run_client(client, name, endpoint, bucket))
                    taken[client][-1]["server_us"] = (server_cpu_s(server) - before) / operations * 1e6
    rates = [
        ours["rate"] / max(taken[peer][number]["rate"] for peer in case.peers)
        for number, ours in enumerate(taken[OURS])
    ]
    ratio = statistics.median(rates)
    bare = [
        one["rate"] / max(taken[peer][number]["rate"] for peer in case.peers)
        for number, one in enumerate(taken.get("bare", []))
    ]
    cpu_us = statistics.median(each["cpu_us"] for each in taken[OURS])
    costs = [
        ours["cpu_us"] / min(taken[peer][number]["cpu_us"] for peer in case.peers)
        for number, ours in enumerate(taken[OURS])
    ]
    bounds = [
        min(taken[peer][number]["cpu_us"] + taken[peer][number]["server_us"] for peer in case.peers) / ours["server_us"]
        for number, ours in enumerate(taken[OURS])
    ]
    return {
        "in_flight": case.in_flight,
        "size": case.size,
        "clients": {
            client: {
                "operations_per_s": statistics.median(each["rate"] for each in found),
                "mb_per_s": statistics.median(each["rate"] for each in found) * case.size / 1e6,
                "cpu_us": statistics.median(each["cpu_us"] for each in found),
                "server_us": statistics.median(each["server_us"] for each in found),
            }
            for client, found in taken.items()
        },
        "ratio": {"median": ratio, "min": min(rates), "max": max(rates), "at_least": case.least_ratio},
        "cpu_us": {"median": cpu_us, "at_most": case.most_cpu_us},
        "cpu_ratio": statistics.median(costs),
        "bound": statistics.median(bounds),
        "bare": statistics.median(bare) if bare else None,
        "passed": ratio >= case.least_ratio and (case.most_cpu_us is None or cpu_us <= case.most_cpu_us),
    }


def table(name: str, found: dict[str, Any]) -> str:
    lines = [f"{name}: {found['size']} bytes, {found['in_flight']} in flight"]
    lines += [
        f"  {client:<15} {each['operations_per_s']:>9.1f} operations/s {each['mb_per_s']:>9.1f} MB/s "
        f"{each['cpu_us']:>9.0f} us CPU an operation, {each['server_us']:>7.0f} us of the server's"
        for client, each in found["clients"].items()
    ]
    ratio, cpu = found["ratio"], found["cpu_us"]
    lines.append(
        f"  ours to the faster peer: median {ratio['median']:.2f}, {ratio['min']:.2f} to {ratio['max']:.2f}"
        f"  (at least {ratio['at_least']:g})"
    )
    bar = f"  (at most {cpu['at_most']:g})" if cpu["at_most"] else ""
    lines.append(
        f"  our CPU: {cpu['median']:.0f} us an operation{bar}, {found['cpu_ratio']:.2f} of the thriftier peer's"
    )
    lines.append(f"  bound of a client without any cost, all cores busy: {found['bound']:.2f} times the peer")
    if found["bare"] is not None:
        theirs = ", so that a miss is the server's, on this machine" if found["bare"] < ratio["at_least"] else ""
        lines.append(f"  the bare socket to the faster peer: {found['bare']:.2f}{theirs}")
    return "\n".join([*lines, "  passed" if found["passed"] else "  MISSED"])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="Alternating rounds, at least 3.")
    parser.add_argument("--case", choices=CASES, action="append", help="Only these.")
    parser.add_argument("--json", action="store_true", help="Print JSON.")
    for name in ("--client", "--endpoint", "--bucket"):  # how it calls itself, for one client
        parser.add_argument(name, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.client:
        print(json.dumps(CLIENTS[options.client](options.case[0], options.endpoint, options.bucket)))
        return 0
    if not (CACHE / "bin" / "s5cmd").exists():
        print("no boto3 and s5cmd: scripts/install-peers.sh s3_clients", file=sys.stderr)
        return 2
    from benchhouse.recipes.seaweedfs import RECIPE
    from benchhouse.worker.services import single_server

    found = {}
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder, single_server(RECIPE, Path(folder)) as service:
        for name in options.case or CASES:
            found[name] = measure(name, service.endpoint, service.pid, max(3, options.rounds))
            if not options.json:
                print(table(name, found[name]), flush=True)
    if options.json:
        print(json.dumps({"load_average": os.getloadavg()[0], "cases": found}, indent=2))
    return 0 if all(each["passed"] for each in found.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
