"""Points with planted numbers, as series, trade-offs and scaling take them."""

from benchhouse.results.series import FlatPoint, MetricSample

NOISE = (1.0, 1.01, 0.99, 1.005, 0.995)


def member(at, target, *, run="r", experiment="vector.search", label="", repetitions=5, qps=None, recall=None,
           latency=None, **parameters):  # fmt: skip
    """One point; each metric is given as its mean, and its trials are a percent apart (recall: all the same)."""
    given = {"experiment": experiment, **parameters, **{f"target.{key}": value for key, value in target.items()}}
    name = target.get("name", "")
    found = FlatPoint(label or f"{name} {at}".strip(), run, name, f"{run}-{at}", given, at=at)
    trials = [f"{run}-{at}-{number}" for number in range(repetitions)]
    noise = NOISE[:repetitions]
    if qps is not None:
        found.samples["qps", "value"] = MetricSample("1/s", "higher", [qps * one for one in noise], trials)
    if recall is not None:
        found.samples["recall", "value"] = MetricSample("1", "higher", [recall] * repetitions, trials)
    if latency is not None:
        found.samples["latency", "p50"] = MetricSample("ms", "lower", [latency / one for one in noise], trials)
        found.samples["latency", "p99"] = MetricSample("ms", "lower", [3 * latency / one for one in noise], trials)
    return found


def hnsw(ef, speed=1.0):
    """A power law, straight on the scales of the curve: a crossing is known exactly."""
    return {"recall": 1.0 - 1.0 / ef, "qps": speed * 100_000.0 / ef}


def two_sweeps(speed=0.5, **more):
    """`a` and `b` over the same values of ef, `b` with a share of the speed."""
    grid = [(name, factor, ef) for name, factor in (("a", 1.0), ("b", speed)) for ef in (4, 8, 16, 32, 64)]
    return [
        member(at, {"name": name, "index": "hnsw", "ef": ef}, **hnsw(ef, factor), **more)
        for at, (name, factor, ef) in enumerate(grid)
    ]
