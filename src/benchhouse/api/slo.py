"""Find the highest load that meets an SLO. Each probe is a run of the scenario, chosen by the results so far."""

import csv
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchhouse.analysis.saturation import RequestBatch, capacity, peak_power_load
from benchhouse.analysis.slo_search import KneeEstimate, LoadProbe, LoadRange, Search
from benchhouse.api import execution
from benchhouse.documents.yaml_writer import dump_yaml
from benchhouse.evidence.writing import write_text
from benchhouse.load.shape import ERROR_LIMIT_S, MOST
from benchhouse.load.slo import Slo, parse_slo
from benchhouse.runs import records
from benchhouse.runs.execution import trial_folders
from benchhouse.runs.preparation import Where, prepare, prepare_text
from benchhouse.runs.prepared_run import PreparedRun
from benchhouse.schema.errors import BenchError, Exit
from benchhouse.schema.json_text import finite
from benchhouse.schema.layout import TrialFolder, WorkspaceFolder
from benchhouse.schema.quantities import parse_seconds

LOADS = ("rps", "concurrency")
_TRIES = 3  # for a probe whose trial is invalid
# Failure codes of trials that are invalid because the client could not offer the load.
_NOT_DELIVERED = ("client_saturated", "concurrency_not_reached", "not_delivered", "arrivals_bent")


@dataclass(frozen=True)
class SearchRequest:
    """The objective of a search, and the effort to spend on it."""

    slo: Slo
    over: str | None = None  # what is varied; by default what the scenario sets
    first: float | None = None
    highest: float | None = None
    requests: int = 500_000
    precision: float = 0.03
    confidence: float = 0.95


@dataclass(frozen=True)
class ProbeRun:
    """One probe: the run that holds its evidence, and its result."""

    run_id: str
    load: float
    requests: int
    over: tuple[float, ...]  # share of the requests over the limit, by clause
    holds: bool


@dataclass(frozen=True)
class UndeliveredProbe:
    """One probe whose load the client could not offer, and why."""

    run_id: str
    load: float
    reason: str


@dataclass(frozen=True)
class SloSearchResult:
    """The result of a search."""

    scenario: str
    over: str
    slo: str
    found: KneeEstimate
    peak_power_load: float | None  # the load with the most throughput for its latency, whether or not it meets the SLO
    capacity: float
    probes: list[ProbeRun]
    path: Path
    undelivered: list[UndeliveredProbe]  # probes whose load the client could not offer
    error_limit: float | None  # in seconds; only set if the scenario accepts times with larger errors than usual

    def as_json(self) -> dict[str, Any]:
        """Return plain data, as `bench slo find --json` prints it."""
        return asdict(self) | {"path": str(self.path)}


def find(
    workspace: WorkspaceFolder,
    path: Path,
    request: SearchRequest,
    each: Callable[[ProbeRun, Search], None],
    note: Callable[[str], None],
) -> SloSearchResult:
    """Search for the load. `each` is called with every probe that counts, `note` with the progress in between.

    A load that the client can't deliver bounds the search from above. Raises BenchError if the scenario has more than
    one point or no load to vary, or if not even the lowest load can be delivered.
    """
    prepared = prepare(workspace, path)
    over, first = _find_load_axis(prepared, request)
    highest = MOST[over] if request.highest is None else min(request.highest, MOST[over])
    search = Search(
        [clause.share for clause in request.slo.clauses],
        first,
        loads=LoadRange(highest=highest, whole=over == "concurrency"),
        requests=request.requests,
        precision=request.precision,
        confidence=request.confidence,
    )
    prober = _Prober(workspace, prepared, path, over, request.slo, note)
    probes: list[ProbeRun] = []
    undelivered: list[UndeliveredProbe] = []
    while probe := search.next():
        note(f"probe {len(probes) + 1}: {_offered(probe, over, search)} ...")
        tries = 1 if undelivered and not probes else _TRIES
        run_id, folder, reason = prober.run(probe, tries)
        if reason:
            undelivered.append(UndeliveredProbe(run_id, probe.load, reason))
            if search.undelivered(probe.load):
                note(f"the client could not deliver {probe.load:.4g} ({reason}); the search goes on below")
                continue
            if probes:
                break
            raise _nothing_delivered(undelivered[-1], over)
        batches = _batches(folder, request.slo)
        search.tell(probe.load, batches, *_rate_and_latency(folder))
        probes.append(_probed(run_id, probe.load, batches, request.slo))
        each(probes[-1], search)
    result = search.result()
    scenario = f"{prepared.plan.scenario.scenario}-slo"
    answer = SloSearchResult(
        scenario, over, str(request.slo), result, peak_power_load(result.curve), capacity(result.curve), probes,
        workspace.reports / scenario / "slo.json", undelivered, _error_limit(prepared),
    )  # fmt: skip
    answer.path.parent.mkdir(parents=True, exist_ok=True)
    write_text(answer.path, json.dumps(finite(answer.as_json()), indent=2) + "\n")
    return answer


def _find_load_axis(prepared: PreparedRun, request: SearchRequest) -> tuple[str, float]:
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
    parameters = next(iter(prepared.plan.instances())).parameters
    over = request.over or ("concurrency" if parameters.get("concurrency") else "rps")
    first = request.first or parameters.get(over) or (1 if over == "concurrency" else 10)
    return over, float(first)


