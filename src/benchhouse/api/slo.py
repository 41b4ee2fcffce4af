"""Find the highest load that meets an SLO: each probe is a run of the scenario, chosen by what earlier ones told."""

import csv
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import yaml

from benchhouse.analysis.batches import Batch
from benchhouse.analysis.saturation import capacity, power_knee
from benchhouse.analysis.slo_search import Found, LoadRange, Probe, Search
from benchhouse.api import execution
from benchhouse.documents.yaml_writer import dump_yaml
from benchhouse.evidence.writing import write_text
from benchhouse.load.slo import Slo, parse_slo
from benchhouse.runs import records
from benchhouse.runs.collection import trial_folders
from benchhouse.runs.preparation import Prepared, Where, prepare, prepare_text
from benchhouse.schema.errors import BenchError, Exit
from benchhouse.schema.layout import TrialFolder, Workspace

LOADS = ("rps", "concurrency")
_TRIES = 3  # of a probe whose trial is invalid


@dataclass(frozen=True)
class Asked:
    """What is looked for, and how hard."""

    slo: Slo
    over: str | None = None  # what is varied; as the scenario does where it says
    first: float | None = None
    highest: float | None = None
    requests: int = 500_000
    precision: float = 0.03
    confidence: float = 0.95


@dataclass(frozen=True)
class Probed:
    """One probe: the run that holds its evidence, and what it told."""

    run_id: str
    load: float
    requests: int
    over: tuple[float, ...]  # share of the requests over the limit, by clause
    holds: bool


@dataclass(frozen=True)
class Answer:
    """The end of a search."""

    scenario: str
    over: str
    slo: str
    found: Found
    knee: float | None
    capacity: float
    probes: list[Probed]
    path: Path

    def as_json(self) -> dict[str, Any]:
        return asdict(self) | {"path": str(self.path)}


def find(
    workspace: Workspace,
    path: Path,
    asked: Asked,
    say: Callable[[Probed, Search], None],
    note: Callable[[str], None],
) -> Answer:
    """Search; `say` is told of every probe that counts, `note` what goes on meanwhile.

    Raises when the scenario has more than one point, or no load to vary.
    """
    prepared = prepare(workspace, path)
    over, first = _what_to_vary(prepared, asked)
    search = Search(
        [clause.share for clause in asked.slo.clauses],
        first,
        loads=LoadRange(highest=asked.highest, whole=over == "concurrency"),
        requests=asked.requests,
        precision=asked.precision,
        confidence=asked.confidence,
    )
    probes: list[Probed] = []
    while probe := search.next():
        note(f"probe {len(probes) + 1}: {_offered(probe, over, search)} ...")
        folder, run_id = _run(workspace, prepared, path, over, probe, asked.slo, note)
        batches = _batches(folder, asked.slo)
        search.tell(probe.load, batches, _mean_latency_s(folder))
        probes.append(_probed(run_id, probe.load, batches, asked.slo))
        say(probes[-1], search)
    found = search.result()
    scenario = f"{prepared.plan.scenario.scenario}-slo"
    answer = Answer(
        scenario, over, str(asked.slo), found, power_knee(found.curve), capacity(found.curve), probes,
        workspace.reports / scenario / "slo.json",
    )  # fmt: skip
    answer.path.parent.mkdir(parents=True, exist_ok=True)
    write_text(answer.path, json.dumps(answer.as_json(), indent=2) + "\n")
    return answer


def _what_to_vary(prepared: Prepared, asked: Asked) -> tuple[str, float]:
    if prepared.plan.points != 1:
        raise BenchError(
            f"a search needs a scenario with one point, and this one has {prepared.plan.points}",
            "give every axis a single value; the load itself is varied by the search",
        )
    if prepared.plan.code is None:
        raise BenchError(prepared.notes[0], "install a package that offers it; see: bench list experiments")
    fields = prepared.plan.code.workload_model.model_fields
    if not {*LOADS, "slo", "requests", "duration"} <= set(fields):
        raise BenchError(
            f"{prepared.plan.experiment.name} is no load experiment: it has no rps, concurrency and slo to vary",
            "use one that has, such as serving.load",
        )
    said = next(iter(prepared.plan.instances())).parameters
    over = asked.over or ("concurrency" if said.get("concurrency") else "rps")
    first = asked.first or said.get(over) or (1 if over == "concurrency" else 10)
    return over, float(first)


