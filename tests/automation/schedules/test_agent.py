"""The agent on a real store: SQLite, and PostgreSQL of a team. Its clock is set by hand; runs are files."""

from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from services.postgres import new_database
from services.simulated_schedules import Clock, FakeRuns, agent_of, simulate
from services.small_disk import small_disk as small_disk

from benchhouse.automation.database import Sqlite
from benchhouse.automation.schedules.agent import LEASE_S
from benchhouse.automation.schedules.database import TABLES, PostgresScheduleDatabase
from benchhouse.automation.schedules.store import ScheduleStore
from benchhouse.schema.errors import BenchError
from benchhouse.schema.schedules import Schedule

BEGIN = datetime(2026, 3, 20, tzinfo=UTC).timestamp()
HOUR, DAY = 3600.0, 86400.0


@pytest.fixture
def runs(tmp_path) -> FakeRuns:
    (tmp_path / "runs").mkdir()
    return FakeRuns(tmp_path / "runs", Clock(BEGIN))


@pytest.fixture(params=["sqlite", "postgres"])
def store(request, tmp_path):
    if request.param == "sqlite":
        database = Sqlite(tmp_path / "schedules.db", TABLES, "the schedules")
    else:
        database = PostgresScheduleDatabase(new_database(request.getfixturevalue("postgres_server").endpoint))
    store = ScheduleStore(database)
    yield store
    store.close()


def hourly(**fields) -> Schedule:
    return Schedule(**({"name": "n", "scenario": "n.yaml", "cron": "0 * * * *"} | fields))


def states(store: ScheduleStore) -> str:
    return " ".join(slot.state for slot in reversed(store.slots("n", 100)))


def test_a_slot_is_begun_when_due_and_followed_to_its_end(store, runs):
    store.add(hourly(), BEGIN + 1)
    agent = agent_of(store, runs)
    agent.step()
    assert runs.began() == {}
    runs.clock.set(BEGIN + HOUR - 0.4)
    assert agent.step() == pytest.approx(0.4, abs=0.01)
    runs.clock.set(BEGIN + HOUR)
    agent.step()
    assert runs.began() == {"n": [BEGIN + HOUR]} and states(store) == "running"
    runs.clock.set(BEGIN + HOUR + 5)
    agent.step()
    assert states(store) == "succeeded"


def test_of_two_agents_one_works_and_the_other_takes_over(store, runs):
    store.add(hourly(), BEGIN)
    first, second = (replace(agent_of(store, runs), me=name, is_gone=lambda name: False) for name in ("a", "b"))
    for agent in (first, second, second):
        agent.step()
    assert runs.notes == ["another agent carries out the schedules: a"]
    assert (first.leads, second.leads) == (True, False)
    runs.clock.set(BEGIN + LEASE_S + 1)  # the first says nothing more
    second.step()
    first.step()
    assert (first.leads, second.leads) == (False, True)
    second.stop()
    runs.clock.set(BEGIN + LEASE_S + 10)
    first.step()
    assert first.leads


def test_two_who_both_think_that_they_lead_claim_a_slot_once(store, runs):
    store.add(hourly(), BEGIN)
    runs.clock.set(BEGIN + HOUR)
    store.decide(BEGIN + HOUR, "here", "a")
    store.reschedule_all()
    store.decide(BEGIN + HOUR, "here", "b")
    assert [slot.claimer for slot in store.slots("n")] == ["a"]


def test_what_was_claimed_by_a_killed_agent_is_begun_under_the_same_run(store, runs):
    store.add(hourly(), BEGIN)
    store.decide(BEGIN + HOUR, "here", "gone")
    (claimed,) = store.slots("n")
    runs.clock.set(BEGIN + HOUR + 30)
    agent = replace(agent_of(store, runs), is_gone=lambda name: name == "gone")
    agent.step()
    assert [path.name for path in runs.folder.iterdir()] == [claimed.run_id] and states(store) == "running"


def test_what_another_machine_claimed_is_not_run_here_and_lost_after_an_hour(store, runs):
    store.add(hourly(), BEGIN)
    store.decide(BEGIN + HOUR, "elsewhere", "far")
    runs.clock.set(BEGIN + HOUR + 30)
    agent_of(store, runs, "x").step()
    assert states(store) == "claimed" and runs.began() == {}
    runs.clock.set(BEGIN + 3 * HOUR)
    agent_of(store, runs, "y").step()
    assert states(store).split()[0] == "lost"


