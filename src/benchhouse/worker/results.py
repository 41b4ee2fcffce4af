"""Converts emitted values to measurements, and measurements to metrics.json."""

import math
import traceback
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import Any

from pydantic import BaseModel

from benchhouse.analysis.summary import HISTOGRAM_QUANTILE, shaky_quantiles, summarise, summarise_histogram
from benchhouse.schema.experiment import Metric
from benchhouse.schema.measurement import (
    ErrorCounts,
    Extras,
    LatencyMs,
    Measurement,
    MetricsFile,
    ResourceUse,
    Throughput,
    common_unit,
)
from benchhouse.schema.telemetry import STEADY, TelemetrySummary
from benchhouse.schema.trial import MEASURED, Failure, Meta, TrialSpec, TrialWarning
from benchhouse.worker.context import MetricWindow
from benchhouse.worker.monitors.watch import steady_resources

_TO_MS = {"s": 1e3, "ms": 1.0, "us": 1e-3, "µs": 1e-3, "ns": 1e-6}
_SHARES = ("gpu_util", "cpu_util", "error_rate")
_TEXT_CHARACTERS = 100_000
_OURS = ("benchhouse.worker.", "benchhouse.schema.", "benchhouse.catalog.")


def plain_text(text: str) -> str:
    """Return text that every file here can hold: limited in length, without half characters (as in some file names)."""
    if len(text) > _TEXT_CHARACTERS:
        half = _TEXT_CHARACTERS // 2
        text = f"{text[:half]}\n[... {len(text) - 2 * half} characters not kept ...]\n{text[-half:]}"
    return text.encode("utf-8", "backslashreplace").decode()


class Handover(BaseModel):
    """The result that the experiment's process hands to its supervisor."""

    finished: bool = False
    failure: Failure | None = None
    out_of_memory: bool = False
    oom_kills_overcome: int = 0
    measurements: list[Measurement] = []
    custom: dict[str, Any] = {}
    warnings: list[TrialWarning] = []
    invalid: Failure | None = None
    quantile_definitions: dict[str, str] = {}
    primary: list[str] = []
    phases: list[tuple[str, int, int]] = []
    per_energy: list[tuple[Metric, float]] = []  # each with the amount that divides the energy

    def fail(self, code: str, message: str, *, retryable: bool = False) -> None:
        """Record that the experiment reported its own failure."""
        self.finished = False
        self.failure = Failure(code=plain_text(code), message=plain_text(message), retryable=retryable)

    def crash(self, error: BaseException) -> None:
        """Record an exception; call this in its handler, so that the traceback is available."""
        self.finished = False
        try:
            message = str(error)
        except Exception:  # noqa: BLE001 - a stranger's __str__ may raise anything
            message = "(its message can't be shown)"
        trace = plain_text("".join(traceback.format_exception(type(error), error, _strangers(error.__traceback__))))
        self.failure = Failure(code=type(error).__name__, message=plain_text(message), traceback=trace)
        self.out_of_memory = isinstance(error, MemoryError)

    def take(
        self,
        measurements: list[Measurement],
        custom: dict[str, Any],
        warnings: Iterable[tuple[str, str]],
        invalidities: Sequence[tuple[str, str]] = (),
    ) -> None:
        """Record what the experiment reported; if it failed, reasons against its numbers become warnings."""
        self.measurements, self.custom, self.warnings = measurements, custom, _warnings(warnings)
        if self.finished and not measurements:
            self.fail("no_metrics", "the experiment emitted no value, so it measured nothing")
        reasons = _warnings(invalidities)
        if not self.finished:
            self.warnings += reasons
        elif reasons:
            first, *others = reasons
            messages = [first.message, *(f"{reason.code}: {reason.message}" for reason in others)]
            self.invalid = Failure(code=first.code, message=plain_text("; ".join(messages)))

    def energy_metrics(self, telemetry: TelemetrySummary | None, unreadable_reason: Callable[[], str]) -> None:
        """Add the metrics that are the energy of the steady phase divided by an amount; if some of it was not read, add
        none and record the reason."""
        if not self.per_energy:
            return
        joules = [phase.energy_j for phase in telemetry.phases if phase.name == STEADY] if telemetry else []
        known = [energy for energy in joules if energy is not None]
        if not joules or len(known) < len(joules):
            self.custom |= {"energy_of": [], "no_energy": unreadable_reason()}
            return
        self.custom["energy_of"] = telemetry.energy_of if telemetry else []
        self.measurements += [
            Measurement(
                metric=metric.name, stat="value", value=math.fsum(known) / amount, n=1, unit=metric.unit,
                direction=metric.direction, role=metric.role,
            )
            for metric, amount in self.per_energy
        ]  # fmt: skip


def _warnings(pairs: Iterable[tuple[str, str]]) -> list[TrialWarning]:
    return [TrialWarning(code=plain_text(code), message=plain_text(text)) for code, text in pairs]


def _strangers(trace: TracebackType | None) -> TracebackType | None:
    """Return the traceback from where the experiment's own code starts; whole if it never got there."""
    at = trace
    while at is not None and at.tb_frame.f_globals.get("__name__", "").startswith(_OURS):
        at = at.tb_next
    return at or trace


