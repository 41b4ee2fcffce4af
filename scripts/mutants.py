"""What share of the mutants of the core do its tests kill?

A mutant is the core with one small change (scripts/mutations.py); it is killed when the test file that mirrors the
changed module fails. By default a sample of each module, drawn by a fixed seed; survivors are judged in
tests/mutants.toml. Exit 1 below the bar.

python scripts/mutants.py [--all] [--sample N] [MODULE...]      such as analysis/cuts.py
"""

import argparse
import compileall
import hashlib
import math
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
import tomllib
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from mutations import Mutation, mutations_of

ROOT = Path(__file__).parent.parent
HOUSE = ROOT / "src" / "benchhouse"
SCOPE = ("analysis", "evidence", "plan", "claims", "load/certificate.py", "worker/supervise.py", "schema/secrets.py")
BAR = 0.9
SAMPLE = 400
SEED = "benchhouse"
JOBS = len(os.sched_getaffinity(0))
Z = 1.96
KILLED, SURVIVED, HANGS = "killed", "survived", "hangs"


@dataclass(frozen=True)
class Judgements:
    """tests/mutants.toml: which test files mirror a module, and what was thought of its survivors."""

    mirrors: dict[str, list[str]]
    verdicts: dict[tuple[str, str, str], str]

    def tests_of(self, module: str) -> list[str]:
        own = Path("tests", module).with_name(f"test_{Path(module).name}")
        return self.mirrors.get(module) or [str(own)]

    def verdict(self, mutant: Mutation) -> str | None:
        return self.verdicts.get((mutant.module, mutant.before, mutant.after))


def read_judgements() -> Judgements:
    content = tomllib.loads((ROOT / "tests" / "mutants.toml").read_text())
    judged = {(item["module"], item["before"], item["after"]): item["verdict"] for item in content.get("judged", [])}
    return Judgements(content["mirrors"], judged)


def modules_in(scope: Sequence[str]) -> Iterator[str]:
    for part in scope:
        files = sorted((HOUSE / part).rglob("*.py")) if (HOUSE / part).is_dir() else [HOUSE / part]
        yield from (str(file.relative_to(HOUSE)) for file in files)


def draw(mutants: list[Mutation], size: int) -> list[Mutation]:
    """The same ones each time: those with the smallest digest. So an edit elsewhere in the file changes few of them."""
    return sorted(mutants, key=lambda mutant: _digest(mutant))[:size]


def _digest(mutant: Mutation) -> str:
    return hashlib.sha256(f"{SEED}\n{mutant.module}\n{mutant.before}\n{mutant.after}".encode()).hexdigest()


# -- one mutant


