"""Runs with a fault that comes and goes, and healthy ones with hiccups: requests of clients that wait for each answer,
and telemetry, written as sealed folders and collected as real ones are. The rule that counts trials was corrected on
these plans with seed 1 (there without the tables); its level was chosen knowing of a real stall in 4 of 5 trials.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from faults import NODE, TRIAL, Effect, Kind, _record  # the same series, noise and outliers
from trial_maker import make_trial

from benchhouse.analysis.summary import summarise
from benchhouse.schema.layout import WorkspaceFolder
from benchhouse.schema.measurement import Measurement
from benchhouse.warehouse.ingest import collect

SHARDS = 4
_KIND = Kind("comes-and-goes", "inference", NODE | TRIAL, {})


@dataclass(frozen=True)
class Shape:
    """How the clients of a run ask; the same in its base."""

    clients: int
    each: int
    usual_s: float
    pause_s: float

    @property
    def lasts_s(self) -> float:
        return self.each * (self.usual_s + self.pause_s)


@dataclass
class Troubles:
    """What befalls one trial."""

    stops: tuple[tuple[float, float], ...] = ()
    """Begin and length of moments in which the server stands still."""
    share: float = 1.0
    """Of the clients: whom it holds."""
    throttled: float = 0.0
    slow_shard: float = 1.0
    factor: float = 1.0
    alone: float = 0.0
    """Share of the requests that take ten times as long, each for itself."""


Plan = Callable[[Random, Shape, bool], Troubles]
"""From a random source, the shape of the run, and whether the trial is hit."""


def draw_shape(draw: Random) -> Shape:
    usual_s = draw.choice((0.003, 0.008, 0.02))
    return Shape(draw.choice((4, 8, 16)), draw.choice((60, 100)), usual_s, usual_s * draw.uniform(0.2, 2.0))


def stall(draw: Random, shape: Shape, hit: bool) -> Troubles:
    """One to three stops of 10 to 60 usual times each; sometimes they hold half of the clients only."""
    if not hit:
        return Troubles()
    count = draw.randint(1, 3)
    share = draw.choice((1.0, 1.0, 0.5))
    return Troubles(stops=tuple(_stop(draw, shape, draw.uniform(10, 60)) for _ in range(count)), share=share)


def throttling(draw: Random, shape: Shape, hit: bool) -> Troubles:
    """The CPU limit stops the server for most of a tenth of a second, again and again."""
    if not hit:
        return Troubles()
    stops = [_stop(draw, shape, 0.08 / shape.usual_s) for _ in range(max(2, int(2 * shape.lasts_s)))]
    return Troubles(stops=tuple(stops), throttled=draw.uniform(0.1, 0.5))


def slow_shard(draw: Random, shape: Shape, hit: bool) -> Troubles:
    return Troubles(slow_shard=draw.uniform(1.4, 2.5)) if hit else Troubles()


def healthy(draw: Random, shape: Shape, hit: bool) -> Troubles:
    return Troubles()


def slower(draw: Random, shape: Shape, hit: bool) -> Troubles:
    """All requests take longer, in the trials that are hit."""
    return Troubles(factor=draw.uniform(1.5, 2.0)) if hit else Troubles()


def heavy(draw: Random, shape: Shape, hit: bool) -> Troubles:
    """A few requests in a hundred take far longer, each for itself, in the trials that are hit."""
    return Troubles(alone=draw.uniform(0.02, 0.04)) if hit else Troubles()


PLANS: dict[str, tuple[Plan, tuple[str, str] | None]] = {
    "stall": (stall, ("stall", "")),
    "throttling": (throttling, ("cpu_throttling", "")),
    "slow shard": (slow_shard, ("straggler:slow_member", "shard 2")),
    "healthy": (healthy, None),
    "slower": (slower, None),
    "heavy": (heavy, None),
}
"""Each with the cause that must be named; None: nothing, for no playbook knows what is wrong, or nothing is."""


def make_run(
    workspace: WorkspaceFolder, run_id: str, seed: int, plan: str, shape: Shape, trials: int, hit: int,
    hiccups: float = 0.0, minute: int = 0,
) -> None:  # fmt: skip
    """Write and collect a run of which `hit` trials have the fault; each trial of any run may have a hiccup, too."""
    draw = Random(f"{seed}/{run_id}")
    chosen = set(draw.sample(range(trials), hit))
    drift = {key: math.exp(draw.gauss(0, 0.01)) for key in _KIND.levels}
    level = math.exp(draw.gauss(0, 0.01))
    folders = []
    for at in range(trials):
        troubles = PLANS[plan][0](draw, shape, at in chosen)
        if draw.random() < hiccups:  # nobody's fault: the machine stops the server once, and may count it as throttled
            troubles.stops += (_stop(draw, shape, draw.uniform(10, 60)),)
            troubles.throttled += draw.choice((0.0, 0.1))
        took_ms = [1e3 * one for one in _requests(draw, shape, troubles, level)]
        effect = Effect(add={("trial", "cgroup_throttled"): troubles.throttled} if troubles.throttled else {})
        numbers = [*_numbers(took_ms), *_steps(draw, troubles)]
        recording = _record(_KIND, effect, drift, draw)
        folders.append(
            make_trial(
                workspace, run_id, at + 1, scenario="comes-and-goes", minute=minute, component="inference",
                numbers=numbers, samples=took_ms, recording=recording,
            )
        )  # fmt: skip
    collect(workspace, run_id, folders)


def _stop(draw: Random, shape: Shape, times: float) -> tuple[float, float]:
    return draw.uniform(0.1, 0.9) * shape.lasts_s, times * shape.usual_s


def _requests(draw: Random, shape: Shape, troubles: Troubles, level: float) -> list[float]:
    """How long each took in seconds, in the order in which they ended."""
    ended = []
    usual_s = shape.usual_s * level * math.exp(draw.gauss(0, 0.02))
    for client in range(shape.clients):
        at = draw.uniform(0, usual_s)
        for _ in range(shape.each):
            took = usual_s * troubles.factor * draw.lognormvariate(0, 0.25)
            end = at + took * (10.0 if draw.random() < troubles.alone else 1.0)
            for begin, length in troubles.stops:
                if client < troubles.share * shape.clients and begin < end and at < begin + length:
                    end = max(end, begin + length + draw.uniform(0, usual_s))
            ended.append((end, end - at))
            at = end + shape.pause_s * draw.uniform(0.5, 1.5)
    return [took for _, took in sorted(ended)]


def _numbers(took_ms: list[float]) -> list[Measurement]:
    stats = summarise(took_ms).stats()
    return [
        Measurement(metric="latency", stat=name, value=stats[name], unit="ms", direction="lower", n=len(took_ms))
        for name in ("mean", "p99")
    ]


def _steps(draw: Random, troubles: Troubles) -> list[Measurement]:
    """A step that ends with the slowest of its shards."""
    took = [50.0 * math.exp(draw.gauss(0, 0.01)) * (troubles.slow_shard if at == 2 else 1.0) for at in range(SHARDS)]
    made = [
        Measurement(metric="step_time", stat="mean", value=value, unit="ms", direction="lower", window=f"shard:{at}")
        for at, value in enumerate(took)
    ]
    whole = Measurement(metric="step_time", stat="mean", value=sum(took), unit="ms", direction="lower", n=25)
    return [*made, whole]
