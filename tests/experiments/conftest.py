"""A context that remembers everything, for calling experiments without a worker."""

import os
from collections import defaultdict
from collections.abc import Callable
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, NoReturn

import pytest

from benchhouse.schema.experiment import Experiment, ExperimentFailed
from benchhouse.schema.histogram import Histogram


class FolderCache:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.built: list[str] = []

    def fetch(self, name: str) -> Path:
        raise NotImplementedError(name)

    def build(self, key: str, make: Callable[[Path], None]) -> Path:
        path = self.folder / key
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            make(path)
            self.built.append(key)
        return path


class RecordingContext:
    def __init__(self, folder: Path, experiment: Experiment, seed: int = 0) -> None:
        self.seed, self.trial_id, self.repetition = seed, "trial", 1
        self.workdir, self.artifacts = folder / "work", folder / "artifacts"
        self.nodes = ["here"]
        self.oom_kills_overcome = 0
        self.workdir.mkdir()
        self.artifacts.mkdir()
        self.cache = FolderCache(folder / "cache")
        self.experiment = experiment
        self.values: dict[str, list[float]] = defaultdict(list)
        self.windows: dict[tuple[str, str], list[float]] = defaultdict(list)
        self.units: dict[str, str | None] = {}
        self.directions: dict[str, str | None] = {}
        self.facts: dict[str, Any] = {}
        self.warnings: dict[str, str] = {}
        self.invalidities: dict[str, str] = {}
        self.histograms: dict[str, Histogram] = {}
        self.errors: dict[str, dict[str, float]] = {}
        self.beyond: dict[str, set[str]] = {}

    def emit(
        self, name: str, value: float, unit: str | None = None, *, direction: str | None = None, window: str = ""
    ) -> None:
        if self.experiment.strict_metrics:
            assert self.experiment.metric(name), f"{name} is not declared"
        self.values[name].append(float(value))
        if window:
            self.windows[name, window].append(float(value))
        self.units[name] = unit
        self.directions[name] = direction

    def declare(self, metric: Any) -> None:
        self.units[metric.name] = metric.unit

    def metadata(self, **items: Any) -> None:
        self.facts |= items

    def warn(self, code: str, message: str) -> None:
        self.warnings[code] = message

    def invalid(self, code: str, message: str) -> None:
        self.invalidities[code] = message

    def distribution(self, name: str, histogram: Histogram, window: str = "") -> None:
        assert self.experiment.metric(name), f"{name} is not declared"
        if histogram.n:
            self.histograms[name] = histogram

    def bound(self, name: str, errors: dict[str, float], beyond: Any = ()) -> None:
        self.errors[name], self.beyond[name] = dict(errors), set(beyond)

    def phase(self, name: str, begin_ns: int, end_ns: int) -> None:
        assert begin_ns <= end_ns

    def energy_per(self, name: str, amount: float) -> None:
        assert self.experiment.metric(name), f"{name} is not declared"
        self.values[name].append(1.0 / amount)  # as if a joule was used

    def overcame_oom_kills(self, count: int) -> None:
        self.oom_kills_overcome += count

    def fail(self, code: str, message: str, *, retryable: bool = False) -> NoReturn:
        raise ExperimentFailed(code, message, retryable)

    def on_node(self, node: str) -> list[str]:
        return ["env"]  # all nodes of a test are this machine

    def driver(self, name: str) -> Any:
        (found,) = entry_points(group="benchhouse.drivers", name=name)
        return found.load()


@pytest.fixture
def recording(tmp_path: Path) -> Callable[[Experiment], RecordingContext]:
    """`recording(experiment)` is a context for parts of it."""
    return lambda experiment: RecordingContext(tmp_path, experiment)


@pytest.fixture
def play(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., RecordingContext]:
    """`play(experiment, target, workload)` runs it in an empty folder and returns what it recorded.

    An `ExperimentFailed` carries what was recorded before as `context`.
    """
    count = 0

    def run(experiment: Experiment, target: Any, workload: Any, cache: FolderCache | None = None) -> RecordingContext:
        nonlocal count
        count += 1
        folder = tmp_path / f"trial-{count}"
        folder.mkdir()
        ctx = RecordingContext(folder, experiment)
        if cache:
            ctx.cache = cache
        monkeypatch.chdir(ctx.workdir)
        recording: Any = ctx
        try:
            experiment.call(target, workload, recording)
        except ExperimentFailed as failure:
            failure.context = ctx  # type: ignore[attr-defined]
            raise
        assert not os.listdir(ctx.workdir), "an experiment leaves nothing behind"
        return ctx

    return run


@pytest.fixture
def failure_of(play: Callable[..., RecordingContext]) -> Callable[..., Any]:
    """`failure_of(experiment, target, workload)` is the failure of an experiment that must fail."""

    def run(*arguments: Any) -> ExperimentFailed:
        with pytest.raises(ExperimentFailed) as failed:
            play(*arguments)
        return failed.value

    return run
