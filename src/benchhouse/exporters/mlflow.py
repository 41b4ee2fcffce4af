"""MLflow: an MLflow run per point, written by the client library to a tracking store."""

import json
import os
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchhouse.schema.errors import BenchError
from benchhouse.schema.exported import ExportedPoint, ExportedRun, ExportedStatistic, Names, Sent, StoreExporter
from benchhouse.schema.secrets import blanker, user_and_password, without_secrets

if TYPE_CHECKING:
    from mlflow import MlflowClient

_LONGEST_NAME, _LONGEST_VALUE = 250, 6000
_METRICS_AT_ONCE, _OTHERS_AT_ONCE = 800, 100
_RUN, _POINT = "benchhouse.run_id", "benchhouse.instance"
"""Tags that identify a point that was already exported."""


def send(run: ExportedRun, where: str) -> Sent:
    """Send the points. A FINISHED run of a point is left unchanged; one that an interrupted export left is replaced."""
    try:
        from mlflow import MlflowClient, MlflowException
    except ImportError as error:
        raise BenchError("the MLflow client is not installed", "pip install 'benchhouse[mlflow]'") from error
    store = where or os.environ.get("MLFLOW_TRACKING_URI", "")
    if not store:
        raise BenchError("no MLflow store is named", "give it: -o sqlite:///mlflow.db, or -o http://HOST:5000")
    shown, known = without_secrets(store), 0
    try:
        client = MlflowClient(tracking_uri=store)
        experiment = client.get_experiment_by_name(run.scenario)
        place = experiment.experiment_id if experiment else client.create_experiment(run.scenario)
        for point in run.points:
            if _is_there(client, place, run, point):
                known += 1
            else:
                _write(client, place, run, point)
    except MlflowException as error:
        password = user_and_password(store)[2]
        text = blanker([password] if password else [])(str(error)).partition("\n")[0]
        raise BenchError(f"MLflow at {shown}: {text[:300]}", "is that a store, and may you write there?") from error
    lost = tuple(line for point in run.points for line in point.lost_files)
    return Sent(shown, len(run.points) - known, known, lost)


def _is_there(client: "MlflowClient", place: str, run: ExportedRun, point: ExportedPoint) -> bool:
    wanted = f"tags.`{_RUN}` = '{run.run_id}' and tags.`{_POINT}` = '{point.instance_digest}'"
    there = client.search_runs([place], filter_string=wanted)
    for item in there:
        if item.info.status != "FINISHED":
            client.delete_run(item.info.run_id)
    return any(item.info.status == "FINISHED" for item in there)


def _write(client: "MlflowClient", place: str, run: ExportedRun, point: ExportedPoint) -> None:
    """Write a point. FINISHED is set last, so that an interrupted export is recognized."""
    from mlflow.entities import Metric, Param, RunTag

    started, ended = (int(time.timestamp() * 1000) for time in (point.started, point.ended))
    made = client.create_run(place, start_time=started, run_name=point.name,
                             tags={_RUN: run.run_id, _POINT: point.instance_digest})  # fmt: skip
    to = made.info.run_id
    params = [Param(name, value) for name, value in _params(point).items()]
    tags = [RunTag(name, value[:_LONGEST_VALUE]) for name, value in _tags(run, point).items()]
    metrics = [Metric(name, value, ended, step) for name, value, step in _metrics(point)]
    for some in _parts(params, _OTHERS_AT_ONCE):
        client.log_batch(to, params=some)
    for some in _parts(tags, _OTHERS_AT_ONCE):
        client.log_batch(to, tags=some)
    for some in _parts(metrics, _METRICS_AT_ONCE):
        client.log_batch(to, metrics=some)
    for name, path in point.files.items():
        client.log_artifact(to, str(path), f"evidence/{name.rpartition('/')[0]}")
    with tempfile.TemporaryDirectory(prefix="bench-export-") as folder:
        figures = Path(folder) / "figures.json"
        figures.write_text(json.dumps([_described(figure) for figure in point.figures], indent=1), encoding="utf-8")
        client.log_artifact(to, str(figures))
    client.set_terminated(to, "FINISHED", ended)


def _parts(items: Sequence[Any], size: int) -> Iterator[list[Any]]:
    rest = iter(items)
    while some := list(islice(rest, size)):
        yield some


def _allowed(name: str) -> str:
    return re.sub(r"[^\w.\- ]", "_", name, flags=re.ASCII)


def _params(point: ExportedPoint) -> dict[str, str]:
    plain = dict(_leaves({"target": point.target, **point.parameters}))
    names = Names.of(plain, _allowed, _LONGEST_NAME)
    return {names[name]: value[:_LONGEST_VALUE] for name, value in plain.items()}


def _leaves(values: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, str]]:
    for name, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from _leaves(value, f"{before}{name}.")
        else:
            yield f"{before}{name}", value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _tags(run: ExportedRun, point: ExportedPoint) -> dict[str, str]:
    units = {figure.metric: _unit(figure) for figure in point.figures}
    names = Names.of(units, _allowed, _LONGEST_NAME - 5)
    trials = dict.fromkeys(trial for figure in point.figures for trial in figure.trials)
    return {
        "benchhouse.experiment": f"{run.experiment} {run.experiment_version}",
        "benchhouse.executor": run.executor,
        "benchhouse.version": run.benchhouse,
        "benchhouse.case": point.benchmark_case_id,
        "benchhouse.trials": ", ".join(trials),
        "benchhouse.trace": f"bench trace {run.run_id}:instance={point.instance_digest}:METRIC.STAT",
        "mlflow.source.name": f"benchhouse {run.scenario}",
        **({"mlflow.source.git.commit": run.git_commit} if run.git_commit else {}),
        **{f"unit.{names[metric]}": unit for metric, unit in units.items()},
    }


def _unit(figure: ExportedStatistic) -> str:
    return f"{figure.unit}; {figure.direction} is better" if figure.direction else figure.unit


def _metrics(point: ExportedPoint) -> Iterator[tuple[str, float, int]]:
    """Yield the mean under the plain name, then its count, spread, and interval, and the trials as steps."""
    names = Names.of((figure.name for figure in point.figures), _allowed, _LONGEST_NAME - 10)
    for figure in point.figures:
        name = names[figure.name]
        yield name, figure.mean, 0
        yield f"{name}/n", float(figure.n), 0
        if figure.stdev is not None:
            yield f"{name}/stdev", figure.stdev, 0
        if figure.interval:
            yield f"{name}/ci_low", figure.interval[0], 0
            yield f"{name}/ci_high", figure.interval[1], 0
        for step, value in enumerate(figure.values):
            yield f"{name}/trial", value, step


def _described(figure: ExportedStatistic) -> dict[str, Any]:
    return {
        "metric": figure.metric, "stat": figure.stat, "unit": figure.unit, "direction": figure.direction,
        "mean": figure.mean, "stdev": figure.stdev, "interval": figure.interval, "n": figure.n,
        "values": figure.values, "trials": figure.trials, "few_samples": figure.shaky,
        "trace": f"bench trace {figure.ref}",
    }  # fmt: skip


MLFLOW = StoreExporter("MLflow: a run for each point, into a tracking store or server", send)
