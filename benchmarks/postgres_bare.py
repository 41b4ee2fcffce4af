"""The tightest loops of the PostgreSQL clients in plain Python: what no load through them can beat on this CPU.

Nothing is counted, checked or looked after but one stamp before and one after each call, in a list. Statements, values,
number of processes and connections are those of our load in `postgres_pgbench.py`, which runs these in turn with it:

- `postgres_pq`, `postgres`: all connections of a process in one thread, as our closed loops of psycopg2 have them;
- `postgres_threads`: psycopg2 with a thread for each connection.

At a rate each connection has a thread of its own, and its own Poisson arrivals. `postgres_pq` is libpq by its calls:
our load can be ahead of it, for it sends messages of its own.
"""

import gc
import json
import os
import random
import select
import threading
from collections.abc import Callable
from time import monotonic_ns, process_time, sleep
from typing import Any

DISTINCT = 20_000  # different calls, as of our load
TEXTS = {
    "lookup": "SELECT balance FROM accounts WHERE id = $1",
    "update": "UPDATE accounts SET balance = balance + $1, hits = hits + 1 WHERE id = $2",
}
Stamps = list[tuple[int, int]]
Given = tuple[str, str, str, int]  # endpoint, schema, operation, rows of the table
Start = Callable[[], int]  # says that all connections are there, waits for the others, and tells when to end


def values(operation: str, rows: int) -> list[tuple[int, ...]]:
    if operation == "lookup":
        return [(random.randint(1, rows),) for _ in range(DISTINCT)]
    return [(random.randint(1, 100), random.randint(1, rows)) for _ in range(DISTINCT)]


def psycopg2_connection(endpoint: str, schema: str, *, abreast: bool) -> Any:
    import psycopg2

    made = psycopg2.connect(endpoint, options=f"-c search_path={schema}", async_=abreast)
    if abreast:
        finish(made)
    else:
        made.autocommit = True
    return made


def finish(connection: Any) -> None:
    while state := connection.poll():
        wanted = [connection.fileno()]
        select.select(wanted if state == 1 else [], wanted if state == 2 else [], [])


def pq_connection(endpoint: str, schema: str, text: str) -> Any:
    import psycopg
    from psycopg.conninfo import make_conninfo

    words = make_conninfo(endpoint, options=f"-c search_path={schema}")
    made = psycopg.pq.PGconn.connect(words.encode())
    prepared = made.prepare(b"q", text.encode())
    assert prepared.status == 1, prepared.error_message
    return made


def pq_abreast(endpoint: str, schema: str, operation: str, rows: int, clients: int, start: Start) -> Stamps:
    made = [pq_connection(endpoint, schema, TEXTS[operation]) for _ in range(clients)]
    connections = {each.socket: each for each in made}
    calls = [[str(value).encode() for value in each] for each in values(operation, rows)]
    good, found, sent, at, ready = 2 if operation == "lookup" else 1, [], {}, 0, select.epoll()
    end, now = start(), 0
    for fd, each in connections.items():
        ready.register(fd, select.EPOLLIN)
        sent[fd] = monotonic_ns()
        each.send_query_prepared(b"q", calls[at])
        at += 1
    while now < end:
        for fd, _ in ready.poll(1):
            each = connections[fd]
            each.consume_input()
            if each.is_busy():
                continue
            if each.get_result().status != good or each.is_busy() or each.get_result() is not None:
                raise SystemExit("a call failed")
            now = monotonic_ns()
            found.append((sent[fd], now))
            sent[fd] = now
            each.send_query_prepared(b"q", calls[at % DISTINCT])
            at += 1
    return found


def psycopg2_abreast(endpoint: str, schema: str, operation: str, rows: int, clients: int, start: Start) -> Stamps:
    pairs = {}
    for _ in range(clients):
        each = psycopg2_connection(endpoint, schema, abreast=True)
        pairs[each.fileno()] = each.poll, each.cursor()
        pairs[each.fileno()][1].execute(f"PREPARE q AS {TEXTS[operation]}")
        finish(each)
    calls = [f"EXECUTE q({', '.join(map(str, each))})" for each in values(operation, rows)]
    found, sent, at, ready = [], {}, 0, select.epoll()
    end, now = start(), 0
    for fd, (_, cursor) in pairs.items():
        ready.register(fd, select.EPOLLIN)
        sent[fd] = monotonic_ns()
        cursor.execute(calls[at])
        at += 1
    while now < end:
        for fd, _ in ready.poll(1):
            poll, cursor = pairs[fd]
            if poll():
                continue
            now = monotonic_ns()
            found.append((sent[fd], now))
            sent[fd] = now
            cursor.execute(calls[at % DISTINCT])
            at += 1
    return found


