"""The experiment's own process: load the code, run it, hand the result to the supervisor as a file."""

import csv
import io
import math
import os
import sys
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchhouse.catalog.loading import load
from benchhouse.evidence.data_cache import DataCache
from benchhouse.schema.artifacts import StagedDataset
from benchhouse.schema.container import ENTERED
from benchhouse.schema.csv_text import csv_cells
from benchhouse.schema.experiment import Experiment, ExperimentFailed
from benchhouse.schema.histogram import RELATIVE_ERROR
from benchhouse.schema.layout import TrialFolder
from benchhouse.schema.measurement import HistogramEntry, HistogramsFile
from benchhouse.schema.secrets import resolve
from benchhouse.schema.service import with_endpoints
from benchhouse.schema.trial import ExperimentRef, TrialSpec
from benchhouse.worker.context import TrialContext
from benchhouse.worker.results import Handover, definitions, measure, plain_text
from benchhouse.worker.server_logs import ServiceLogWriter
from benchhouse.worker.service_watch import ServerDiedError

if TYPE_CHECKING:
    from array import array
    from collections.abc import Iterator

    from benchhouse.schema.recipe import Recipe
    from benchhouse.worker.trial_services import TrialServices

_DEPTH = 20
_MANY = 200_000  # values; for fewer, importing pyarrow takes longer than it saves
_PIECE = 50_000


def run_experiment(spec: TrialSpec, folder: TrialFolder, workdir: Path, result: Path, logs: ServiceLogWriter) -> None:
    """Run one experiment and write `result`; all of its exceptions are recorded there, never swallowed."""
    handover = Handover()
    ctx: TrialContext | None = None
    try:
        os.environ.update(resolve(dict(spec.environment), os.environ))
        experiment = _load(spec.experiment)
        ctx = TrialContext(
            experiment=experiment,
            trial_id=spec.trial_id,
            repetition=spec.repetition,
            seed=spec.seed,
            workdir=workdir,
            artifacts_folder=folder.artifacts,
            cache=DataCache(Path(spec.cache), experiment.name, experiment.data),
            make_services=lambda: _services(spec, folder, workdir, result, logs),
            version_of=lambda recipe, program: _version(recipe, program, spec),
            image_pins=spec.image_pins,
            cpus=spec.resources.cpus,
        )
        if experiment.deprecated:
            instead = f"; use {experiment.deprecated.replaced_by}" if experiment.deprecated.replaced_by else ""
            ctx.warn("deprecated", f"{experiment.name} {experiment.version}: {experiment.deprecated.reason}{instead}")
        endpoints = resolve(ctx.start_services(spec.services), os.environ)
        for name, addresses in endpoints.items():
            os.environ[f"BENCH_SERVICE_{name.upper().replace('-', '_').replace('.', '_')}"] = ",".join(addresses)
        target = resolve(with_endpoints(spec.target, endpoints), os.environ)
        parameters = resolve(with_endpoints(spec.parameters, endpoints), os.environ)
        if spec.dataset:
            parameters = _with_dataset(parameters, spec.dataset)
        ctx.accept(experiment.call(target, parameters, ctx, spec.folder))
        handover.finished = True
    except ExperimentFailed as failure:
        message = failure.message
        if spec.dataset:  # the user has that file, not our copy
            message = message.replace(spec.dataset.path, spec.dataset.name)
        handover.fail(failure.code, message, retryable=failure.retryable)
    except ServerDiedError as news:
        handover.fail("server_died", str(news))
    except BaseException as error:  # noqa: BLE001 - KeyboardInterrupt and SystemExit of a stranger's code too
        handover.crash(error)
    if ctx is not None:
        if (died := ctx.end_services()) and not (handover.failure and handover.failure.traceback):
            handover.fail("server_died", died)
        try:
            handover.take(measure(ctx.in_order()), jsonable(ctx.facts), ctx.warnings, ctx.invalidities)
            handover.quantile_definitions = definitions(ctx.in_order())
            handover.primary = [metric.name for metric in experiment.metrics if metric.primary]
            handover.phases = ctx.phases
            handover.per_energy = ctx.per_energy
            handover.oom_kills_overcome = ctx.oom_kills_overcome
            _write_samples(ctx, folder.samples)
            _write_histograms(ctx, folder.histograms)
        except Exception as error:  # noqa: BLE001 - values whose sum overflows, a full disk
            handover.crash(error)
    result.write_text(handover.model_dump_json(), encoding="utf-8")  # if a kill truncates it, it counts as missing
    sys.stdout.flush()
    sys.stderr.flush()