def _run(
    workspace: Workspace,
    prepared: Prepared,
    path: Path,
    over: str,
    probe: Probe,
    slo: Slo,
    note: Callable[[str], None],
) -> tuple[TrialFolder, str]:
    """Run one probe as a run of its own; one whose load was not delivered is run again."""
    text = _probe_text(prepared, over, probe, slo)
    for number in range(1, _TRIES + 1):
        probed = prepare_text(workspace, text, str(path), path.parent, Where())
        ledger = records.create_run(workspace, probed, path)
        execution.carry_out(workspace, ledger, probed)
        run_id = ledger.folder.run_id
        (place,) = trial_folders(workspace, run_id)
        folder = TrialFolder(place)
        meta = json.loads(folder.meta.read_text(encoding="utf-8"))
        if meta["outcome"] == "succeeded":
            return folder, run_id
        if meta["outcome"] != "invalid":
            raise BenchError(
                f"the probe at {probe.load:g} {over} {meta['outcome']}: {_why(meta)}",
                f"look at {place}",
                Exit.TRIAL_FAILED,
            )
        if number < _TRIES:
            note(f"INVALID ({_why(meta)}): once more, {number} of {_TRIES - 1} ...")
    raise BenchError(
        f"at {probe.load:g} {over} the load could not be delivered, {_TRIES} times: {_why(meta)}",
        f"free a core for the client, give it more processes, or stay below: bench slo find --to {probe.load / 2:g}",
        Exit.TRIAL_FAILED,
    )


def _offered(probe: Probe, over: str, search: Search) -> str:
    """What a probe is about to do, and how long that takes where it can be known."""
    if over == "rps":
        return f"{probe.load:.4g} requests/s, {probe.requests:,} requests, about {probe.requests / probe.load:.0f} s"
    rate = max((point.delivered for point in search.result().curve), default=0.0)
    about = f", about {probe.requests / rate:.0f} s" if rate else ""
    return f"{probe.load:.4g} in flight, {probe.requests:,} requests{about}"


def _probe_text(prepared: Prepared, over: str, probe: Probe, slo: Slo) -> str:
    """The scenario with this load, so many requests and one repetition."""
    document: dict[str, Any] = yaml.safe_load(prepared.file.document.text)
    workload = {key: value for key, value in document.get("workload", {}).items() if key not in (*LOADS, "duration")}
    load = int(probe.load) if over == "concurrency" else probe.load
    document["workload"] = workload | {over: load, "requests": probe.requests, "slo": str(slo)}
    document |= {"scenario": f"{document['scenario']}-slo", "repetitions": 1, "warmup": 0}
    return dump_yaml(document)


def _batches(folder: TrialFolder, slo: Slo) -> list[Batch]:
    with (folder.artifacts / "intervals.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    names = [f"over:{clause}" for clause in slo.clauses]
    return [Batch(int(row["due"]), tuple(int(row[name]) for name in names)) for row in rows if int(row["due"])]


def _mean_latency_s(folder: TrialFolder) -> float | None:
    rows = json.loads(folder.metrics.read_text(encoding="utf-8"))["benchhouse"]["measurements"]
    means = [row["value"] for row in rows if row["role"] == "latency" and row["stat"] == "mean" and row["unit"] == "ms"]
    return means[0] / 1000 if means else None


def _probed(run_id: str, load: float, batches: list[Batch], slo: Slo) -> Probed:
    n = sum(batch.n for batch in batches)
    shares = tuple(sum(batch.over[at] for batch in batches) / n for at in range(len(slo.clauses)))
    return Probed(run_id, load, n, shares, all(a <= c.share for a, c in zip(shares, slo.clauses, strict=True)))


def _why(meta: dict[str, Any]) -> str:
    failure = meta.get("failure") or {}
    return f"{failure.get('code', '?')}: {failure.get('message', '')}"


def read_slo(text: str) -> Slo:
    return parse_slo(text, path="--slo")
