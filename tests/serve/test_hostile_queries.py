"""Queries that hurt, over HTTP and from agents at once, end within their limits and do not delay other clients."""

import json
import time
from concurrent.futures import ThreadPoolExecutor

import anyio
import psutil
from agents import over_http
from asking import PAGE, ask, bearer, token

from benchhouse.schema.query import QueryLimits
from benchhouse.serve.limits import AllTurns

JSON = {"Content-Type": "application/json"}
LIMITS = {"seconds": "1s", "wait": "2s", "memory": "128MiB", "answer": "1MiB", "spill": "16MiB", "at_once": "2"}
HOSTILE = (
    f"SELECT {'[' * 900}1{']' * 900}",
    "SELECT sum(x * y) FROM range(1000000) a(x), range(1000000) b(y)",
    "SELECT list(x) FROM range(100000000) t(x)",
    "SELECT repeat('x', 100000) FROM range(100)",
    f"SELECT '{'a' * 99_000}' || random()",
)
ENOUGH_S = 1.0 + 2.0 + 1.0 + 2.0  # the limits of time and of the wait, what is promised, and a busy machine


def test_pages_answer_while_hostile_queries_run(lab, serve):
    limits = [word for name, value in LIMITS.items() for word in ("--query-limit", f"{name}={value}")]
    hostile, other = (bearer(token(lab, name, "--scope", "read")) for name in ("mallory", "ada"))
    base = serve("--login", *limits)
    process = psutil.Process(serve.process.pid)
    question = json.dumps({"sql": "SELECT 1 + random() > 0 AS x", "seconds": 10})

    def look():
        began = time.monotonic()
        assert ask(base, "/runs", **PAGE, **other)[0] == 200
        return time.monotonic() - began

    def over_post(number):
        began = time.monotonic()
        body = json.dumps({"sql": HOSTILE[number % len(HOSTILE)], "seconds": 60, "rows": 100_000})
        status, headers, text = ask(base, "/api/query", "POST", body, **JSON, **hostile)
        assert status in (200, 400) or (status == 503 and headers["retry-after"] == "5"), text[:300]
        return status, time.monotonic() - began, json.loads(text).get("title", "")

    async def from_agent(client):
        took = []

        async def call(sql):
            began = time.monotonic()
            answer = await client.call_tool("query", {"sql": sql, "seconds": 60})
            took.append((answer.is_error, time.monotonic() - began))

        async with anyio.create_task_group() as calls:
            for number in range(10):
                calls.start_soon(call, HOSTILE[number % 3])
        return took

    look(), look()
    assert ask(base, "/api/query", "POST", question, **JSON, **other)[0] == 200
    before = process.memory_info().rss
    with ThreadPoolExecutor(12) as crew:
        agents = crew.submit(over_http, base, from_agent, **hostile)
        answers = [crew.submit(over_post, number) for number in range(10)]
        looks, queries = [], []
        while not (agents.done() and all(answer.done() for answer in answers)):
            looks.append(look())
            queries.append(ask(base, "/api/query", "POST", question, **JSON, **other))
        answers = [answer.result() for answer in answers]
    assert max(looks) < 2.0 and len(looks) > 2
    assert all(json.loads(text)["rows"] == [{"x": True}] for status, _, text in queries), "another client has a turn"
    assert max(took for _, took, _ in answers) < ENOUGH_S
    assert {status for status, _, _ in answers} & {400}, answers
    took = agents.result()
    assert len(took) == 10 and all(failed for failed, _ in took)
    assert max(seconds for _, seconds in took) < ENOUGH_S + 2.0, "the client imports its library first"
    assert process.memory_info().rss - before < 100 << 20
    children = process.children()
    assert len(children) <= int(LIMITS["at_once"]) + 1
    serve.process.kill()
    serve.process.wait()
    psutil.wait_procs(children, timeout=20)
    assert not [child for child in children if child.is_running() and child.status() != psutil.STATUS_ZOMBIE]


def test_an_answer_that_is_too_large_is_refused_in_every_form(lab, serve):
    base = serve("--query-limit", "answer=1MiB")
    sql = "SELECT repeat('x', 100000) AS x FROM range(20)"
    few = json.dumps({"sql": sql, "rows": 5})
    assert len(json.loads(ask(base, "/api/query", "POST", few, **JSON)[2])["rows"]) == 5
    status, _, text = ask(base, "/api/query", "POST", few, **JSON, Accept="text/csv")
    assert (status, len(text.splitlines())) == (200, 6)
    for accept in ("application/json", "text/csv", "application/vnd.apache.arrow.stream"):
        status, _, text = ask(base, "/api/query", "POST", json.dumps({"sql": sql}), **JSON, Accept=accept)
        assert status == 400 and "more than 1 MiB, of which 10 rows fit" in text, accept


def test_one_client_computes_two_answers_at_once_and_another_does_not_wait():
    running, peaks, over = [], [], []

    def compute(client):
        running.append(client)
        peaks.append(running.count("mallory"))
        time.sleep(0.2)
        running.remove(client)
        over.append(client)

    async def ask_all():
        turns = AllTurns(QueryLimits())
        async with anyio.create_task_group() as tasks:
            for number in range(8):
                tasks.start_soon(turns.of(f"/kind{number % 3}").run, "mallory", compute, "mallory")
            await anyio.sleep(0.05)
            tasks.start_soon(turns.of("/kind0").run, "ada", compute, "ada")

    anyio.run(ask_all)
    assert max(peaks) == 2
    assert over.index("ada") <= 4
