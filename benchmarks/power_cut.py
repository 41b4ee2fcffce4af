"""Cut the power at every sync of a run of 12 trials: what is lost, and what can't be read then.

    python benchmarks/power_cut.py [--mixtures 1] [--seed 1] [--cuts N] [--json]

One run is recorded: every change of a file or folder of its workspace by any of its processes, with content
(`disk_recorder.py` says what a power cut keeps). A cut falls right before each fsync and fdatasync, and after the last
change. For each cut the workspace is put into the state that has lost every unsynced change, and then into `--mixtures`
states that have lost a part of them, drawn by the seed. In each state `bench verify --all`, `list targets`, `status`,
`query`, `collect` and `run --resume` are given, once for equal states (most syncs are of files in a trial folder
that has no guaranteed name yet), and there is counted:

- lost: a trial that the run's events had reported as sealed is not there with the same manifest
- unreadable: one of the commands fails, or shows a traceback
- damaged: `verify --all` finds damage in a sealed trial
- not_mended: after the resume, a planned trial is not sealed, or is not in the tables exactly once
- unseen: files whose content the recorder can't explain (the record would be incomplete)

Exits 1 unless all are 0. `--cuts` takes so many of the cuts, evenly spread, instead of all.
"""

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import kill_storm
from disk_recorder import Call, Disk, Recorder, unseen, why_not
from kill_storm import Storm

from benchhouse.evidence.folder import list_sealed, read_manifest
from benchhouse.evidence.verify import manifest_digest
from benchhouse.runs.ledger import list_runs
from benchhouse.schema.layout import TrialFolder

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from warm_bench import WarmBench  # type: ignore[import-not-found]

TRIALS = 12
BARS = ("lost", "unreadable", "damaged", "not_mended", "unseen")
ROWS = "SELECT trial_id FROM trial_fact"
CODE = "def nap(n: int):\n    return {'n_seen': n}\n"
_TIMEOUT_S = 120
Problem = tuple[str, str]


@dataclass
class Lab(Storm):
    """A workspace with one recorded run."""

    trials: int = TRIALS

    def __post_init__(self) -> None:
        kill_storm.CODE = CODE
        super().__post_init__()
        self.home = self.workspace.root
        (self.home / "storm.yaml").write_text(
            json.dumps(kill_storm.SCENARIO | {"workload": {"n": list(range(self.trials))}})
        )
        self.recorder = Recorder(self.home, self.root / "recorder")
        self.warm = WarmBench()

    def environment(self) -> dict[str, str]:
        return super().environment() | {"NO_COLOR": "1"}

    def bench(self, *arguments: str) -> Any:
        return self.warm.call(arguments, self.home, self.environment(), _TIMEOUT_S)

    def record(self) -> tuple[Disk, list[Call]]:
        """The workspace before a run, and the changes that the run made; caches are filled by a run before."""
        before = Disk(self.home)
        for _ in range(2):
            before.restore([])
            disk = Disk(self.home)
            done = self.run_recorded()
            if done.returncode:
                raise RuntimeError(f"the run failed: {done.stderr}")
        return disk, self.recorder.calls()

    def run_recorded(self, **failing: int) -> "subprocess.CompletedProcess[str]":
        """The run, recorded from its start; `failing` as in `Recorder.environment`."""
        environment = self.environment() | self.recorder.environment(**failing)
        command = [sys.executable, "-m", "benchhouse", *self.arguments]
        return subprocess.run(
            command, cwd=self.home, env=environment, capture_output=True, text=True, check=False, timeout=_TIMEOUT_S
        )

    def problems(self, reported: Sequence[str]) -> Iterator[Problem]:
        """The problems of the workspace as a power cut left it; the run is completed."""
        ids = list_runs(self.workspace)
        commands = [["verify", "--all", "--json"], ["list", "targets"], ["status", "--json"], ["query", ROWS, "--json"]]
        if ids:
            commands += [["collect", "@last"], ["run", "--resume", "@last"]]
        else:
            commands += [self.arguments]
        sealed = self._digests()  # `verify` fails if there is nothing to verify
        if missing := {*reported} - sealed:
            yield "lost", f"{len(missing)} of {len(reported)} trials that were reported"
        if reported and not ids:
            yield "unreadable", "the run that reported trials is not there"
        for arguments in commands:
            done = self.bench(*arguments)
            text = done.stdout + done.stderr
            if arguments[0] == "verify" and done.returncode and (sealed or "Traceback" in text):
                yield "damaged", text[-800:]
            elif arguments[0] != "verify" and (done.returncode or "Traceback (most recent" in text):
                yield "unreadable", f"{' '.join(arguments)}: {done.returncode}: {text[-800:]}"
        yield from self._completed(list_runs(self.workspace)[-1], reported)

    def _digests(self) -> set[str]:
        return {manifest_digest(TrialFolder(path)) for path in list_sealed(self.workspace.results)}

    def _completed(self, run_id: str, reported: Sequence[str]) -> Iterator[Problem]:
        done = self.bench("verify", "--all", "--json")
        if done.returncode:
            yield "not_mended", f"verify --all: {(done.stdout + done.stderr)[-400:]}"
        if {*reported} - self._digests():
            yield "lost", "after the resume"
        manifests = [read_manifest(TrialFolder(path)) for path in list_sealed(self.workspace.results)]
        if (sealed := sum(item.run_id == run_id for item in manifests)) != self.trials:
            yield "not_mended", f"{sealed} of {self.trials} trials are sealed"
        answer = self.bench("query", ROWS, "--json")
        rows = [] if answer.returncode else [row["trial_id"] for row in json.loads(answer.stdout)["rows"]]
        if sorted(rows) != sorted(item.trial_id for item in manifests):
            yield "not_mended", f"{len(rows)} rows ({len({*rows})} trials) of {len(manifests)} sealed trials"


