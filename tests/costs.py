"""A pytest plugin that records what each test and each shared fixture costs in wall time and CPU time.

CPU time includes the child processes that a test has waited for, and helper processes that call `watch_process`. With
pytest-xdist, the workers measure and send their numbers with the test reports; the main process appends them to the
file named by `--costs`. `scripts/test_costs.py` prints that file as tables.
"""

import json
import os
import resource
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

PROPERTY = "costs"
_watched_processes: list[int] = []


def watch_process(pid: int) -> None:
    """Count the CPU time of a child that outlives a test, and that of its finished children, from now on."""
    _watched_processes.append(pid)


@dataclass(frozen=True)
class Clock:
    """One reading of wall time and of the CPU time of this process and its finished children, in seconds."""

    wall: float = field(default_factory=time.monotonic)
    cpu: float = field(default_factory=lambda: _cpu_seconds())

    def elapsed(self) -> dict[str, float]:
        """Return the wall and CPU seconds since this reading."""
        now = Clock()
        return {"wall_s": round(now.wall - self.wall, 3), "cpu_s": round(now.cpu - self.cpu, 3)}


def _cpu_seconds() -> float:
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages) + sum(map(_cpu_seconds_of, _watched_processes))


def _cpu_seconds_of(pid: int) -> float:
    """Return the CPU time of a process and its finished children; 0 after its end, when it counts as a child."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


class CostMeter:
    """Measures in the process that runs a test, and attaches the numbers to the test's reports."""

    def __init__(self) -> None:
        self.fixtures: list[dict[str, Any]] = []

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any, request: pytest.FixtureRequest) -> Iterator[None]:
        """Measure the setup and the teardown of a fixture that several tests share."""
        if fixturedef.scope == "function":
            return (yield)
        # Finalizers run in reverse order: the first one added here ends the measurement of the teardown.
        teardown_start: list[Clock] = []
        fixturedef.addfinalizer(lambda: self._add_fixture(fixturedef, teardown_start.pop()))
        setup_start = Clock()
        try:
            return (yield)
        finally:
            self._add_fixture(fixturedef, setup_start)
            fixturedef.addfinalizer(lambda: teardown_start.append(Clock()))

    def _add_fixture(self, fixturedef: Any, start: Clock) -> None:
        self.fixtures.append({"fixture": fixturedef.argname, "scope": fixturedef.scope, **start.elapsed()})

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Iterator[None]:
        return (yield from self._measure(item, "setup"))

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        return (yield from self._measure(item, "call"))

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Iterator[None]:
        return (yield from self._measure(item, "teardown"))

    def _measure(self, item: pytest.Item, phase: str) -> Iterator[None]:
        start = Clock()
        self.fixtures = []
        try:
            return (yield)
        finally:
            cost = {"phase": phase, **start.elapsed(), "fixtures": self.fixtures}
            if (slow := item.get_closest_marker("slow")) and slow.args:
                cost["reason"] = slow.args[0]
            item.user_properties[:] = [entry for entry in item.user_properties if entry[0] != PROPERTY]
            item.user_properties.append((PROPERTY, cost))


class CostWriter:
    """Appends the cost of each test phase to a JSON Lines file as its report arrives."""

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()  # tests change the working directory

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        cost = dict(report.user_properties).get(PROPERTY)
        if cost and cost["phase"] == report.when:
            with self.path.open("a") as file:
                file.write(json.dumps({"test": report.nodeid, "outcome": report.outcome, **cost}) + "\n")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--costs", type=Path, metavar="FILE", help="append the cost of each test to this JSON Lines file")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(CostMeter(), "cost meter")
    if (path := config.getoption("--costs")) and not hasattr(config, "workerinput"):
        config.pluginmanager.register(CostWriter(path), "cost writer")
