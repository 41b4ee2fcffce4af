"""Sealed trials shared to PostgreSQL and S3 while either of them is killed: nothing lost, nothing sent twice.

A workspace with `--trials` sealed trials in runs of 100 is shared (`bench warehouse share`) to a real PostgreSQL and a
real SeaweedFS. They are killed by SIGKILL, `--kills` times in all, spread over the way: the backend of PostgreSQL that
writes for us, which takes the whole server down into recovery, and the process of SeaweedFS, which is started again on
its data. The command is given again until it says that all is there; where that is before the last kill, what it
remembers is removed, so that it goes through everything again. Then every trial must be in the tables, every object of
the store must have its digest, and a further call must move nothing.

    python benchmarks/shared_push.py [--trials 10000] [--kills 20] [--json]     exit code 1 when missed
"""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any
from urllib.request import urlopen

sys.path[:0] = [str(Path(__file__).parents[1] / "tests"), str(Path(__file__).parents[1] / "tests" / "warehouse")]

PER_RUN = 100
GIVE_UP_S, STORE_STARTS_S = 3600.0, 60.0


def fill(root: Path, trials: int) -> None:
    from trial_maker import make_trial  # type: ignore[import-not-found]

    from benchhouse.schema.layout import WorkspaceFolder
    from benchhouse.warehouse.ingest import collect

    workspace = WorkspaceFolder(root)
    for first in range(0, trials, PER_RUN):
        run_id = f"20260301-120000-{first // PER_RUN:07x}"
        names = range(first, min(first + PER_RUN, trials))
        collect(workspace, run_id, [make_trial(workspace, run_id, name, value=100.0 + name) for name in names])