def in_threads(
    kind: str, endpoint: str, schema: str, operation: str, rows: int, clients: int, rate: float, start: Start
) -> Stamps:
    """Blocking calls, a thread for each connection; `rate` is of one connection."""
    found: list[Stamps] = [[] for _ in range(clients)]
    go, ready, ends = threading.Event(), threading.Semaphore(0), [0]
    drawn = values(operation, rows)

    def work(number: int) -> None:
        call: Callable[[Any], Any]
        if kind == "postgres_pq":
            run = pq_connection(endpoint, schema, TEXTS[operation]).exec_prepared
            calls: list[Any] = [[str(value).encode() for value in each] for each in drawn]
            call = lambda asked: run(b"q", asked)  # noqa: E731
        else:
            cursor = psycopg2_connection(endpoint, schema, abreast=False).cursor()
            cursor.execute(f"PREPARE q AS {TEXTS[operation]}")
            calls, call = [f"EXECUTE q({', '.join(map(str, each))})" for each in drawn], cursor.execute
        ready.release()
        go.wait()
        stamps, at, now, end = found[number], number * DISTINCT // clients, 0, ends[0]
        due, gaps = monotonic_ns(), random.Random(number)
        while now < end:
            if rate:
                due += round(gaps.expovariate(rate) * 1e9)
                sleep(max(due - monotonic_ns(), 0) / 1e9)
            sent = monotonic_ns()
            call(calls[at % DISTINCT])
            now = monotonic_ns()
            stamps.append((sent, now))
            at += 1

    crew = [threading.Thread(target=work, args=(number,)) for number in range(clients)]
    for thread in crew:
        thread.start()
    for _ in crew:
        ready.acquire()
    ends[0] = start()
    go.set()
    for thread in crew:
        thread.join()
    return [stamp for stamps in found for stamp in stamps]


def share(kind: str, clients: int, rate: float, begin: Start, seconds: float, warmup: float, given: Given) -> Any:
    """What one process has done in the window: calls, seconds of CPU, microseconds of each call."""
    cpu: list[float] = []

    def start() -> int:
        gc.disable()
        first = begin()
        while monotonic_ns() < first:
            sleep(0.001)
        threading.Timer(warmup, lambda: cpu.append(process_time())).start()
        return first + round((warmup + seconds) * 1e9)

    if rate or kind == "postgres_threads":
        stamps = in_threads(kind, *given, clients, rate / clients, start)
    else:
        stamps = (pq_abreast if kind == "postgres_pq" else psycopg2_abreast)(*given, clients, start)
    used = process_time() - cpu[0]
    opened = max(ended for _, ended in stamps) - round(seconds * 1e9)
    taken = [ended - sent for sent, ended in stamps if ended >= opened]
    return len(taken), used, [round(each / 1e3, 1) for each in taken]


def bare(
    kind: str, endpoint: str, schema: str, operation: str, rows: int, clients: int, seconds: float,
    *, rate: float = 0, processes: int = 2, warmup: float = 0.5,
) -> dict[str, float]:  # fmt: skip
    """As many processes, which connect first and start together."""
    children = []
    for number in range(processes):
        (upward, up), (down, downward) = os.pipe(), os.pipe()
        if os.fork() == 0:
            code = 1
            try:
                random.seed(number)

                def begin(up: int = up, down: int = down) -> int:
                    os.write(up, b"ready\n")
                    return int(os.read(down, 100))

                given = (endpoint, schema, operation, rows)
                mine = clients // processes + (number < clients % processes)
                result = share(kind, mine, rate / processes, begin, seconds, warmup, given)
                with os.fdopen(up, "w") as out:
                    json.dump(result, out)
                code = 0
            finally:
                os._exit(code)
        os.close(up)
        os.close(down)
        children.append((os.fdopen(upward), downward))
    said = [up.readline() for up, _ in children]
    if not all(said):
        raise SystemExit("a bare loop could not begin")
    edge = monotonic_ns() + 20_000_000
    for _, down in children:
        os.write(down, b"%d" % edge)
    results = [json.load(up) for up, _ in children]
    count = sum(each[0] for each in results)
    taken = sorted(each for _, _, part in results for each in part)
    return {
        "rate": count / seconds,
        "cpu_us": sum(each[1] for each in results) / count * 1e6,
        "p95_us": taken[int(len(taken) * 0.95)],
    }
