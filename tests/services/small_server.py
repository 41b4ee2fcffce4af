"""A small real server for tests of the life of services: what it does is chosen by words.

    recipe("answer")                       as a mapping, to be written as YAML
    recipe("answer", "stubborn")           ignores SIGTERM

Words: `answer` 200 at /, `die-after:S`, `never` (does not listen), `shout:N` (prints N MB), `stubborn`, `family`
(starts children, one of which leaves its session), `flap` (every other answer is 503), `sick-after:S` (503 from then
on), `secret` (prints its {secret}), `mortal` (ends when asked for /die).
"""

import json
import math
import os
import signal
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any


def recipe(*words: str, **more: Any) -> dict[str, Any]:
    return {
        "name": "small",
        "program": [sys.executable],
        "command": ["{program}", str(Path(__file__).resolve()), "{host}:{port}", "{secret}", *words],
        "endpoint": "http://{host}:{port}",
        "ready": {"kind": "http", "timeout": 120},
    } | more


def with_small(lab: Any) -> Any:
    """`lab.small(*words)` writes recipes/small.yaml of the lab's workspace; it answers, until told otherwise."""
    folder = lab.workspace / "recipes"
    folder.mkdir()
    lab.small = lambda *words, **more: (folder / "small.yaml").write_text(json.dumps(recipe(*words, **more)))
    lab.small("answer")
    return lab


class Answers(BaseHTTPRequestHandler):
    asked = 0
    sick_at = math.inf

    def do_GET(self) -> None:
        Answers.asked += 1
        if self.path == "/die" and "mortal" in sys.argv:
            print("out of memory", flush=True)
            os._exit(3)
        flaps = "flap" in sys.argv and Answers.asked % 2
        self.send_response(503 if flaps or time.monotonic() > Answers.sick_at else 200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


def family() -> None:
    subprocess.Popen(["sleep", "300"])
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            time.sleep(300)
        os._exit(0)


def main(host: str, port: int, secret: str, words: list[str]) -> None:
    print("starting on", port, flush=True)
    chosen = dict(word.partition(":")[::2] for word in words)
    if "stubborn" in chosen:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if "family" in chosen:
        family()
    if "secret" in chosen:
        print("my secret is", secret, flush=True)
    if "die-after" in chosen:
        threading.Timer(float(chosen["die-after"]), lambda: (print("out of memory", flush=True), os._exit(3))).start()
    if "sick-after" in chosen:
        Answers.sick_at = time.monotonic() + float(chosen["sick-after"])
    if "shout" in chosen:
        line = b"x" * 1023 + b"\n"
        for _ in range(int(chosen["shout"]) * 16):
            os.write(1, line * 64)
    if "never" in chosen:
        time.sleep(300)
    ThreadingHTTPServer((host, port), Answers).serve_forever()


if __name__ == "__main__":
    where, _, number = sys.argv[1].rpartition(":")
    main(where, int(number), sys.argv[2], sys.argv[3:])