class Killer:
    """Kills both servers while shares go on, each as often as the other, and starts SeaweedFS again.

    A server's next kill is due when a further part of what it is to get has arrived.
    """

    def __init__(self, root: Path, trials: int, kills: int, database: str, store: Any) -> None:
        self._journal, self._trials, self._runs = root / ".bench" / "shared.jsonl", trials, -(-trials // PER_RUN)
        self._database, self._store_url, self._server = database, store.url, _only_child(store.pid)
        self._of = {"store": kills - kills // 2, "database": kills // 2}
        self.done = dict.fromkeys(self._of, 0)
        self._random, self._over = random.Random(7), threading.Event()
        self._started: subprocess.Popen[bytes] | None = None
        self._thread = threading.Thread(target=self._go, daemon=True)

    def begin(self) -> None:
        self._thread.start()

    @property
    def busy(self) -> bool:
        return self._thread.is_alive()

    def end(self) -> None:
        self._over.set()
        self._thread.join()
        if self._started:
            self._started.kill()
            self._started.wait()

    def _go(self) -> None:
        servers = (("store", self._in_store, self._kill_store), ("database", self._in_database, self._kill_database))
        while self.done != self._of and not self._over.wait(self._random.uniform(0.1, 0.6)):
            for name, arrived, kill in servers:
                done, all_of_them = self.done[name], self._of[name]
                if done < all_of_them and (part := arrived()) > done / all_of_them and kill():
                    self.done[name] += 1
                    print(f"killed the {name}, which had {part:.0%}", file=sys.stderr)

    def _in_store(self) -> float:
        """The share of the trials that is known to have arrived; none while the server is not up."""
        try:
            urlopen(f"{self._store_url}/healthz", timeout=5).close()
            return self._journal.read_text().count('"s3://') / self._trials
        except OSError:
            return 0.0

    def _in_database(self) -> float:
        import psycopg

        try:
            with psycopg.connect(self._database, autocommit=True, connect_timeout=5) as connection:
                ((runs,),) = connection.execute("SELECT count(*) FROM benchhouse_store.runs").fetchall()
        except psycopg.Error:
            return 0.0
        return float(runs) / self._runs

    def _kill_database(self) -> bool:
        """One of its backends that writes for us: the server ends all others and recovers from its log."""
        import psycopg

        asked = "SELECT pid FROM pg_stat_activity WHERE application_name = 'benchhouse' AND pid <> pg_backend_pid()"
        try:
            with psycopg.connect(self._database, autocommit=True, connect_timeout=5) as connection:
                pids = [pid for (pid,) in connection.execute(asked).fetchall()]
            for pid in pids[:1]:
                os.kill(pid, signal.SIGKILL)
        except (psycopg.Error, ProcessLookupError):
            return False
        return bool(pids)

    def _kill_store(self) -> bool:
        about = Path(f"/proc/{self._server}")
        command = about.joinpath("cmdline").read_bytes().decode().split("\0")[:-1]
        variables = dict(
            item.split("=", 1) for item in about.joinpath("environ").read_bytes().decode().split("\0") if item
        )
        folder = about.joinpath("cwd").resolve()
        os.kill(self._server, signal.SIGKILL)
        if self._started:
            self._started.wait()
        time.sleep(0.2)
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self._started = subprocess.Popen(command, env=variables, cwd=folder, **quiet)  # type: ignore[call-overload]
        self._server = self._started.pid
        return True


def _only_child(pid: int) -> int:
    (child,) = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return int(child)


def share(root: Path, environ: dict[str, str]) -> tuple[int, list[dict[str, Any]]]:
    command = [sys.executable, "-m", "benchhouse", "-C", str(root), "warehouse", "share", "--json"]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    return done.returncode, json.loads(done.stdout)["destinations"] if done.stdout.startswith("{") else []


def verified(root: Path, endpoint: str, environ: dict[str, str]) -> dict[str, Any]:
    """What the store holds, read again to the last byte, once it is up after the last kill."""
    verify = [sys.executable, "-m", "benchhouse", "-C", str(root), "evidence", "verify", "s3://shared/team"]
    answer: dict[str, Any] = {}
    give_up = time.monotonic() + STORE_STARTS_S
    while "checked" not in answer and time.monotonic() < give_up:
        done = subprocess.run([*verify, "--endpoint", endpoint, "--json"], env=environ, capture_output=True, text=True)
        answer = json.loads(done.stdout or "{}")
    return {"checked": 0, "damage": [answer.get("error", "no answer")]} | answer


def measure(trials: int, kills: int) -> dict[str, Any]:
    from engines_at_hand import new_database  # type: ignore[import-not-found]
    from services import postgres, seaweedfs  # type: ignore[import-not-found]
    from services.started import running  # type: ignore[import-not-found]

    from benchhouse.recipes.postgres import RECIPE

    with tempfile.TemporaryDirectory() as name, running(RECIPE) as database, seaweedfs.running() as store:
        root, address = Path(name, "ws"), new_database(database.endpoint)
        begun = time.monotonic()
        fill(root, trials)
        print(f"{trials} sealed trials made in {time.monotonic() - begun:.0f} s", file=sys.stderr)
        store.bucket("shared")
        where = {"share": address, "evidence": "s3://shared/team", "endpoint": store.url}
        (root / "workspace.yaml").write_text(json.dumps({"warehouse": where}))
        environ = {**os.environ, **store.environment, "BENCH_CACHE_DIR": str(Path(name, "cache"))}
        killer, calls, begun = Killer(root, trials, kills, address, store), 0, time.monotonic()
        killer.begin()
        code = 1
        while (code or killer.busy) and time.monotonic() - begun < GIVE_UP_S:
            code, _ = share(root, environ)
            calls += 1
            if not code and killer.busy:
                (root / ".bench" / "shared.jsonl").unlink()
        taken = time.monotonic() - begun
        again_code, again = share(root, environ)
        stored = verified(root, store.url, environ)
        ((rows, distinct),) = postgres.ask(
            address, "SELECT count(*), count(DISTINCT trial_id) FROM benchhouse.trial_fact"
        )
        killed = sum(killer.done.values())
        killer.end()
    whole = rows == distinct == trials == stored["checked"] and not stored["damage"]
    moved = sum(item["moved"] for item in again)
    return {
        "trials": trials, "kills": killed, "calls": calls, "seconds": taken, "rows": rows,
        "in_store": stored["checked"], "damage": stored["damage"][:3], "moved_again": moved,
        "passed": whole and killed >= kills and again_code == 0 and moved == 0,
    }  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=10_000, help="Sealed trials; 300 take about a minute.")
    parser.add_argument("--kills", type=int, default=20, help="Kills of either server, in turn.")
    parser.add_argument("--json", action="store_true", help="Print JSON.")
    options = parser.parse_args()
    figures = measure(options.trials, options.kills)
    if options.json:
        print(json.dumps(figures, indent=2))
    else:
        calls, seconds = figures["calls"], figures["seconds"]
        print(f"{figures['trials']} trials, {figures['kills']} kills, {calls} calls, {seconds:.0f} s")
        print(f"in PostgreSQL {figures['rows']}, in S3 {figures['in_store']} ({len(figures['damage'])} damaged)")
        print(f"moved by a further call: {figures['moved_again']}")
        print(f"nothing lost, nothing sent twice: {'passed' if figures['passed'] else 'MISSED'}")
    return 0 if figures["passed"] else 1


if __name__ == "__main__":
    sys.exit(main())
