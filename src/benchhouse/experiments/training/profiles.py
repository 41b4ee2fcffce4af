"""Steps under torch.profiler: traces are evidence, overhead is recorded, and no metric includes these steps."""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from statistics import median
from typing import Any, Self

from pydantic import Field, model_validator

from benchhouse.experiments.emitted_records import Emitted
from benchhouse.experiments.training.figures import WholeStep
from benchhouse.experiments.training.traces import TRACES, Spans, read_trace, union
from benchhouse.schema.experiment import Context
from benchhouse.schema.model import Model

_PROFILE = "BENCHHOUSE_PROFILE"
"""The variable with the steps to profile, which `benchhouse_training` reads."""
_PROFILES = "BENCHHOUSE_PROFILES"
"""The variable with the folder for `benchhouse_training` and any other profiler, such as for `-o` of nsys and ncu."""
_MOST = 100  # steps: one takes about a megabyte of trace, and seconds to write
_PARTS = ("forward_s", "backward_s", "optimizer_s", "comm_s")


class ProfiledSteps(Model):
    """The steps that every rank runs under torch.profiler."""

    steps: str = Field(
        pattern=r"^\d+\.\.\d+$", description="First and last step, as `10..14`; they are in no metric of the trial."
    )

    @model_validator(mode="after")
    def _in_order(self) -> "ProfiledSteps":
        first, last = map(int, self.steps.split(".."))
        if not 0 <= last - first < _MOST:
            raise ValueError(f"steps {self.steps}: from 1 to {_MOST} steps, the first one first")
        return self


class ProfileFolder:
    """The folder of a trial for the files of profilers; it is removed afterwards if it is empty."""

    def __init__(self, artifacts: Path, asked: ProfiledSteps | None) -> None:
        self._path, self.asked = artifacts / "profiles", asked
        self.variables = {_PROFILES: str(self._path)} | ({_PROFILE: asked.steps} if asked else {})

    def __enter__(self) -> Self:
        self._path.mkdir(exist_ok=True)
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):
            self._path.rmdir()

    @cached_property
    def traces(self) -> dict[Path, Emitted | None]:
        """The steps of each trace as if emitted; None if unreadable. To be read after the ranks have ended."""
        return {path: read_trace(path) for path in sorted(self._path.glob(TRACES))}

    @property
    def processes(self) -> list[Emitted]:
        return [process for process in self.traces.values() if process]


def profiled_times(processes: Iterable[Emitted]) -> Spans:
    """Return when the profiler ran or wrote in any of the ranks."""
    records = (record for process in processes for record in process.records if "profile" in record)
    times = ((record.get("t_start"), record.get("t_end")) for record in records)
    return union((begin, end) for begin, end in times if isinstance(begin, float) and isinstance(end, float))


def touched(step: WholeStep, times: Spans) -> bool:
    return any(begin < step.end_s and step.begin_s < end for begin, end in times)


def longest_untouched(steps: Sequence[WholeStep], times: Spans) -> Sequence[WholeStep]:
    """Return the longest sequence of steps without a profiler in any rank, so that rates and energy share one time."""
    best: Sequence[WholeStep] = []
    begin = 0
    for at, step in enumerate([*steps, None]):
        if step is None or touched(step, times):
            best = max(best, steps[begin:at], key=len)
            begin = at + 1
    return best


def record_profile(
    profiles: ProfileFolder, useful: Sequence[WholeStep], measured: Sequence[WholeStep], ctx: Context
) -> None:
    """Record the profiled steps, their overhead over measured ones, and where their time went (medians over ranks)."""
    asked, traces = profiles.asked, profiles.traces
    if not asked:
        return
    if not traces:
        ways = "loop over profiled(range(...)) of benchhouse_training, or use one of its callbacks"
        ctx.warn("not_profiled", f"no rank wrote a trace of steps {asked.steps}: did it get there? {ways}")
        return
    first, last = map(int, asked.steps.split(".."))
    slower = [step.took_s for step in useful if first <= step.number <= last]
    about: dict[str, Any] = {"steps": asked.steps, "traces": len(traces)}
    about["bytes"] = sum(path.stat().st_size for path in traces)
    if slower and measured:
        about["overhead_share"] = median(slower) / median(step.took_s for step in measured) - 1.0
    records = [record for process in profiles.processes for record in process.records]
    for name in _PARTS if records else ():
        about[f"{name.removesuffix('_s')}_ms"] = median(record[name] for record in records) * 1e3
    ctx.metadata(profile=about)
