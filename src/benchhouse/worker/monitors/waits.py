"""How long a trial waited for its place: telemetry of the family `scheduler`, from the times of its executor."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from benchhouse.schema.telemetry import Series
from benchhouse.worker.monitors.procfs import series

# Each with the times before and after it: on either side, the first known time counts.
_STEPS = (
    (series("queue_wait", "s", "Until its queue let it go.", family="scheduler"),
     ("job_created",), ("admitted", "job_started")),
    (series("node_wait", "s", "From a pod to its node.", family="scheduler"), ("pod_created",), ("pod_scheduled",)),
    (series("start_wait", "s", "From the node to a running container.", family="scheduler"),
     ("pod_scheduled",), ("pod_started",)),
    (series("place_wait", "s", "From the Job to a running container.", family="scheduler"),
     ("job_created",), ("pod_started",)),
)  # fmt: skip
SERIES: tuple[Series, ...] = tuple(item for item, _, _ in _STEPS)


class PlaceWaits:
    """The waits before a trial, which are over when it starts, so all samples are equal. A negative wait has no
    series."""

    name = "scheduler"

    def __init__(self, placed: Mapping[str, str]) -> None:
        waits = {item: _between(placed, begins, ends) for item, begins, ends in _STEPS}
        known = {item: seconds for item, seconds in waits.items() if seconds is not None}
        self.series: Sequence[Series] = list(known)
        self._values = list(known.values())

    def sample(self) -> Sequence[float]:
        return self._values

    def close(self) -> None:
        """Do nothing: no resource is open."""


def _between(placed: Mapping[str, str], begins: Sequence[str], ends: Sequence[str]) -> float | None:
    begin, end = (next((placed[key] for key in keys if placed.get(key)), "") for keys in (begins, ends))
    if not begin or not end:
        return None
    seconds = (datetime.fromisoformat(end) - datetime.fromisoformat(begin)).total_seconds()
    return seconds if seconds >= 0 else None
