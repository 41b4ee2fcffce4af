"""Signed webhooks at a rate, through kill -9 of the server, and forged or replayed ones: what is taken, and how fast.

Three parts, each against the real `bench serve`:

- rate: deliveries at 200 a second from several senders, for `--seconds`; the time from sending to 202. A delivery is
  begun when it is due, whatever the ones before it do.
  Beside it stands what the disk alone takes for a sync of as many bytes, asked as often just before: each delivery has
  one, and no p99 is below that.
- kills: the server is killed at random moments while deliveries come; whoever got no answer sends again, with the same
  id. At the end every delivery that was answered 202 must be kept, and every one must be there once.
- forged: `--forged` deliveries with a wrong signature, a changed body, an old signature on a new id, or an id that was
  used. None may be taken.

    python benchmarks/webhook_storm.py [--seconds 30] [--kills 50] [--forged 10000] [--json]

Exits 1 unless p99 is below 200 ms, and nothing was lost, doubled or taken.
"""

import argparse
import hashlib
import hmac
import http.client
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from benchhouse.api.workspace import Workspace

SECRET = b"planted-webhook-secret"
SETTINGS = "github: {repositories: [team/bench], webhook_secret: $STORM_SECRET}\n"
BAR_MS = 200.0
SENDERS = 16
SYNCED_BYTES = 30_000
Request = tuple[dict[str, str], bytes]


def comment(number: int) -> Request:
    """A comment that orders something, of the size of a real one."""
    body = json.dumps(
        {
            "action": "created",
            "repository": {"full_name": "team/bench", "description": "x" * 5000},
            "issue": {"number": 7},
            "comment": {"id": number, "body": f"/bench status {number}", "user": {"login": "ada"},
                        "created_at": "2026-01-01T00:00:00Z", "updated_at": "2026-01-01T00:00:00Z"},
        }
    ).encode()  # fmt: skip
    return signed(body, f"delivery-{number}", SECRET), body


def signed(body: bytes, delivery: str, secret: bytes) -> dict[str, str]:
    return {
        "Content-Type": "application/json",
        "X-GitHub-Event": "issue_comment",
        "X-GitHub-Delivery": delivery,
        "X-Hub-Signature-256": f"sha256={hmac.new(secret, body, hashlib.sha256).hexdigest()}",
    }


class Server:
    """`bench serve` on a workspace."""

    def __init__(self, root: Path) -> None:
        command = [sys.executable, "-m", "benchhouse", "-C", str(root), "serve", "--port", "0"]
        environment = os.environ | {"STORM_SECRET": SECRET.decode()}
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment
        )
        assert self.process.stdout
        found = re.search(r":(\d+)/", self.process.stdout.readline())
        assert found
        self.port = int(found[1])

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdout
        self.process.stdout.close()


class Sender:
    """One connection that is kept open."""

    def __init__(self, port: int) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)

    def send(self, request: Request) -> int:
        """The status; 0 where there was no answer."""
        headers, body = request
        try:
            self._connection.request("POST", "/webhooks/github", body, headers)
            answer = self._connection.getresponse()
            answer.read()
        except (OSError, http.client.HTTPException):
            self._connection.close()
            return 0
        return answer.status


