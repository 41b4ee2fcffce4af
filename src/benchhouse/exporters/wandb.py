"""Weights & Biases: a folder of offline runs, one per point, for `wandb sync`."""

import hashlib
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchhouse.schema.errors import BenchError
from benchhouse.schema.exported import ExportedPoint, ExportedRun, FolderExporter, Names

if TYPE_CHECKING:
    import wandb

_LONGEST_PROJECT, _LONGEST_NAME, _LONGEST_KEY = 128, 128, 200


def write(run: ExportedRun, folder: Path) -> list[str]:
    """Write with the library's offline mode, without the data that it would record about this machine and process."""
    try:
        import wandb
    except ImportError as error:
        raise BenchError("the wandb library is not installed", "pip install 'benchhouse[wandb]'") from error
    settings = wandb.Settings(
        mode="offline", root_dir=str(folder), console="off", disable_git=True, disable_code=True, save_code=False,
        disable_job_creation=True, silent=True, x_disable_meta=True, x_disable_stats=True, x_disable_machine_info=True,
    )  # fmt: skip
    try:
        for point in run.points:
            _write(run, point, settings)
    except wandb.Error as error:
        raise BenchError(f"wandb: {error}", "see what it says, and try again") from error
    finally:
        wandb.teardown()
    _leave_runs_alone(folder / "wandb")
    return []


def _leave_runs_alone(folder: Path) -> None:
    """Delete wandb's own logs, which name folders of this machine, and its links, which lead out of the folder."""
    for path in [*folder.iterdir(), *folder.glob("offline-run-*/logs")]:
        if path.is_symlink() or path.suffix == ".log":
            path.unlink()
        elif path.name == "logs":
            shutil.rmtree(path)


def _write(run: ExportedRun, point: ExportedPoint, settings: "wandb.Settings") -> None:
    """Write a point under an id that is the same in every export, so that sending it twice stores it once."""
    import wandb

    names = Names.of((figure.name for figure in point.figures), _allowed, _LONGEST_KEY)
    identity = hashlib.sha256(f"{run.run_id} {point.instance_digest}".encode()).hexdigest()[:16]
    with wandb.init(
        project=re.sub(r"[/\\#?%:]", "_", run.scenario)[:_LONGEST_PROJECT], group=run.run_id, job_type=run.experiment,
        name=point.name[:_LONGEST_NAME], id=identity, config=_config(run, point), settings=settings,
    ) as made:  # fmt: skip
        for step in range(max(figure.n for figure in point.figures)):
            values = {f"{names[item.name]}/trial": item.values[step] for item in point.figures if step < item.n}
            made.log(values, step=step)
        for figure in point.figures:
            name = names[figure.name]
            made.summary[name] = figure.mean
            made.summary[f"{name}/n"] = figure.n
            if figure.stdev is not None:
                made.summary[f"{name}/stdev"] = figure.stdev
            if figure.interval:
                made.summary[f"{name}/ci_low"], made.summary[f"{name}/ci_high"] = figure.interval


def _config(run: ExportedRun, point: ExportedPoint) -> dict[str, Any]:
    """Return the settings and, under `benchhouse`, the origin and units of the numbers."""
    figures = {
        figure.name: {
            "unit": figure.unit, "direction": figure.direction, "trials": list(figure.trials),
            "few_samples": figure.shaky, "trace": f"bench trace {figure.ref}",
        }
        for figure in point.figures
    }  # fmt: skip
    about = {
        "run_id": run.run_id, "instance": point.instance_digest, "case": point.benchmark_case_id,
        "experiment_version": run.experiment_version, "executor": run.executor, "git_commit": run.git_commit,
        "version": run.benchhouse, "started": point.started.isoformat(), "ended": point.ended.isoformat(),
        "figures": figures,
    }  # fmt: skip
    return {"target": dict(point.target), "parameters": dict(point.parameters), "benchhouse": about}


def _allowed(name: str) -> str:
    return re.sub(r"[^\w.\-]", "_", name, flags=re.ASCII)


WANDB = FolderExporter("Weights & Biases: offline runs, for wandb sync", write)
