"""Kill -9 `bench serve` at random moments while writes are under way, start it again, and ask again with the same keys.

Each write (an alarm is muted; every tenth: a run is started) has a key of its own and is asked until it is answered.
At the end every key must have been written once:

- lost: answered, and not there,
- doubled: there more than once, or two answers of one key differ in what was written,
- unaudited: no line in the audit log.

    python benchmarks/serve_kills.py [--kills 200] [--seed 7] [--json]

Exits 1 unless all three are 0. `--kills 10` is for trying.
"""

import argparse
import http.client
import json
import random
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

from benchhouse.api.workspace import Workspace

BENCH = [sys.executable, "-m", "benchhouse"]
ALARMS = "alarms: [{name: slow, case: once, metric: x, above: 1, tell: [me]}]\nchannels: {me: {command: [cat]}}\n"
SCENARIO = "scenario: once\nexperiment: command\nworkload: {argv: ['true']}\n"


class Storm:
    def __init__(self, root: Path, dice: random.Random) -> None:
        self.root, self.dice, self.port = root, dice, 0
        self.workspace = Workspace(root)
        self.process: subprocess.Popen[str] | None = None
        self.answers: dict[str, dict[str, Any]] = {}
        self.differing = 0

    def start(self) -> None:
        command = [*BENCH, "-C", str(self.root), "serve", "--port", "0", "--allow", "approve"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        assert self.process.stdout
        found = re.search(r":(\d+)/", self.process.stdout.readline())
        assert found
        self.port = int(found[1])

    def kill(self) -> None:
        assert self.process and self.process.stdout
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()

    def ask(self, key: str) -> bool:
        """One try; whether it was answered."""
        run = key.endswith("0")
        path, body = ("/api/runs", {"scenario": SCENARIO}) if run else ("/api/alarms/slow/mute", {"why": key})
        headers = {"Content-Type": "application/json", "Idempotency-Key": key}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request("POST", path, json.dumps(body), headers)
            response = connection.getresponse()
            answer = json.loads(response.read())
        except (OSError, http.client.HTTPException, ValueError):
            return False
        finally:
            connection.close()
        if response.status != 200:
            return False
        names = {name: answer[name] for name in ("run_id", "time", "request") if answer.get(name)}
        self.differing += self.answers.setdefault(key, names) != names
        return True

    def strike(self, keys: list[str]) -> None:
        """Ask for all of these at once, and kill the server somewhere in between."""
        callers = [threading.Thread(target=self.ask, args=(key,)) for key in keys]
        for caller in callers:
            caller.start()
        time.sleep(self.dice.uniform(0.0, 1.5))
        self.kill()
        for caller in callers:
            caller.join()

    def judge(self, keys: list[str]) -> dict[str, int]:
        notices = Counter(line.request for line in self.workspace.alarms.log() if line.action == "muted")
        whys = Counter(line.why for line in self.workspace.alarms.log() if line.action == "muted")
        runs = {run.id for run in self.workspace.runs(made_here=True)}
        started = [self.answers[key]["run_id"] for key in keys if key.endswith("0")]
        audited = {line.key for line in self.workspace.audit.list() if line.state == "done"}
        muted = [key for key in keys if not key.endswith("0")]
        return {
            "lost": sum(notices[self.answers[key]["request"]] == 0 for key in muted) + len({*started} - runs),
            "doubled": sum(count - 1 for count in whys.values()) + len(runs - {*started}) + self.differing,
            "unaudited": len({*keys} - audited),
        }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "alarms.yaml").write_text(ALARMS)
        storm = Storm(Path(folder), random.Random(options.seed))
        keys: list[str] = []
        for kill in range(options.kills):
            new = [f"key-{kill}-{at}" for at in ("1", "2", "3", *(["0"] if kill % 10 == 0 else []))]
            keys += new
            storm.start()
            left = [key for key in keys if key not in storm.answers]
            storm.strike(left[-12:])
        answered_at_once = len(storm.answers)
        storm.start()
        deadline = time.monotonic() + 600
        while left := [key for key in keys if key not in storm.answers]:
            assert time.monotonic() < deadline, f"never answered: {left}"
            for key in left:
                storm.ask(key)
        for key in keys:  # once more, when all are done
            storm.ask(key)
        storm.kill()
        told = {"kills": options.kills, "writes": len(keys), "answered_before_the_end": answered_at_once}
        told |= storm.judge(keys)
        for run in storm.workspace.runs(made_here=True):
            run.stop()
    print(json.dumps(told) if options.json else "  ".join(f"{name} {value}" for name, value in told.items()))
    return 1 if told["lost"] or told["doubled"] or told["unaudited"] else 0


if __name__ == "__main__":
    sys.exit(main())