def together(work: Callable[[int], None]) -> None:
    threads = [threading.Thread(target=work, args=(index,)) for index in range(SENDERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def at_a_rate(server: Server, rate: float, seconds: float) -> dict[str, float]:
    requests = [comment(number) for number in range(int(rate * seconds))]
    took_ms: list[float] = []
    statuses: Counter[int] = Counter()
    begin = time.perf_counter() + 0.5

    def work(index: int) -> None:
        sender = Sender(server.port)
        for number in range(index, len(requests), SENDERS):
            due = begin + number / rate
            time.sleep(max(0.0, due - time.perf_counter()))
            statuses[sender.send(requests[number])] += 1
            took_ms.append((time.perf_counter() - due) * 1000)

    together(work)
    took_ms.sort()
    return {
        "deliveries": len(requests),
        "accepted": statuses[202],
        "p50_ms": round(took_ms[len(took_ms) // 2], 1),
        "p99_ms": round(took_ms[int(len(took_ms) * 0.99)], 1),
        "worst_ms": round(took_ms[-1], 1),
    }


def disk_alone(root: Path, syncs: int = 500) -> dict[str, float]:
    """What a sync takes here that keeps as much as a delivery does."""
    took_ms = []
    with (root / "sync").open("wb") as file:
        for _ in range(syncs):
            begin = time.perf_counter()
            file.write(b"x" * SYNCED_BYTES)
            file.flush()
            os.fdatasync(file.fileno())
            took_ms.append((time.perf_counter() - begin) * 1000)
    took_ms.sort()
    return {"disk_p50_ms": round(took_ms[syncs // 2], 1), "disk_p99_ms": round(took_ms[int(syncs * 0.99)], 1)}


def through_kills(root: Path, kills: int, dice: random.Random) -> dict[str, int]:
    accepted: set[int] = set()
    begun = 1_000_000
    waiting: list[int] = []
    cut_off = 0
    for _ in range(kills):
        server = Server(root)
        new = list(range(begun, begun + 150))
        begun += 150
        numbers, later = (waiting + new)[:300], (waiting + new)[300:]

        def work(index: int, numbers: list[int] = numbers, port: int = server.port) -> None:
            sender = Sender(port)
            for number in numbers[index::SENDERS]:
                if sender.send(comment(number)) in (202, 409):
                    accepted.add(number)

        killer = threading.Timer(dice.uniform(0.0, 0.5), server.kill)
        killer.start()
        together(work)
        killer.join()
        unanswered = [number for number in numbers if number not in accepted]
        cut_off += len(unanswered)
        waiting = unanswered + later
    answered = set(accepted)
    server = Server(root)
    sender = Sender(server.port)
    again = Counter(sender.send(comment(number)) for number in waiting)
    server.kill()
    kept = Counter(order.text for order in Workspace(root).github.list(10**6))
    sent = {f"/bench status {number}" for number in range(1_000_000, begun)}
    lost = [number for number in answered if f"/bench status {number}" not in kept]
    return {
        "kills": kills,
        "sent": len(sent),
        "unanswered_at_a_kill": cut_off,
        "taken_at_the_last_try": again[202] + again[409],
        "lost": len(lost) + len(sent - set(kept)),
        "doubled": sum(count - 1 for text, count in kept.items() if text in sent),
    }


def forge(server: Server, count: int, dice: random.Random) -> dict[str, int]:
    good = comment(5_000_000)
    assert Sender(server.port).send(good) == 202
    statuses: Counter[int] = Counter()

    def forged(number: int) -> Request:
        headers, body = comment(6_000_000 + number)
        kind = number % 5
        if kind == 0:
            return signed(body, f"forged-{number}", b"guessed"), body
        if kind == 1:
            return headers, body.replace(b"/bench status", b"/bench stop  ")
        if kind == 2:  # signed once, sent again as something new
            return good[0] | {"X-GitHub-Delivery": f"forged-{number}"}, good[1]
        if kind == 3:
            return good
        signature = "".join(dice.choices("0123456789abcdef", k=64))
        return headers | {"X-Hub-Signature-256": dice.choice(["", "sha256=", "sha1=", f"sha256={signature}"])}, body

    def work(index: int) -> None:
        sender = Sender(server.port)
        for number in range(index, count, SENDERS):
            statuses[sender.send(forged(number))] += 1

    together(work)
    return {"forged": count, "taken": statuses[202], "refused": statuses[401] + statuses[409]}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", type=float, default=200.0)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--forged", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    dice = random.Random(options.seed)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        (root / "workspace.yaml").write_text(SETTINGS)
        server = Server(root)
        figures: dict[str, float] = dict(disk_alone(root))
        figures |= at_a_rate(server, options.rate, options.seconds)
        figures |= forge(server, options.forged, dice)
        server.kill()
        figures |= through_kills(root, options.kills, dice)
    print(json.dumps(figures) if options.json else "\n".join(f"{name:24} {value}" for name, value in figures.items()))
    good = figures["p99_ms"] < BAR_MS and figures["accepted"] == figures["deliveries"]
    return 0 if good and not (figures["lost"] or figures["doubled"] or figures["taken"]) else 1


if __name__ == "__main__":
    sys.exit(main())