def reported_trials(calls: Sequence[Call]) -> list[str]:
    """Digests of the manifests that the run's events have named so far."""
    text = b"".join(call.data for call in calls if call.kind == "W" and call.path.endswith("/events.jsonl"))
    events = [json.loads(line) for line in text.splitlines()]
    return [event["manifest"] for event in events if event["event"] == "ended" and event.get("manifest")]


def main() -> int:
    options = _parse()
    if why := why_not():
        print(why, file=sys.stderr)
        return 2
    began = time.monotonic()
    problems: dict[str, list[str]] = {bar: [] for bar in BARS}
    with tempfile.TemporaryDirectory(prefix="bench-cut-") as folder:
        lab = Lab(Path(folder).resolve(), random.Random(0), 0)
        disk, calls = lab.record()
        problems["unseen"] += unseen(disk, calls, lab.home)
        syncs = [index for index, call in enumerate(calls) if call.kind == "F"]
        cuts = [*syncs, len(calls)]
        if options.cuts:
            cuts = [cuts[number * (len(cuts) - 1) // max(options.cuts - 1, 1)] for number in range(options.cuts)]
        seen = set[tuple[str, int]]()
        for number, cut in enumerate(cuts):
            reported = reported_trials(calls[:cut])
            for mixture in range(options.mixtures + 1):
                dice = random.Random(f"{options.seed}/{cut}/{mixture}") if mixture else None
                if (state := (disk.restore(calls[:cut], dice), len(reported))) in seen:
                    continue
                seen.add(state)
                for kind, text in lab.problems(reported):
                    where = f"cut {number} at change {cut}, {f'mixture {mixture}' if mixture else 'all lost'}"
                    problems[kind].append(f"{where}: {text}")
                    print(f"{kind}: {where}: {text}", file=sys.stderr)
    figures = {
        "trials": TRIALS,
        "changes": len(calls),
        "syncs": len(syncs),
        "cuts": len(cuts),
        "states": len(cuts) * (options.mixtures + 1),
        "distinct_states": len(seen),
        **{bar: len(texts) for bar, texts in problems.items()},
        "problems": problems,
        "seconds": round(time.monotonic() - began),
        "passed": not any(problems.values()),
    }
    if options.json:
        print(json.dumps(figures, indent=2))
    else:
        print(f"{figures['states']} states after {len(cuts)} cuts of a run with {len(syncs)} syncs")
        for bar in BARS:
            print(f"{bar:12}{figures[bar]}")
        print("met" if figures["passed"] else "MISSED: all must be 0")
    return 0 if figures["passed"] else 1


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mixtures", type=int, default=1, help="States with a part of the unsynced changes, per cut.")
    parser.add_argument("--cuts", type=int, default=0, help="Only this many cuts; by default, one at every sync.")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