@dataclass
class Room:
    """A copy of the package, where one mutant at a time lives; the processes that a test starts see it too."""

    folder: Path
    mutant: Mutation | None = None
    pid: int = 0
    started: float = 0.0
    limit_s: float = 0.0

    @property
    def package(self) -> Path:
        return self.folder / "src" / "benchhouse"

    def start(self, tests: list[str], mutant: Mutation | None, cpu_s: float, limit_s: float) -> None:
        self.mutant, self.limit_s, self.started = mutant, limit_s, time.monotonic()
        if mutant:
            file = self.package / mutant.module
            file.write_bytes(mutant.apply((HOUSE / mutant.module).read_bytes()))
            for compiled in file.parent.glob(f"__pycache__/{file.stem}.*"):
                compiled.unlink()
        self.pid = os.fork()
        if not self.pid:
            self._test(tests, int(cpu_s))

    def _test(self, tests: list[str], cpu_s: int) -> None:
        """In the child, which has pytest and the libraries in memory already, but nothing of the package."""
        try:
            import pytest

            os.setsid()
            resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, cpu_s))
            log = os.open(self.folder / "log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(log, 1)
            os.dup2(log, 2)
            sys.path.insert(0, str(self.folder / "src"))
            os.environ |= {"PYTHONPATH": sys.path[0], "HYPOTHESIS_STORAGE_DIRECTORY": str(self.folder / "hypothesis")}
            options = ["-x", "--tb=line", f"--basetemp={self.folder / 'tmp'}", "-m", "not slow", "--hypothesis-seed=0"]
            plugins = ["-n", "0", "-p", "no:cacheprovider"]
            code = int(pytest.main([*options, *plugins, *tests]))
        except BaseException:  # noqa: BLE001 - the child must not go on as a second parent
            traceback.print_exc()
            code = 70
        os._exit(code)

    def ended(self) -> tuple[str, float] | None:
        """How it went, and the processor time that it took, or None while it runs."""
        pid, status, usage = os.wait4(self.pid, os.WNOHANG)
        hangs = not pid and time.monotonic() - self.started > self.limit_s
        if not pid and not hangs:
            return None
        if hangs:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        self._end_leftovers()
        if self.mutant:
            shutil.copy2(HOUSE / self.mutant.module, self.package / self.mutant.module)
        return HANGS if hangs else KILLED if status else SURVIVED, usage.ru_utime + usage.ru_stime

    def _end_leftovers(self) -> None:
        """What the tests of a mutant left running."""
        for entry in Path("/proc").glob("[0-9]*/environ"):
            try:
                if f"PYTHONPATH={self.folder}/".encode() in entry.read_bytes():
                    os.kill(int(entry.parent.name), signal.SIGKILL)
            except OSError:
                continue  # it has ended, or is another user's


def make_rooms(folder: Path) -> list[Room]:
    rooms = [Room(folder / str(number)) for number in range(JOBS)]
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(HOUSE, rooms[0].package, ignore=ignored)
    compileall.compile_dir(rooms[0].package, quiet=2)
    for room in rooms[1:]:
        shutil.copytree(rooms[0].package, room.package)
    return rooms


def load_libraries() -> None:
    """What every test run needs and no mutant touches, once: each mutant is a fork of this process."""
    import click  # noqa: F401
    import duckdb  # noqa: F401
    import hypothesis  # noqa: F401
    import numpy  # noqa: F401
    import pyarrow.parquet  # noqa: F401
    import pydantic  # noqa: F401
    import pytest  # noqa: F401
    import rich.console  # noqa: F401
    import yaml  # noqa: F401


# -- all of them


@dataclass
class Score:
    """What came of the mutants that were tried."""

    outcomes: Counter[str] = field(default_factory=Counter)
    survivors: list[Mutation] = field(default_factory=list)

    def count(self, mutant: Mutation, outcome: str) -> None:
        self.outcomes[outcome] += 1
        if outcome != KILLED:
            self.survivors.append(mutant)

    @property
    def tried(self) -> int:
        return self.outcomes.total()

    @property
    def share(self) -> float:
        return self.outcomes[KILLED] / self.tried if self.tried else 1.0

    def interval(self) -> tuple[float, float]:
        """Wilson's, 95%."""
        n, share = self.tried or 1, self.share
        middle, half = share + Z**2 / (2 * n), Z * math.sqrt(share * (1 - share) / n + Z**2 / (4 * n**2))
        return (middle - half) / (1 + Z**2 / n), (middle + half) / (1 + Z**2 / n)


def run(
    queue: list[tuple[Mutation | None, list[str]]], rooms: list[Room], limits: dict[tuple[str, ...], float]
) -> Iterator[tuple]:
    """Start and end them, as many at once as there are rooms; what ended comes with its outcome and its time."""
    waiting, free, busy = iter(queue), list(rooms), []
    while True:
        while free and (item := next(waiting, None)):
            room = free.pop()
            mutant, tests = item
            cpu_s = limits.get(tuple(tests), 600.0)
            room.start(tests, mutant, cpu_s, 60 + 6 * cpu_s)
            busy.append((room, item))
        if not busy:
            return
        time.sleep(0.02)
        for room, item in list(busy):
            if ended := room.ended():
                busy.remove((room, item))
                free.append(room)
                yield item, *ended, room


def measure(mutants: list[Mutation], judgements: Judgements) -> dict[str, Score]:
    """Each by the tests of its module. Endless is what takes five times the processor time of the unchanged code."""
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    load_libraries()
    suites = {tuple(judgements.tests_of(mutant.module)) for mutant in mutants}
    scores: dict[str, Score] = {}
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        rooms = make_rooms(Path(folder))
        limits: dict[tuple[str, ...], float] = {}
        for (_, tests), outcome, cpu_s, room in run([(None, list(suite)) for suite in sorted(suites)], rooms, {}):
            if outcome != SURVIVED:
                sys.exit(f"{' '.join(tests)} fails without any mutant:\n{(room.folder / 'log').read_text()[-3000:]}")
            limits[tuple(tests)] = 10 + 5 * cpu_s
        queue = [(mutant, judgements.tests_of(mutant.module)) for mutant in mutants]
        for number, ((mutant, _), outcome, _, _) in enumerate(run(queue, rooms, limits), 1):
            scores.setdefault(mutant.module, Score()).count(mutant, outcome)
            if outcome != KILLED and not judgements.verdict(mutant):  # told at once: all of them take hours
                print(f"{outcome}, not judged: {mutant.module}\n  - {mutant.before}\n  + {mutant.after}", flush=True)
            print(f"\r{number}/{len(queue)} ", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return scores


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("modules", nargs="*", default=list(SCOPE), help="files or folders below src/benchhouse")
    parser.add_argument("--all", action="store_true", help="every mutant, which takes hours")
    parser.add_argument("--sample", type=int, default=SAMPLE, help=f"how many mutants ({SAMPLE})")
    asked = parser.parse_args()
    os.chdir(ROOT)
    judgements = read_judgements()
    found = {module: mutations_of(HOUSE / module, module) for module in modules_in(asked.modules)}
    total = sum(map(len, found.values()))
    part = 1.0 if asked.all else min(1.0, asked.sample / total)
    drawn = [mutant for mutants in found.values() for mutant in draw(mutants, math.ceil(part * len(mutants)))]
    tried = [mutant for mutant in drawn if judgements.verdict(mutant) != "equivalent"]
    scores = measure(tried, judgements)
    return show(scores, f"{len(drawn)} of {total} mutants, {len(drawn) - len(tried)} judged equivalent", judgements)


def show(scores: dict[str, Score], drawn: str, judgements: Judgements) -> int:
    whole = Score()
    for module, score in scores.items():
        print(f"{module:40} {score.outcomes[KILLED]:4} of {score.tried:4} killed")
        whole.outcomes += score.outcomes
        whole.survivors += score.survivors
    unjudged = [mutant for mutant in whole.survivors if not judgements.verdict(mutant)]
    low, high = whole.interval()
    print(
        f"\n{drawn}; {whole.outcomes[KILLED]} of {whole.tried} killed: {whole.share:.1%} ({low:.1%} to {high:.1%})",
        end="",
    )
    print(f"; {len(whole.survivors)} survive, {whole.outcomes[HANGS]} of them hang, {len(unjudged)} are not judged")
    return 0 if whole.share >= BAR else 1


if __name__ == "__main__":
    sys.exit(main())
