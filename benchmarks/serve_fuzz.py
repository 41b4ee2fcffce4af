"""Fuzzed requests to a server: no server error, and no path, traceback or secret of the machine in an answer.

    python benchmarks/serve_fuzz.py [--requests 10000] [--json]

The questions are made from the OpenAPI document of the server itself and from its table of pages, with names, numbers
and bodies that nobody means. One of three is for a page, an outlet (badge, feed, metrics), a form or an agent.
"""

import argparse
import http.client
import json
import os
import random
import re
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from benchhouse.serve.app import PAGES

SECRET = "planted-b1946ac92492"
SCENARIO = "scenario: fuzzed\nexperiment: command\ntarget: {name: t, shell: 'true'}\nrepetitions: 2\n"
SLOW = ("/api/verify", "/api/servers/{server}/check")
QUERIES = (
    "since", "scenario", "state", "after", "ref", "a", "b", "metric", "at", "along", "mde", "confidence", "q", "run",
    "audience", "from", "to", "verify", "experiment", "stat", "first", "workload.argv", "target.name", "repetitions",
)  # fmt: skip
OUTLETS = ("/badge/{case}/{metric}.svg", "/feed.atom", "/metrics", "/assets/{file}", "/login", "/new/scenario.yaml",
           "/api/runs/{run}/events", "/{anything}")  # fmt: skip
FORMS = ("/do/{verb}", "/login", "/logout", "/mcp", "/webhooks/github", "/api/runs", "/api/runs/{run}/stop")
ODD = (
    "", "@last", "@last-9", "fuzzed", "../../etc/passwd", "/etc/passwd", "%00", "\0", "a" * 600, "<script>", "x'; y",
    "\u202e", "\ud7ff", "-1", "1e999", "nan", "true", "[]", "{}", "SELECT 1", "SELECT * FROM trial_fact",
    "FROM read_text('/etc/passwd')", "SELECT getenv('DB_PASSWORD')", "x: $DB_PASSWORD", "${DB_PASSWORD}", SCENARIO,
    SCENARIO + "contract: /etc/passwd\n",
)  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        result = fuzz(Path(folder), options.requests, random.Random(options.seed))
    good = not result["server_errors"] and not result["leaks"]
    print(json.dumps(result) if options.json else f"{result}\n{'good' if good else 'MISSED'}: 0 errors, 0 leaks wanted")
    return 0 if good else 1


def fuzz(folder: Path, requests: int, chance: random.Random) -> dict[str, Any]:
    environment = os.environ | {"DB_PASSWORD": SECRET, "NO_COLOR": "1"}
    bench = [sys.executable, "-m", "benchhouse"]
    (folder / "fuzzed.yaml").write_text(SCENARIO)
    subprocess.run([*bench, "run", "fuzzed.yaml"], cwd=folder, env=environment, check=True, capture_output=True)
    server = subprocess.Popen(
        [*bench, "serve", "--port", "0", "--rate", "1000000"], cwd=folder, env=environment, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        match = re.search(r"https?://\S+", server.stdout.readline() if server.stdout else "")
        assert match
        return ask_all(match.group(), folder, requests, chance)
    finally:
        server.terminate()
        server.wait()


def ask_all(base: str, folder: Path, requests: int, chance: random.Random) -> dict[str, Any]:
    at = urlsplit(base)
    connection = http.client.HTTPConnection(at.hostname or "", at.port, timeout=120)
    connection.request("GET", "/api/openapi.json")
    document = json.loads(connection.getresponse().read())
    operations = [
        (method, path, operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
        if path not in SLOW and operation["description"].startswith("For the role read,")
    ]
    pages = [("get", path, of_page(path)) for path in (*(path for path, _ in PAGES), *OUTLETS)]
    pages += [("post", path, of_page(path)) for path in FORMS]
    hidden = [str(folder), str(Path.home()), SECRET, "Traceback (most recent call last)", "root:x:0"]
    statuses, errors, leaks = Counter[int](), list[str](), list[str]()
    for _ in range(requests):
        chosen = chance.choice(pages if chance.random() < 1 / 3 else operations)
        method, target, body, headers = question(*chosen, chance)
        try:
            connection.request(method, target, body, headers)
            answer = connection.getresponse()
            text = answer.read().decode("utf-8", "replace")
        except (http.client.HTTPException, ConnectionError):
            connection.close()
            continue
        statuses[answer.status] += 1
        if answer.status >= 500:
            errors.append(f"{method} {target[:200]} {(body or '')[:200]}: {text[:200]}")
        leaks += [f"{method} {target[:200]}: {word}" for word in hidden if word in text]
    return {"requests": sum(statuses.values()), "statuses": dict(statuses), "server_errors": errors, "leaks": leaks}


def of_page(path: str) -> Any:
    """A page as the document would have it: names in its path, and what forms send."""
    inside = re.findall(r"\{(\w+)(?::path)?\}", path)
    asked = [{"name": name, "in": "path"} for name in inside] + [{"name": name, "in": "query"} for name in QUERIES]
    return {"parameters": asked}


def question(
    method: str, path: str, operation: Any, chance: random.Random
) -> tuple[str, str, str | None, dict[str, str]]:
    """One that fits the document in form, or not even that."""
    pairs = []
    for parameter in operation.get("parameters", ()):
        text = quote(value(chance), safe="")
        if parameter["in"] == "path":
            for place in (f"{{{parameter['name']}}}", f"{{{parameter['name']}:path}}"):
                path = path.replace(place, text or "x")
        elif chance.random() < 0.3:
            pairs.append(f"{parameter['name']}={text}")
    if chance.random() < 0.1:
        pairs.append(f"{quote(value(chance), safe='')}={quote(value(chance), safe='')}")
    headers = {
        "Accept": chance.choice(["*/*"] * 9 + ["text/csv", "application/vnd.apache.arrow.stream", "x", "text/html;q=z"])
    }
    body = None
    if method == "post":
        headers["Content-Type"] = "application/json"
        wanted: dict[str, Any] = {
            name: chance.choice([value(chance), 1, -1, None, [], {}]) for name in ("sql", "scenario", "rows", "points")
        }
        body = chance.choice(
            [json.dumps({key: item for key, item in wanted.items() if chance.random() < 0.6}), "[", "[]", ""]
        )
    chosen = chance.choice([method.upper()] * 8 + ["HEAD", "DELETE"])
    return chosen, path + ("?" + "&".join(pairs) if pairs else ""), body, headers


def value(chance: random.Random) -> str:
    if chance.random() < 0.7:
        return chance.choice(ODD)
    return "".join(
        chr(chance.choice([chance.randrange(1, 128), chance.randrange(128, 0x3000)]))
        for _ in range(chance.randrange(12))
    )


if __name__ == "__main__":
    sys.exit(main())
