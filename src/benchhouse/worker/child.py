"""The experiment's own process: load the code, run it, hand the result to the supervisor as a file."""

import csv
import json
import os
import sys
import traceback
from pathlib import Path
from typing import Any

from benchhouse.catalog.loading import load
from benchhouse.evidence.folder import write_text
from benchhouse.schema.errors import BenchError
from benchhouse.schema.experiment import ExperimentFailed
from benchhouse.schema.layout import TrialFolder
from benchhouse.schema.secrets import resolve
from benchhouse.schema.trial import TrialSpec
from benchhouse.worker.cache import DataCache
from benchhouse.worker.context import TrialContext
from benchhouse.worker.results import Handover, measure


def run_experiment(spec: TrialSpec, folder: TrialFolder, workdir: Path, result: Path) -> None:
    """Run one experiment and write `result`; whatever it raises is recorded there, never swallowed."""
    os.environ.update(resolve(dict(spec.environment), os.environ))
    handover = Handover()
    ctx: TrialContext | None = None
    try:
        experiment = load(spec.experiment)
        ctx = TrialContext(
            experiment=experiment,
            trial_id=spec.trial_id,
            repetition=spec.repetition,
            seed=spec.seed,
            workdir=workdir,
            artifacts=folder.artifacts,
            cache=DataCache(Path(spec.cache), experiment.name, experiment.data),
        )
        if experiment.deprecated:
            instead = f"; use {experiment.deprecated.replaced_by}" if experiment.deprecated.replaced_by else ""
            ctx.warn("deprecated", f"{experiment.name} {experiment.version}: {experiment.deprecated.reason}{instead}")
        target, parameters = resolve(spec.target, os.environ), resolve(spec.parameters, os.environ)
        ctx.accept(experiment.call(target, parameters, ctx))
        handover.finished = True
    except ExperimentFailed as failure:
        handover.fail(failure.code, failure.message, retryable=failure.retryable, trace="")
    except MemoryError as error:
        handover.fail("MemoryError", str(error) or "out of memory", trace=traceback.format_exc(), memory=True)
    except BenchError as error:
        handover.fail(type(error).__name__, str(error), trace=traceback.format_exc())
    except BaseException as error:  # noqa: BLE001 - KeyboardInterrupt and SystemExit of a stranger's code too
        handover.fail(type(error).__name__, str(error), trace=traceback.format_exc())
    if ctx is not None:
        handover.take(measure(ctx.series.values()), _jsonable(ctx.facts), ctx.warnings)
        _write_samples(ctx, folder.samples)
    write_text(result, handover.model_dump_json())
    sys.stdout.flush()
    sys.stderr.flush()


def _write_samples(ctx: TrialContext, path: Path) -> None:
    """Every value as it was emitted, for whoever doubts a percentile."""
    if not any(len(series.values) > 1 for series in ctx.series.values()):
        return
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("metric", "window", "index", "value", "unit"))
        for series in ctx.series.values():
            if len(series.values) > 1:
                name, window, unit = series.metric.name, series.window, series.metric.unit
                writer.writerows((name, window, index, value, unit) for index, value in enumerate(series.values))


def _jsonable(facts: dict[str, Any]) -> dict[str, Any]:
    """Custom metadata as JSON; what JSON does not know is kept as its text."""
    loaded: dict[str, Any] = json.loads(json.dumps(facts, default=_text, allow_nan=True).replace("NaN", "null"))
    return loaded


def _text(value: Any) -> Any:
    return value.item() if hasattr(value, "item") and getattr(value, "size", 1) == 1 else str(value)
