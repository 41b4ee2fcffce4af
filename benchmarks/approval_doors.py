"""Try to start runs that nobody approved: every kind of forged approval, at every door, in turn.

bob may start 3 trials, and asks for more; that he is an admin, who may evaluate, lets him approve nothing of his own.
The doors: `bench run` and `submit`, the Python API, HTTP, a form of a page, a tool of an agent (MCP), a schedule, an
evaluation of a nexus, a command in a comment, and those that carry on a run. First each door starts one run by a good
approval, so that a door which is merely broken shows; then none of the forged ones may. A trial leaves a line in a
file: that counts too.

    python benchmarks/approval_doors.py [--attempts 1000] [--seed 7] [--json]

Exits 1 where anything started, or where a door did not open to the good approval. `--attempts 200` is for trying.
"""

import argparse
import contextlib
import http.client
import io
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from benchhouse.api.chat import ChatActions
from benchhouse.api.workspace import Workspace
from benchhouse.automation.github.commands import CommentCommand
from benchhouse.cli import bench
from benchhouse.evidence.writing import after, now
from benchhouse.runs.approval_files import ApprovalFiles, copy_text
from benchhouse.runs.ledger import Ledger, new_run_id
from benchhouse.runs.preparation import prepare
from benchhouse.runs.records import create_run
from benchhouse.runs.ssh_signatures import sign
from benchhouse.schema.approval import NAMESPACE, Approval, ApprovalRequest, SignedApproval
from benchhouse.schema.errors import BenchError
from benchhouse.schema.resources import Budget
from benchhouse.serve.access import Caller
from benchhouse.serve.idempotent_writes import ServerWrites
from benchhouse.serve.state import ServerDatabase
from benchhouse.serve.tools import TOOLS

BENCH = [sys.executable, "-m", "benchhouse"]
Door = Callable[[], object]


