"""What the agent of schedules costs when nothing is due, how late a slot begins, and days of killed agents.

python benchmarks/schedule_agent.py [--idle-s 60] [--days 30] [--only idle|late|days]
"""

import argparse
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from services.simulated_schedules import FakeRuns, agent_of, simulate  # type: ignore[import-not-found]

from benchhouse.automation.schedules.store import opened
from benchhouse.schema.layout import WorkspaceFolder
from benchhouse.schema.schedules import Schedule


def idle(seconds: float, count: int = 1000) -> None:
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
        print(f"idle with {count} schedules: {share:.3%} of a core over {seconds:.0f} s")


def late() -> None:
    """From the due time of a slot to the call that submits its run, by the wall clock."""
    with tempfile.TemporaryDirectory() as folder, opened(WorkspaceFolder(Path(folder))) as store:
        (Path(folder) / "runs").mkdir()
        runs = FakeRuns(Path(folder) / "runs", time.time)
        agent = agent_of(store, runs)
        store.add(Schedule(name="minutely", scenario="n.yaml", cron="* * * * *"), time.time())
        while not (began := list(runs.folder.iterdir())):
            time.sleep(agent.step())
        _, due, begun = began[0].read_text().split()
        print(f"a slot was begun {float(begun) - float(due):.3f} s after it was due")


def days(count: float) -> None:
    """Two agents, one of them killed with SIGKILL each simulated hour, over the end of March in Berlin."""
    begin = datetime(2026, 3, 10, tzinfo=UTC).timestamp()
    schedules = [
        Schedule(name="hourly", scenario="a", cron="0 * * * *", missed="all"),
        Schedule(name="nightly", scenario="a", cron="30 2 * * *", timezone="Europe/Berlin", missed="all"),
    ]
    with tempfile.TemporaryDirectory() as folder:
        started = time.monotonic()
        result = simulate(Path(folder), schedules, begin, count, kill_each_s=3600.0)
        expected = [begin + hour * 3600.0 for hour in range(1, int(count * 24) + 1)]
        hourly, nightly = result.began["hourly"], result.began["nightly"]
        print(
            f"{count:g} days, {result.kills} kills: {len(hourly)} of {len(expected)} hourly slots, "
            f"{len(hourly) - len(set(hourly))} twice, the expected ones: {sorted(hourly) == expected}; "
            f"{len(set(nightly))} nights, {len(nightly) - len(set(nightly))} twice; {result.states}; "
            f"{time.monotonic() - started:.0f} s"
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--idle-s", type=float, default=60.0)
    parser.add_argument("--days", type=float, default=30.0)
    parser.add_argument("--only", choices=["idle", "late", "days"])
    given = parser.parse_args()
    if given.only in (None, "idle"):
        idle(given.idle_s)
    if given.only in (None, "late"):
        late()
    if given.only in (None, "days"):
        days(given.days)
