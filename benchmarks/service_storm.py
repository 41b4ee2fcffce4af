"""Kill -9 at random moments while a run has a server of its own: its orchestrator, a worker, an experiment, the server,
the server's keeper. As kill_storm.py, with a service attached to the run, which every trial asks.

After each killed orchestrator, and each end of the run for want of its server, the sweep is resumed at once. At the end
everything is verified as in kill_storm.py: nothing corrupt, no finished trial lost or missing, no process, cgroup,
temporary folder or unfinished trial left, and no port of a server still taken (left_ports).

    python benchmarks/service_storm.py --kills 100 --seed 7 [--json]

Exits 1 unless all of these are 0.
"""

import contextlib
import json
import socket
import sys
from pathlib import Path
from typing import Any

import kill_storm
from kill_storm import Storm, children

from benchhouse.worker.service_supervisor import NAME

SERVER = Path(__file__).parent.parent / "tests" / "services" / "small_server.py"
CODE = """
import time, urllib.request

def nap(target: dict, n: int):
    urllib.request.urlopen(target["url"], timeout=5).read()
    time.sleep(0.05)
    urllib.request.urlopen(target["url"], timeout=5).read()
    return {"n_seen": n}
"""
RECIPE = {
    "name": "small",
    "program": [sys.executable],
    "command": ["{program}", str(SERVER), "{port}", "{secret}", "answer", "family"],
    "endpoint": "http://127.0.0.1:{port}",
    "ready": {"kind": "http"},
}


class ServiceStorm(Storm):
    """Half of the kills hit what serves the run."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.hits |= {"keeper": 0, "server": 0}
        self.ports: set[int] = set()
        (self.root / "site" / "nap.py").write_text(CODE)
        (self.root / "ws" / "recipes").mkdir()
        (self.root / "ws" / "recipes" / "small.yaml").write_text(json.dumps(RECIPE))
        served = {"services": {"web": {"recipe": "small", "mode": "attached"}}, "target": {"url": "service:web"}}
        (self.root / "ws" / "storm.yaml").write_text(json.dumps(kill_storm.SCENARIO | served))

    @property
    def arguments(self) -> list[str]:
        return ["run", "storm.yaml", "--rerun-failed"]

    def strike_below(self) -> bool:
        kind = self.dice.choice(["below", "keeper", "server"])
        return super().strike_below() if kind == "below" else self.strike_service(kind)

    def strike_service(self, kind: str) -> bool:
        process = self.ensure_running()
        self.pause(0.5)
        keepers = [pid for pid in children(process.pid) if is_keeper(pid)]
        for state in self.workspace.runs.glob("*/services/web/state.json"):
            for replica in json.loads(state.read_text())["replicas"]:
                self.ports.add(int(replica["endpoint"].rpartition(":")[2]))
        victims = keepers if kind == "keeper" else [pid for keeper in keepers for pid in children(keeper)]
        return self.hit(kind, victims)

    def judge(self) -> dict[str, Any]:
        taken = 0
        for port in self.ports:
            with socket.socket() as probe:
                probe.settimeout(0.2)
                taken += probe.connect_ex(("127.0.0.1", port)) == 0
        return super().judge() | {"left_ports": taken}


def is_keeper(pid: int) -> bool:
    with contextlib.suppress(OSError):  # it has ended meanwhile
        return Path(f"/proc/{pid}/comm").read_text().strip() == NAME
    return False


if __name__ == "__main__":
    sys.exit(kill_storm.main(ServiceStorm, 100, __doc__ or ""))