class Team:
    """A workspace with its people and their keys, a server, and a scenario that is beyond bob's budget."""

    def __init__(self, root: Path, dice: random.Random) -> None:
        self.dice, self.root, self.keys = dice, root / "ws", root / "keys"
        self.root.mkdir()
        self.keys.mkdir()
        self.started = root / "started"
        self.scenario = self.root / "big.yaml"
        argv = ["sh", "-c", f"echo x >> {self.started}"]
        self.text = f"scenario: big\nexperiment: command\nworkload: {{argv: {json.dumps(argv)}}}\nrepetitions: 4\n"
        self.scenario.write_text(self.text)
        for name in ("ada", "bob", "cy", "eve"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.keys / name], check=True)
        public = {name: (self.keys / f"{name}.pub").read_text().strip() for name in ("ada", "bob", "cy")}
        people = [
            f'ada: {{role: approve, keys: ["{public["ada"]}"]}}',
            f'bob: {{role: admin, keys: ["{public["bob"]}"]}}',
            f'cy: {{role: run, keys: ["{public["cy"]}"]}}',
        ]
        (self.root / "trusted.yaml").write_text("people: {" + ", ".join(people) + "}\nbudget: {trials: 3}\n")
        home = self.root / "packages" / "team"
        (home / "benchmark_instances" / "big").mkdir(parents=True)
        (home / "nexus.yaml").write_text("package: {name: team}\n")
        (home / "benchmark_instances" / "big" / "scenario.yaml").write_text(self.text)
        self.ws = Workspace(self.root)
        self.files = ApprovalFiles(self.ws.folder)
        self.token = self.ws.tokens.make("bob", "run").secret
        self.chat = ChatActions(self.ws, lambda text: None)
        self.writes = ServerWrites(self.ws, ServerDatabase(self.ws.folder.server_state))
        os.environ["BENCH_AS"] = "bob"
        self.process = subprocess.Popen(
            [*BENCH, "-C", str(self.root), "serve", "--port", "0", "--login", "--rate", "10000"],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip
        assert self.process.stdout
        found = re.search(r":(\d+)/", self.process.stdout.readline())
        assert found
        self.port = int(found[1])
        self.ws.schedules.add(self.scenario, "0 0 1 1 *")

    def close(self) -> None:
        self.process.terminate()
        self.process.wait()

    # -- doors

    def doors(self) -> dict[str, Door]:
        return {
            "bench run": lambda: self.command("run", str(self.scenario), "--new"),
            "bench submit": lambda: self.command("submit", str(self.scenario), "--new"),
            "ws.run": lambda: self.ws.run(self.scenario, new=True),
            "ws.submit": lambda: self.ws.submit(self.scenario, new=True),
            "POST /api/runs": lambda: self.post("/api/runs", {"file": "big.yaml"}),
            "form": lambda: self.form({"file": "big.yaml"}),
            "MCP run": lambda: self.tool("run", file="big.yaml"),
            "schedule": lambda: self.ws.schedules.run_now("big"),
            "bench evaluate": lambda: self.command("evaluate", "--all", "--again"),
            "ws.evaluate": self.evaluate,
            "comment": lambda: self.chat.start(CommentCommand("run", "big"), new_run_id(), "bob"),
        }

    def ways_on(self, run: str) -> dict[str, Door]:
        return {
            "bench run --resume": lambda: self.command("run", "--resume", run),
            "bench run again": lambda: self.command("run", str(self.scenario)),
            "ws.resume": lambda: self.ws.resume(run),
            "run.resume": lambda: self.ws[run].resume(),
            "POST /api/runs/RUN/resume": lambda: self.post(f"/api/runs/{run}/resume", {}),
            "MCP resume": lambda: self.tool("resume", run=run),
        }

    def command(self, *arguments: str) -> None:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            code = bench.main(["-C", str(self.root), *arguments], prog_name="bench", standalone_mode=False)
        if code:
            raise BenchError(f"exit code {code}")

    def evaluate(self) -> None:
        for run in self.ws.evaluate(package="team", again=True).runs:
            if run.state != "complete":
                raise BenchError(run.why)

    def ask(self, path: str, body: str, kind: str) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        connection.request("POST", path, body, {"Authorization": f"Bearer {self.token}", "Content-Type": kind})
        answer = connection.getresponse()
        text = answer.read().decode()
        connection.close()
        if answer.status not in (200, 303):
            raise BenchError(f"status {answer.status}: {text[:200]}")

    def post(self, path: str, given: dict[str, Any]) -> None:
        self.ask(path, json.dumps(given), "application/json")

    def form(self, given: dict[str, Any]) -> None:
        self.ask("/do/submit", urlencode(given | {"then": "/"}), "application/x-www-form-urlencoded")

    def tool(self, name: str, **given: Any) -> None:
        TOOLS[name].call(self.ws, self.writes, Caller("bob", "run", "token"), given)

    # -- approvals

    def request(self) -> ApprovalRequest:
        """bob's request for the scenario as it is now."""
        with contextlib.suppress(BenchError):
            self.ws.submit(self.scenario, new=True)
        return self.files.request(self.ws.approvals.waiting()[0].name)

    def signed(
        self, request: ApprovalRequest, key: str = "ada", *, space: str = NAMESPACE, **more: Any
    ) -> SignedApproval:
        made = now()
        fields = {"approved_by": "ada", "signed_by": "ada", "time": made, "expires": after(made, 3600.0)}
        approval = Approval.model_validate({"request": request} | fields | more)
        return SignedApproval(approval=approval, signature=sign(approval.signed_bytes(), self.keys / key, space))

    def forgeries(self, request: ApprovalRequest, used: bytes, revoked: bytes) -> dict[str, Callable[[], bytes]]:
        """Each kind, as the bytes of a file."""

        def changed(**fields: Any) -> bytes:
            """Signed by ada, and about something else."""
            return copy_text(self.signed(request.model_copy(update=fields))).encode()

        def by(key: str, **more: Any) -> bytes:
            return copy_text(self.signed(request, key, **more)).encode()

        def altered() -> bytes:
            good = bytearray(by("ada"))
            good[self.dice.randrange(len(good))] ^= 1 << self.dice.randrange(7)
            return bytes(good)

        def grown() -> bytes:
            """Says more than was signed."""
            return by("ada").replace(b'"trials":4', b'"trials":%d' % self.dice.randrange(5, 10**6))

        return {
            "altered: one bit": altered,
            "altered: the budget": grown,
            "altered: respelled": lambda: by("ada").replace(b",", b", ", self.dice.randrange(1, 9)),
            "altered: cut": lambda: (good := by("ada"))[: self.dice.randrange(len(good))],
            "expired": lambda: by("ada", expires=after(now(), -self.dice.random() * 1e6)),
            "revoked": lambda: revoked,
            "foreign: a stranger's key": lambda: by("eve"),
            "foreign: a stranger": lambda: by("eve", approved_by="eve", signed_by="eve"),
            "foreign: for another person": lambda: changed(asked_by="cy"),
            "foreign: for another plan": lambda: changed(plan_digest=f"{self.dice.getrandbits(256):064x}"),
            "foreign: for another executor": lambda: changed(executor="slurm"),
            "foreign: for another site": lambda: changed(site="elsewhere"),
            "foreign: for other code": lambda: changed(conditions=request.conditions | {"experiment code": "0" * 64}),
            "foreign: for less": lambda: changed(budget=Budget(trials=3)),
            "foreign: of a commit": lambda: by("ada", space="git"),
            "self-made: by bob": lambda: by("bob", approved_by="bob", signed_by="bob"),
            "self-made: as ada": lambda: by("bob"),
            "self-made: bob vouches": lambda: by("bob", signed_by="bob"),
            "self-made: no signature": lambda: _unsigned(self.signed(request)),
            "self-made: by the role run": lambda: by("cy", approved_by="cy", signed_by="cy"),
            "reused": lambda: used,
        }

    def place(self, name: str, content: bytes) -> None:
        """The one approval of the workspace, under the name that it says, else under this one."""
        for path in self.ws.folder.approvals.glob("*.json"):
            if not path.name.endswith((".request.json", ".revoked.json")):
                path.unlink()
        with contextlib.suppress(ValueError):
            name = SignedApproval.model_validate_json(content).approval.request.name
        (self.ws.folder.approvals / f"{name}.json").write_bytes(content)

    def begun(self) -> int:
        """Runs in which anything began."""
        return sum(any(True for _ in Ledger(self.ws.folder.run(run.id)).events()) for run in self.ws.runs())

    def settle(self) -> None:
        """Until what goes on in the background has ended."""
        for run in self.ws.runs():
            while Ledger(self.ws.folder.run(run.id)).owner() is not None:
                time.sleep(0.05)


def _unsigned(signed: SignedApproval) -> bytes:
    return copy_text(signed.model_copy(update={"signature": ""})).encode()


def controls(team: Team) -> list[str]:
    """Doors that did not open to a good approval."""
    closed = []
    ways = {name: lambda name=name: team.ways_on(_made(team, team.request()))[name]() for name in team.ways_on("RUN")}
    for name, door in (team.doors() | ways).items():
        if name in team.doors():
            team.files.keep(team.signed(team.request()))
        before = team.begun()
        try:
            door()
        except BenchError as error:
            print(f"{name}: {error}", file=sys.stderr)
        team.settle()
        if team.begun() != before + 1:
            closed.append(name)
    return closed


def opens(door: Door) -> bool:
    try:
        door()
    except BenchError:
        return False
    return True


def measure(attempts: int, seed: int) -> dict[str, Any]:
    dice = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        team = Team(Path(folder), dice)
        try:
            closed = controls(team)
            used = next((team.ws.folder.approvals / f"{item.name}.json").read_bytes()
                        for item in team.ws.approvals.list() if item.state == "used")  # fmt: skip
            request = team.request()
            withdrawn = team.signed(request)
            team.files.keep(withdrawn)
            team.ws.approvals.revoke(request.name, by="ada")
            unbegun = _made(team, request)
            before, lines = team.begun(), len(team.started.read_text())
            kinds = team.forgeries(request, used, copy_text(withdrawn).encode())
            doors = team.doors() | team.ways_on(unbegun)
            cases = [(kind, door) for kind in kinds for door in doors]
            tried: Counter[str] = Counter()
            opened = []
            while sum(tried.values()) < attempts:
                dice.shuffle(cases)
                for kind, door in cases[: attempts - sum(tried.values())]:
                    content = kinds[kind]()
                    team.place(request.name, content)
                    team.ws.folder.run(unbegun).approval.write_bytes(content)
                    tried[door] += 1
                    if opens(doors[door]):
                        opened.append(f"{door}: {kind}")
            team.settle()
            return {
                "attempts": sum(tried.values()),
                "kinds": len(kinds),
                "doors": dict(sorted(tried.items())),
                "opened": opened,
                "closed to a good approval": closed,
                "started": team.begun() - before,
                "trials started": (len(team.started.read_text()) - lines) // 2,
                "refusals on record": sum(line.action == "refused" for line in team.ws.approvals.log()),
            }
        finally:
            team.close()


def _made(team: Team, request: ApprovalRequest) -> str:
    """A run that was made by a good approval, and whose trials nobody has begun."""
    team.files.keep(team.signed(request))
    return create_run(team.ws.folder, prepare(team.ws.folder, team.scenario), team.scenario).folder.run_id


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--attempts", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    began = time.monotonic()
    found = measure(options.attempts, options.seed) | {"seconds": round(time.monotonic() - began, 1)}
    if options.json:
        print(json.dumps(found))
    else:
        for name, value in found.items():
            print(f"{name}: {value}")
    wrong = ("opened", "started", "trials started", "closed to a good approval")
    return 1 if any(found[name] for name in wrong) else 0


if __name__ == "__main__":
    sys.exit(main())
