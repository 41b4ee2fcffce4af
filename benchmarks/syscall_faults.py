"""Kill, ENOSPC, EIO and EACCES at system calls of commands that write: what is lost, doubled, untrue or left then.

    python benchmarks/syscall_faults.py [--cases 400 | --all] [--command report]... [--seed 1] [--workers 2] [--json]

Commands: run, collect, warehouse rebuild, claim make, claim export, report. Each is traced once, which tells its first
400 renames, fsyncs, writes and openats on files of the workspace (`strace_calls.py`). A case is one of these calls with
one fault; each cell (command, call, fault) gets as many cases as the others, drawn by the seed, or all with `--all`.
A case counts as a hit where strace's own log shows the fault at a call on the workspace. Calls may fall in another
order the next time, openat most of all: a cell that none of its cases hit gets up to a dozen further ones.

After the fault, `verify --all` is asked; in half of the cases with a byte of a sealed file changed, which is changed
back. Then the command is given again, undisturbed, and `verify --all` and the tables are looked at:

- lost: a trial that was seen sealed is not there with the same manifest, or is in no table
- doubled: a trial is twice in the tables, or a repetition has two trials
- false_all_clear: `verify --all` is content with damage or did not look at all, exit code 0 without the thing that was
  asked for, a sealed trial of a killed run in no table after the next command
- tracebacks, in what any of the commands said
- leftovers: unfinished files and folders, marks, processes after the second time
- not_mended: the second time fails, or something is damaged after it

Exits 1 unless all are 0 and every cell that had a case was hit.
"""

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache, partial
from itertools import zip_longest
from pathlib import Path
from typing import Any

import kill_storm
from kill_storm import Storm
from strace_calls import FAULTS, GROUPS, trace, why_not

from benchhouse.claims import claim_files
from benchhouse.evidence.folder import list_sealed, read_manifest
from benchhouse.evidence.verify import manifest_digest, verify
from benchhouse.runs.execution import to_collect
from benchhouse.runs.ledger import list_runs
from benchhouse.schema.errors import BenchError
from benchhouse.schema.layout import TrialFolder
from benchhouse.warehouse.audit import collected_folders
from benchhouse.warehouse.catalog import CatalogLost

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from warm_bench import WarmBench  # type: ignore[import-not-found]

COMMANDS = {  # the state of the workspace, and what is typed
    "run": ("collected", "run {ws}/storm.yaml"),
    "collect": ("killed", "collect @last"),
    "rebuild": ("left out", "warehouse rebuild"),
    "claim make": ("collected", "claim make @last:n_seen --realism"),
    "claim export": ("claimed", "claim export {claim} -o {ws}/claim.tar"),
    "report": ("collected", "report @last"),
}
BARS = ("lost", "doubled", "false_all_clear", "tracebacks", "leftovers", "not_mended")
FIRST = 400
TRIALS = 2
_MORE = 13  # rounds: the cases, then one further case of each cell that was not hit
SMALL = {
    "workload": {"n": 1},
    "repetitions": TRIALS,
    "parallel": 1,
    "retries": {"max_retries": 1, "backoff": 0.01, "factor": 1},
}
ROWS = "SELECT run_id, trial_id, instance_digest, repetition, warmup FROM trial_fact"
Problem = tuple[str, str]


@dataclass(frozen=True)
class Case:
    """One fault at the `at`-th call of this name."""

    command: str
    group: str
    fault: str
    name: str
    at: int

    @property
    def cell(self) -> str:
        return f"{self.command}/{self.group}/{self.fault}"

    def __str__(self) -> str:
        return f"{self.command}: {self.fault} at {self.name} {self.at}"


@dataclass(frozen=True)
class Result:
    """What became of a case; `hits` are the calls on the workspace that the fault fell on."""

    case: Case
    hits: int
    problems: list[Problem]