def measure(series: Iterable[MetricWindow]) -> list[Measurement]:
    """Convert to measurements: a single value stays as it is; several become a distribution, and a latency always
    does."""
    rows: list[Measurement] = []
    for item in series:
        metric, values = item.metric, item.values
        common: dict[str, Any] = {
            "metric": metric.name, "unit": metric.unit, "direction": metric.direction, "role": metric.role,
            "window": item.window,
        }  # fmt: skip
        if len(values) == 1 and metric.role != "latency":
            stats, n = {"value": values[0]}, 1
        else:
            counted = item.histogram
            summary = summarise(values) if counted is None else summarise_histogram(counted, metric.unit)
            stats, n = summary.stats(), summary.n
        rows += [
            Measurement(
                stat=stat, value=value, n=n, error_bound=item.errors.get(stat), valid=stat not in item.beyond, **common
            )
            for stat, value in stats.items()
        ]
    return rows


def definitions(series: Iterable[MetricWindow]) -> dict[str, str]:
    """Return the definition of the percentiles of metrics that were counted in a histogram."""
    return {item.metric.name: HISTOGRAM_QUANTILE for item in series if item.histogram is not None}


def metrics_file(
    spec: TrialSpec, meta: Meta, handover: Handover, telemetry: TelemetrySummary | None = None, cores: float = 1.0
) -> MetricsFile:
    """Return metrics.json in the common schema; a field without a measurement is null.

    `cores` is the number of cores allocated to the trial.
    """
    measurements = handover.measurements
    by_role = {(row.role, row.stat): row for row in measurements if row.role and row.valid and not row.window}

    def role(name: Any, *stats: str) -> Measurement | None:
        return next((by_role[name, stat] for stat in stats if (name, stat) in by_role), None)

    def value(name: Any, otherwise: float | None, *stats: str) -> float | None:
        row = role(name, "value", "mean", *stats)
        return row.value if row else otherwise

    throughput, sampled = role("throughput", "value", "mean"), role("latency", "p50")
    latency = {stat: _milliseconds(by_role.get(("latency", stat))) for stat in ("p50", "p90", "p99")}
    notes = [f"{warning.code}: {warning.message}" for warning in meta.warnings]
    if meta.outcome == "invalid" and meta.failure:
        notes.insert(0, f"INVALID: {meta.failure.code}: {meta.failure.message}")
    if sampled and (shaky := shaky_quantiles(sampled.n)):
        notes.append(f"too few samples for {', '.join(shaky)} of {sampled.metric}: n={sampled.n}")
    cpu_s, peak = meta.usage.get("cpu_s"), meta.usage.get("peak_memory_bytes")
    used = {"cpu_util": cpu_s / meta.duration_s} if cpu_s and meta.duration_s else {}
    used |= {"ram_mb": peak / 1e6} if peak else {}
    used |= steady_resources(telemetry)
    if "cpu_util" in used:  # sampling may be off by a moment: never more than all
        used["cpu_util"] = min(used["cpu_util"] / cores, 1.0)
    resources = ("gpu_util", "gpu_mem_mb", "cpu_util", "ram_mb")
    shown = {name: value(name, used.get(name), "max") for name in resources}
    shown |= {f"latency_ms.{stat}": item for stat, item in latency.items()}
    shown["error_rate"] = value("error_rate", None if meta.outcome in MEASURED else 1.0)
    shown["timeouts"] = value("timeouts", float(meta.outcome == "timeout"))
    for name, number in shown.items():  # an experiment's own metric may be a percentage
        if number is not None and not 0 <= number <= (1 if name in _SHARES else math.inf):
            notes.append(f"{name} {number:g} is not what the common schema means by it: left out")
            shown[name] = None
    return MetricsFile(
        trial_id=spec.trial_id,
        timestamp=meta.timestamp,
        component=spec.component,
        service=spec.service,
        config={
            "batch": None,
            "concurrency": None,
            **{key: value for key, value in spec.parameters.items() if not isinstance(value, dict | list)},
            "gpus": spec.resources.gpus,  # overrides parameters of a workload with this name
            "nodes": spec.resources.nodes,
        },
        throughput=Throughput(value=throughput.value, unit=common_unit(throughput.unit))
        if throughput
        else Throughput(value=None, unit=None),
        latency_ms=LatencyMs(**{stat: shown[f"latency_ms.{stat}"] for stat in latency}),
        resource=ResourceUse(**{name: shown[name] for name in resources}),
        errors=ErrorCounts(rate=shown["error_rate"], timeouts=round(shown["timeouts"] or 0)),
        notes="; ".join(notes),
        benchhouse=Extras(
            run_id=spec.run_id,
            instance_digest=spec.instance_digest,
            repetition=spec.repetition,
            warmup=spec.warmup,
            outcome=meta.outcome,
            experiment=spec.experiment.name,
            version=spec.experiment.version,
            quantile_definitions=handover.quantile_definitions,
            primary=handover.primary,
            warnings=notes,
            measurements=measurements,
        ),
    )


def _milliseconds(row: Measurement | None) -> float | None:
    return row.value * _TO_MS[row.unit] if row and row.unit in _TO_MS else None