@dataclass(frozen=True)
class _Prober:
    """Runs the scenario at other loads."""

    workspace: WorkspaceFolder
    prepared: PreparedRun
    path: Path  # of the scenario
    over: str
    slo: Slo
    note: Callable[[str], None]

    def run(self, probe: LoadProbe, tries: int) -> tuple[str, TrialFolder, str]:
        """Return the last run of the probe, its trial, and why the load could not be delivered; empty if it was.

        Each try is a separate run.
        """
        text = _probe_text(self.prepared, self.over, probe, self.slo)
        for left in reversed(range(tries)):
            run_id, folder = self._run_once(text)
            meta = json.loads(folder.meta.read_text(encoding="utf-8"))
            why = _why(meta)
            if meta["outcome"] == "succeeded":
                why = _beyond_limits(folder, self.slo)
                if not why:
                    return run_id, folder, ""
            elif meta["outcome"] != "invalid" or (meta.get("failure") or {}).get("code") not in _NOT_DELIVERED:
                raise BenchError(
                    f"the probe at {probe.load:g} {self.over} {meta['outcome']}: {why}",
                    f"look at {folder.path}",
                    Exit.TRIAL_FAILED,
                )
            if left:
                self.note(f"INVALID ({why}): trying again, at most {left} more ...")
        return run_id, folder, why

    def _run_once(self, text: str) -> tuple[str, TrialFolder]:
        prepared = prepare_text(self.workspace, text, str(self.path), self.path.parent, Where())
        ledger = records.create_run(self.workspace, prepared, self.path)
        execution.carry_out(self.workspace, ledger, prepared)
        run_id = ledger.folder.run_id
        (place,) = trial_folders(self.workspace, run_id)
        return run_id, TrialFolder(place)


def _beyond_limits(folder: TrialFolder, slo: Slo) -> str:
    """Return which times of the objective have larger error bounds than accepted; empty if none has."""
    rows = json.loads(folder.metrics.read_bytes())["benchhouse"]["measurements"]
    limited = {(clause.metric, f"p{clause.quantile * 100:g}") for clause in slo.clauses if clause.quantile}
    off = [row for row in rows if not row.get("valid", True) and (row["metric"], row["stat"]) in limited]
    return ", ".join(
        f"{row['metric']}.{row['stat']} can be off by {row['error_bound']:.3g} {row['unit']}" for row in off
    )


def _nothing_delivered(probe: UndeliveredProbe, over: str) -> BenchError:
    return BenchError(
        f"the client could not deliver any load, not even {probe.load:.4g} {over}: {probe.reason}",
        "free a core for the client, give it more processes, or accept its lateness: workload: {error_limit: 20ms}",
        Exit.TRIAL_FAILED,
    )


def _error_limit(prepared: PreparedRun) -> float | None:
    limit = float(parse_seconds(next(iter(prepared.plan.instances())).parameters.get("error_limit", ERROR_LIMIT_S)))
    return limit if limit > ERROR_LIMIT_S else None


def _offered(probe: LoadProbe, over: str, search: Search) -> str:
    """Return a description of a probe that is about to start, with its duration if that can be estimated."""
    if over == "rps":
        return f"{probe.load:.4g} requests/s, {probe.requests:,} requests, about {probe.requests / probe.load:.0f} s"
    rate = max((point.delivered for point in search.result().curve), default=0.0)
    about = f", about {probe.requests / rate:.0f} s" if rate else ""
    return f"{probe.load:.4g} in flight, {probe.requests:,} requests{about}"


def _probe_text(prepared: PreparedRun, over: str, probe: LoadProbe, slo: Slo) -> str:
    """Return the scenario with the load and the number of requests of this probe, and one repetition."""
    document: dict[str, Any] = dict(prepared.file.document.data)
    workload = {key: value for key, value in document.get("workload", {}).items() if key not in (*LOADS, "duration")}
    load = int(probe.load) if over == "concurrency" else probe.load
    document["workload"] = workload | {over: load, "requests": probe.requests, "slo": str(slo)}
    document |= {"scenario": f"{document['scenario']}-slo", "repetitions": 1, "warmup": 0}
    return dump_yaml(document)


def _batches(folder: TrialFolder, slo: Slo) -> list[RequestBatch]:
    with (folder.artifacts / "intervals.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    names = [f"over:{clause}" for clause in slo.clauses]
    return [RequestBatch(int(row["due"]), tuple(int(row[name]) for name in names)) for row in rows if int(row["due"])]


def _rate_and_latency(folder: TrialFolder) -> tuple[float, float | None]:
    """Return the requests per second, and the mean latency in seconds, or None if it was not measured."""
    rows = json.loads(folder.metrics.read_text(encoding="utf-8"))["benchhouse"]["measurements"]
    rate = next(row["value"] for row in rows if row["metric"] == "requests_per_s")
    means = [row["value"] for row in rows if row["role"] == "latency" and row["stat"] == "mean" and row["unit"] == "ms"]
    return rate, means[0] / 1000 if means else None


def _probed(run_id: str, load: float, batches: list[RequestBatch], slo: Slo) -> ProbeRun:
    n = sum(batch.n for batch in batches)
    shares = tuple(sum(batch.over[at] for batch in batches) / n for at in range(len(slo.clauses)))
    return ProbeRun(run_id, load, n, shares, all(a <= c.share for a, c in zip(shares, slo.clauses, strict=True)))


def _why(meta: dict[str, Any]) -> str:
    failure = meta.get("failure") or {}
    return f"{failure.get('code', '?')}: {failure.get('message', '')}"


def read_slo(text: str) -> Slo:
    return parse_slo(text, path="--slo")