def test_three_failures_notify_once_and_so_does_the_end_of_them(store, runs):
    store.add(hourly(), BEGIN)
    agent = agent_of(store, runs)
    runs.broken = True
    for hour in range(1, 6):
        runs.deaf = hour == 3  # the channel is away at first
        runs.clock.set(BEGIN + hour * HOUR)
        agent.step()
        agent.step()
    assert runs.told == ["n 4"] and store.get("n").told == ("ops",)
    assert [slot.why for slot in store.slots("n", 1)] == ["the scenario is gone"]
    runs.broken = False
    runs.clock.set(BEGIN + 6 * HOUR)
    agent.step()
    runs.clock.set(BEGIN + 6 * HOUR + 100)
    agent.step()
    agent.step()
    assert runs.told == ["n 4", "n 0"] and store.get("n").told == ()


def test_paused_it_begins_nothing_and_makes_nothing_up(store, runs):
    store.add(hourly(), BEGIN)
    agent = agent_of(store, runs)
    store.pause("n", BEGIN + 60)
    runs.clock.set(BEGIN + 5 * HOUR + 60)
    agent.step()
    store.pause("n", BEGIN + 5 * HOUR + 60, paused=False)
    agent.step()
    assert runs.began() == {}
    runs.clock.set(BEGIN + 6 * HOUR)
    agent.step()
    assert runs.began() == {"n": [BEGIN + 6 * HOUR]}


def test_a_clock_that_jumps_runs_no_slot_twice(store, runs):
    store.add(hourly(), BEGIN)
    agent = agent_of(store, runs)
    for moment in (HOUR, HOUR + 9, 400 * DAY + 60, 2 * HOUR - 9, 2 * HOUR, HOUR, 3 * HOUR, 3 * HOUR + 9):
        runs.clock.set(BEGIN + moment)
        agent.step()
        agent.step()
    assert sorted(runs.began()["n"]) == [BEGIN + moment for moment in (HOUR, 2 * HOUR, 3 * HOUR, 400 * DAY)]


def test_a_name_that_is_taken_or_not_there_is_told(store):
    store.add(hourly(), BEGIN)
    with pytest.raises(BenchError, match="there is a schedule n"):
        store.add(hourly(), BEGIN)
    store.add(hourly(cron="5 * * * *"), BEGIN, replace=True)
    assert store.get("n").schedule.cron == "5 * * * *"
    with pytest.raises(BenchError, match="no schedule 'm'"):
        store.remove("m")


def test_a_full_disk_begins_nothing_is_told_once_and_is_over_when_there_is_room(small_disk, runs):
    store = ScheduleStore(Sqlite(small_disk / "schedules.db", TABLES, "the schedules"))
    with closing(store):
        store.add(hourly(), BEGIN)
        agent = agent_of(store, runs)
        agent.step()
        with (small_disk / "filler").open("wb", buffering=0) as file, pytest.raises(OSError, match="No space"):
            while True:
                file.write(bytes(4096))
        runs.clock.set(BEGIN + 2 * HOUR)  # to write that down takes more than the journal has left
        for _ in range(20):
            store_is_full = agent.step() > 0 and bool(runs.notes)
        assert store_is_full and len(runs.notes) == 1 and "can't be used" in runs.notes[0] and runs.began() == {}
        (small_disk / "filler").unlink()
        agent.step()
        assert runs.began() == {"n": [BEGIN + 2 * HOUR]}


@pytest.mark.timeout(240)
def test_days_of_two_agents_that_are_killed_each_hour_run_every_slot_once(tmp_path):
    """Over the night of 2026-03-29, when Berlin skips an hour."""
    begin = datetime(2026, 3, 28, 12, tzinfo=UTC).timestamp()
    schedules = [
        Schedule(name="hourly", scenario="a", cron="0 * * * *", missed="all"),
        Schedule(name="nightly", scenario="a", cron="30 2 * * *", timezone="Europe/Berlin", missed="all"),
    ]
    simulated = simulate(Path(tmp_path), schedules, begin, 1, kill_each_s=HOUR)
    nightly = [datetime.fromtimestamp(moment, UTC).isoformat()[8:16] for moment in simulated.began["nightly"]]
    assert nightly == ["29T01:00"]
    assert sorted(simulated.began["hourly"]) == [begin + hour * HOUR for hour in range(1, 25)]
    assert simulated.states == {"succeeded": 25} and simulated.kills >= 20