def _with_dataset(parameters: dict[str, Any], dataset: StagedDataset) -> dict[str, Any]:
    """Return the parameters with the path of our copy in the input that takes the dataset."""
    head, _, rest = dataset.input.partition(".")
    if not rest:
        return parameters | {head: dataset.path}
    inner = dataset.model_copy(update={"input": rest})
    return parameters | {head: _with_dataset(parameters[head], inner)}


@lru_cache(maxsize=1)
def _load(ref: ExperimentRef) -> Experiment:
    """Load the experiment once for all trials of a process."""
    try:
        return load(ref)
    except ModuleNotFoundError as error:
        if ENTERED not in os.environ or error.name != ref.object.partition(":")[0].partition(".")[0]:
            raise
        raise ExperimentFailed(
            "not_in_image",
            f"the image has no package '{ref.distribution}', which holds {ref.name}: install it in the image",
        ) from error


def _version(recipe: "Recipe", program: str | None, spec: TrialSpec) -> str:
    from benchhouse.worker.server_versions import cached_version

    return cached_version(recipe, program, Path(spec.cache))


def _services(
    spec: TrialSpec, folder: TrialFolder, workdir: Path, result: Path, logs: ServiceLogWriter
) -> "TrialServices":
    from benchhouse.worker.trial_services import TrialServices

    def give_up(reason: str) -> None:
        """Record the death of a server, and end: the experiment is stuck in a call that waits for it."""
        handover = Handover()
        handover.fail("server_died", reason)
        result.write_text(handover.model_dump_json(), encoding="utf-8")
        # called in a thread of a forked process: nothing else ends one whose main thread is stuck in C code
        os._exit(0)

    where = workdir.with_name("services")
    return TrialServices(where, folder, logs, give_up, spec.images, spec.resources.cpus, spec.interface)


def _write_samples(ctx: TrialContext, path: Path) -> None:
    """Write every value as it was emitted, so that percentiles can be verified."""
    distributions = [series for series in ctx.series.values() if len(series.values) > 1]
    if not distributions:
        return
    as_text = _by_arrow if sum(len(series.values) for series in distributions) > _MANY else partial(map, repr)
    with path.open("w", newline="", encoding="utf-8") as file:
        file.write("metric,window,index,value,unit\n")
        for series in distributions:
            head, unit = _csv_line(series.metric.name, series.window), _csv_line(series.metric.unit)
            texts = enumerate(as_text(series.values))
            file.writelines(f"{head},{index},{text},{unit}\n" for index, text in texts)


def _csv_line(*cells: str) -> str:
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(csv_cells(cells))
    return line.getvalue()


def _by_arrow(values: "array[float]") -> "Iterator[str]":
    """Format each value in the shortest exact form, in a quarter of Python's time."""
    import pyarrow as pa

    numbers = pa.Array.from_buffers(pa.float64(), len(values), [None, pa.py_buffer(values)])
    for start in range(0, len(values), _PIECE):
        yield from numbers[start : start + _PIECE].cast(pa.string()).to_pylist()


def _write_histograms(ctx: TrialContext, path: Path) -> None:
    """Write the histograms of values that were only counted; every percentile can be computed again from them."""
    entries = [
        HistogramEntry(
            metric=series.metric.name,
            window=series.window,
            unit=series.metric.unit,
            relative_error=RELATIVE_ERROR,
            nanoseconds=series.histogram.to_json(),
        )
        for series in ctx.series.values()
        if series.histogram is not None
    ]
    if entries:
        path.write_text(HistogramsFile(histograms=entries).model_dump_json() + "\n", encoding="utf-8")


def jsonable(value: Any, depth: int = 0) -> Any:
    """Convert metadata to JSON; unsupported or too deeply nested values become text."""
    if isinstance(value, str):
        return plain_text(value)
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if depth < _DEPTH and isinstance(value, dict):
        return {plain_text(str(key)): jsonable(item, depth + 1) for key, item in value.items()}
    if depth < _DEPTH and isinstance(value, list | tuple | set | frozenset):
        return [jsonable(item, depth + 1) for item in value]
    if depth < _DEPTH and hasattr(value, "item") and getattr(value, "size", 1) == 1:
        return jsonable(value.item(), depth + 1)
    return plain_text(str(value))