class Lab(Storm):
    """A workspace that is put back into one of its states before each case. Not to be moved: paths are in its files."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.home = self.workspace.root
        (self.home / "storm.yaml").write_text(json.dumps(kill_storm.SCENARIO | SMALL))
        self.warm = WarmBench()
        self.claim = ""
        self._make_states()

    def environment(self) -> dict[str, str]:
        return super().environment() | {"PYTHONHASHSEED": "0", "NO_COLOR": "1"}

    def _make_states(self) -> None:
        tables = self.workspace.warehouse
        self._must("run", f"{self.home}/storm.yaml")
        earlier = shutil.copytree(tables, self.root / "earlier")
        self._must("run", f"{self.home}/storm.yaml")
        self._save("collected")
        self._must("claim", "make", "@last:n_seen", "--realism")
        (self.claim,) = claim_files.list_ids(self.workspace)
        self._save("claimed")
        self.restore("collected")
        shutil.rmtree(tables)
        shutil.copytree(earlier, tables)
        self._save("left out")
        to_collect(self.workspace, list_runs(self.workspace)[-1])
        self._save("killed")

    def _save(self, state: str) -> None:
        shutil.copytree(self.home, self.root / "states" / state)

    def restore(self, state: str) -> None:
        for folder in (self.home, self.root / "tmp"):
            shutil.rmtree(folder)
        (self.root / "tmp").mkdir()
        shutil.copytree(self.root / "states" / state, self.home)

    def typed(self, command: str) -> list[str]:
        words = COMMANDS[command][1].split()
        return [word.format(ws=self.home, claim=self.claim) for word in words]

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "benchhouse", "-C", str(self.home), *arguments]

    def ask(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        """A verb that starts no process, undisturbed."""
        done: subprocess.CompletedProcess[str] = self.warm.call(arguments, self.home, self.environment(), 120)
        return done

    def _must(self, *arguments: str) -> None:
        subprocess.run(self.command(*arguments), cwd=self.root, env=self.environment(), check=True, capture_output=True)

    # One case

    def places(self, command: str) -> dict[str, list[tuple[str, int]]]:
        """The first calls of each group on files of the workspace, undisturbed."""
        self.restore(COMMANDS[command][0])
        self._must(*self.typed(command))  # the first time Python may write bytecode, by renames that no case has
        self.restore(COMMANDS[command][0])
        names = [name for group in GROUPS.values() for name in group]
        traced = trace(self.command(*self.typed(command)), self.root, self.environment(), names)
        if traced.code:
            raise RuntimeError(f"{command} fails undisturbed: {traced.text}")
        ours = [(call.name, call.at) for call in traced.calls if str(self.home) in call.line]
        return {group: [*dict.fromkeys(x for x in ours if x[0] in names)][:FIRST] for group, names in GROUPS.items()}

    def run(self, case: Case, seed: int) -> Result:
        self.restore(COMMANDS[case.command][0])
        self.dice = random.Random(f"{seed}/{case}")
        known, runs = self._digests(), list_runs(self.workspace)
        inject = f"{case.name}:{FAULTS[case.fault]}:when={case.at}"
        try:
            arguments = self.command(*self.typed(case.command))
            traced = trace(arguments, self.root, self.environment(), [case.name], inject)
        except subprocess.TimeoutExpired:
            return Result(case, 1, [("not_mended", "it does not end")])
        struck = [call for call in traced.calls if (call.name, call.at) == (case.name, case.at) and call.was_struck]
        hits = sum(str(self.home) in call.line for call in struck)
        problems = [*_tracebacks(traced.text), *self._promise(case.command, traced.code)]
        problems += [*self._next_command(case.command), *self._again(case.command, known | self._digests(), runs)]
        return Result(case, hits, problems)

    def _digests(self) -> set[str]:
        return {manifest_digest(TrialFolder(path)) for path in list_sealed(self.workspace.results)}

    def _in_tables(self) -> set[Path]:
        try:
            return set(collected_folders(self.workspace))
        except (CatalogLost, BenchError):
            return set()

    def _uncollected(self) -> list[Path]:
        known = self._in_tables()
        sealed = [path for path in list_sealed(self.workspace.results) if "." not in path.name]
        return [path for path in sealed if path not in known]

    def _promise(self, command: str, code: int) -> Iterator[Problem]:
        """Exit code 0 means that it is done."""
        try:
            if not code and not self._is_done(command):
                yield "false_all_clear", "exit code 0, but what was asked for is not there"
        except (OSError, ValueError, LookupError, BenchError) as error:
            yield "false_all_clear", f"exit code 0, but {error!r}"

    def _is_done(self, command: str) -> bool:
        run_id = list_runs(self.workspace)[-1]
        if command == "claim make":
            return bool([claim_files.read(self.workspace, name) for name in claim_files.list_ids(self.workspace)])
        if command == "claim export":
            return not self.ask("claim", "verify", f"{self.home}/claim.tar").returncode
        if command == "report":
            folder = self.workspace.reports / "storm" / run_id
            cells = json.loads((folder / "report.json").read_bytes())["cells"]
            return not self.ask("trace", cells[0]["ref"]).returncode and bool((folder / "index.html").read_bytes())
        manifests = [read_manifest(TrialFolder(path)) for path in list_sealed(self.workspace.results)]
        return not self._uncollected() and sum(item.run_id == run_id for item in manifests) >= TRIALS

    def _next_command(self, command: str) -> Iterator[Problem]:
        """What `verify --all` says of what is there now, and whether it brings a killed run into the tables."""
        sealed = [TrialFolder(path) for path in list_sealed(self.workspace.results)]
        mend = self._spoil(self.dice.choice(sealed)) if self.dice.random() < 0.5 else None
        done = self.ask("verify", "--all", "--json")
        yield from _tracebacks(done.stderr)
        if not done.returncode:
            damage = [item for folder in sealed for item in verify(folder)]
            if damage:
                yield "false_all_clear", f"verify --all is content with {damage[0].file} {damage[0].kind}"
            if (checked := json.loads(done.stdout)["checked"]) < len(sealed):
                yield "false_all_clear", f"verify --all looked at {checked} of {len(sealed)} sealed trials"
        if mend:
            mend()
        elif command in ("run", "collect") and (left := self._uncollected()):
            yield "false_all_clear", f"{len(left)} sealed trials are in no table after the next command"

    def _spoil(self, folder: TrialFolder) -> Callable[[], int]:
        """Change a bit of a sealed file; returns how to change it back."""
        entries = read_manifest(folder).files
        path = folder.path / self.dice.choice([name for name, entry in entries.items() if entry.bytes])
        before = path.read_bytes()
        changed = bytearray(before)
        changed[self.dice.randrange(len(before))] ^= 1
        path.write_bytes(changed)
        return partial(path.write_bytes, before)

    def _again(self, command: str, seen: set[str], runs: list[str]) -> Iterator[Problem]:
        """The same command undisturbed, and what there is then."""
        if command == "run":
            begun = list_runs(self.workspace) != runs
            typed = self.command(*(("run", "--resume", "@last") if begun else self.typed(command)))
            env = self.environment()
            done = subprocess.run(typed, cwd=self.root, env=env, capture_output=True, text=True, check=False)
        else:
            done = self.ask(*self.typed(command))
        yield from _tracebacks(done.stderr)
        if done.returncode:
            yield "not_mended", f"the second time: exit code {done.returncode}: {done.stderr.strip()[-300:]}"
        verified = self.ask("verify", "--all", "--json")
        if verified.returncode:
            yield "not_mended", f"then verify --all: {(verified.stdout + verified.stderr).strip()[-300:]}"
        if missing := seen - self._digests():
            yield "lost", f"{len(missing)} sealed trials are gone"
        if left := self._uncollected():
            yield "lost", f"{len(left)} sealed trials are in no table"
        answer = self.ask("query", ROWS, "--json")
        rows = json.loads(answer.stdout)["rows"] if not answer.returncode else []
        trials = [row["trial_id"] for row in rows]
        repetitions = [tuple(row[name] for name in row if name != "trial_id") for row in rows]
        if len({*trials}) < len(trials) or len({*repetitions}) < len(rows):
            yield "doubled", f"{len(rows)} rows of {len({*trials})} trials and {len({*repetitions})} repetitions"
        yield from (("leftovers", line) for line in self._left())

    def _left(self) -> list[str]:
        paths = [
            path.relative_to(self.home).as_posix()
            for path in self.home.rglob("*")
            if path.suffix in (".tmp", ".blanked") or path.parent.name in (".partial", "uncollected")
        ]
        made = {path.name for path in self.workspace.runs.iterdir()} - {*list_runs(self.workspace)}
        deadline = time.monotonic() + 10
        while (running := self.left_running()) and time.monotonic() < deadline:
            time.sleep(0.1)
        processes = [f"{running} processes"] if running else []
        return [*paths, *made, *processes, *(f"$TMPDIR/{path.name}" for path in (self.root / "tmp").iterdir())]


def _tracebacks(text: str) -> Iterator[Problem]:
    if "Traceback (most recent" in text:
        yield "tracebacks", text.strip()[-300:]


@cache
def _own_lab(root: Path, name: str) -> Lab:
    (root / name).mkdir()
    return Lab(root / name, random.Random(0), 0)


def _carry_out(case: Case, seed: int, root: Path) -> Result:
    """In the lab of this process."""
    return _own_lab(root, str(os.getpid())).run(case, seed)


def choose(places: dict[str, dict[str, list[tuple[str, int]]]], seed: int) -> list[Case]:
    """All cases: one of each cell in turn, as long as it has more."""
    dice = random.Random(seed)
    cells = []
    for command, groups in places.items():
        for group, calls in groups.items():
            for fault in FAULTS:
                cases = [Case(command, group, fault, *call) for call in calls]
                dice.shuffle(cases)
                cells.append(cases)
    dice.shuffle(cells)
    return [case for turn in zip_longest(*cells) for case in turn if case]


def next_of_unhit(every: list[Case], results: list[Result]) -> list[Case]:
    """One further case of each cell that was tried and not hit."""
    tried, hit = {result.case for result in results}, {result.case.cell for result in results if result.hits}
    unhit = {case.cell for case in tried} - hit
    waiting = {case.cell: case for case in reversed(every) if case.cell in unhit and case not in tried}
    return list(waiting.values())


def main() -> int:
    options = _parse()
    if why := why_not():
        print(why, file=sys.stderr)
        return 2
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="bench-faults-") as folder:
        root = Path(folder).resolve()
        lab = _own_lab(root, str(os.getpid()))
        places = {command: lab.places(command) for command in options.command or COMMANDS}
        every = choose(places, options.seed)
        results: list[Result] = []
        with ProcessPoolExecutor(options.workers) as pool:
            carry_out = partial(_carry_out, seed=options.seed, root=root)
            cases = every if options.all else every[: options.cases]
            in_turn = pool.map if options.workers > 1 else map  # the lab of this process is there already
            for _ in range(_MORE):
                results += map(_shown, in_turn(carry_out, cases))
                cases = next_of_unhit(every, results)
    figures = _figures(places, results) | {"seed": options.seed, "seconds": round(time.monotonic() - began)}
    if options.json:
        print(json.dumps(figures, indent=2))
    else:
        _print(figures)
    return 0 if figures["passed"] else 1


def _shown(result: Result) -> Result:
    for kind, text in result.problems if result.hits else ():
        print(f"{result.case}: {kind}: {text}", file=sys.stderr)
    return result


def _figures(places: dict[str, dict[str, list[tuple[str, int]]]], results: list[Result]) -> dict[str, Any]:
    cells: dict[str, dict[str, int]] = {}
    problems: dict[str, list[str]] = {bar: [] for bar in BARS}
    for result in results:
        case = result.case
        calls = len(places[case.command][case.group])
        cell = cells.setdefault(case.cell, {"calls": calls, "cases": 0, "hits": 0, "calls_hit": 0})
        cell["cases"] += 1
        if result.hits:
            cell["hits"] += 1
            cell["calls_hit"] += result.hits
            for kind, text in result.problems:
                problems[kind].append(f"{case}: {text}")
    unhit = [name for name, cell in cells.items() if not cell["hits"]]
    return {
        "cases": len(results),
        "hits": sum(cell["hits"] for cell in cells.values()),
        **{bar: len(texts) for bar, texts in problems.items()},
        "cells_without_hit": unhit,
        "cells": cells,
        "problems": problems,
        "passed": bool(results) and not unhit and not any(problems.values()),
    }


def _print(figures: dict[str, Any]) -> None:
    print(f"{'command':14}{'call':8}{'there are':>10}" + "".join(f"{fault:>10}" for fault in FAULTS) + "  hits/cases")
    for row in dict.fromkeys(name.rpartition("/")[0] for name in figures["cells"]):
        of_row = [figures["cells"].get(f"{row}/{fault}") for fault in FAULTS]
        command, group = row.split("/")
        shown = "".join(f"{cell['hits']}/{cell['cases']}".rjust(10) if cell else f"{'':10}" for cell in of_row)
        print(f"{command:14}{group:8}{next(cell['calls'] for cell in of_row if cell):>10}{shown}")
    print(f"{figures['hits']} of {figures['cases']} cases hit, {figures['seconds']} s")
    for bar in BARS:
        print(f"{bar:18}{figures[bar]}")
    if figures["cells_without_hit"]:
        print(f"never hit: {', '.join(figures['cells_without_hit'])}")
    print("met" if figures["passed"] else "MISSED: all must be 0, and every cell hit")


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=400, help="How many in all; about 10 minutes on two cores.")
    parser.add_argument("--all", action="store_true", help="Every call with every fault.")
    parser.add_argument("--command", action="append", choices=COMMANDS, help="Only this one; repeatable.")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
