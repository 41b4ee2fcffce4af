"""What the agent of schedules costs when nothing is due, how late a slot begins, and days of killed agents.

python benchmarks/schedule_agent.py [--idle-s 60] [--days 30] [--only idle|late|days] [--json]

Exits 1 when the idle agent of 1,000 schedules takes more than 0.1% of a core, a slot begins more than a second late, or
an hour or a night is missing, begun twice or begun at another time.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from services.simulated_schedules import FakeRuns, agent_of, simulate  # type: ignore[import-not-found]

from benchhouse.automation.schedules.store import opened
from benchhouse.schema.layout import WorkspaceFolder
from benchhouse.schema.schedules import Schedule

MOST_CORES, MOST_LATE_S = 0.001, 1.0


def idle(seconds: float, count: int = 1000) -> dict[str, Any]:
    """CPU time of this process, which is an agent; the due times are all months away."""
    with tempfile.TemporaryDirectory() as folder, opened(WorkspaceFolder(Path(folder))) as store:
        now = time.time()
        for number in range(count):
            store.add(Schedule(name=f"s{number}", scenario="n.yaml", cron="0 0 1 1 *"), now)
        agent = agent_of(store, FakeRuns(Path(folder), time.time))
        agent.step()
        began, cpu = time.monotonic(), time.process_time()
        while time.monotonic() - began < seconds:
            time.sleep(agent.step())
        share = (time.process_time() - cpu) / (time.monotonic() - began)
        return {"schedules": count, "idle_cores": share, "idle_met": share <= MOST_CORES}


def late() -> dict[str, Any]:
    """From the due time of a slot to the call that submits its run, by the wall clock."""
    with tempfile.TemporaryDirectory() as folder, opened(WorkspaceFolder(Path(folder))) as store:
        (Path(folder) / "runs").mkdir()
        runs = FakeRuns(Path(folder) / "runs", time.time)
        agent = agent_of(store, runs)
        store.add(Schedule(name="minutely", scenario="n.yaml", cron="* * * * *"), time.time())
        while not (began := list(runs.folder.iterdir())):
            time.sleep(agent.step())
        _, due, begun = began[0].read_text().split()
        late_s = float(begun) - float(due)
        return {"late_s": late_s, "late_met": 0 <= late_s <= MOST_LATE_S}


def days(count: float) -> dict[str, Any]:
    """Two agents, one of them killed with SIGKILL each simulated hour, over the end of March in Berlin."""
    begin = datetime(2026, 3, 10, tzinfo=UTC).timestamp()
    schedules = [
        Schedule(name="hourly", scenario="a", cron="0 * * * *", missed="all"),
        Schedule(name="nightly", scenario="a", cron="30 2 * * *", timezone="Europe/Berlin", missed="all"),
    ]
    with tempfile.TemporaryDirectory() as folder:
        result = simulate(Path(folder), schedules, begin, count, kill_each_s=3600.0)
    hours = [begin + hour * 3600.0 for hour in range(1, int(count * 24) + 1)]
    hourly, nightly = sorted(result.began["hourly"]), result.began["nightly"]
    once = hourly == hours and len(nightly) == len(set(nightly)) == int(count)
    return {"days": count, "kills": result.kills, "hours": len(hourly), "nights": len(nightly), "days_met": once}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--idle-s", type=float, default=60.0)
    parser.add_argument("--days", type=float, default=30.0)
    parser.add_argument("--only", choices=["idle", "late", "days"])
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    parts: dict[str, Callable[[], dict[str, Any]]] = {
        "idle": lambda: idle(given.idle_s),
        "late": late,
        "days": lambda: days(given.days),
    }
    found: dict[str, Any] = {}
    for name, measure in parts.items():
        if given.only in (None, name):
            found |= measure()
    missed = [name for name, value in found.items() if name.endswith("_met") and not value]
    if given.json:
        print(json.dumps(found))
    else:
        for name, value in found.items():
            print(f"{name:12} {value}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
