"""The ranks of a distributed trial side by side, of one trial of each point, read from its sealed evidence."""

from collections.abc import Iterable, Mapping
from operator import itemgetter
from pathlib import Path
from statistics import median

from pydantic import Field, ValidationError

from benchhouse.results.sealed import Row, median_trial, open_sealed
from benchhouse.schema.model import Model
from benchhouse.schema.ranks import FILE, RankTimes
from benchhouse.warehouse.grouping import grouped

MOST_POINTS = 20
_FILE = f"artifacts/{FILE}"
_OUTSTANDING = 0.1  # above the median of all ranks


class RankFacts(Model):
    """One trial of one point."""

    point: str
    trial_id: str
    repetition: int
    chosen: str = Field(description="Which of the point's trials this is, in words.")
    folder: str
    sha256: str = Field(description="Of artifacts/ranks.json.")
    times: RankTimes

    @property
    def medians(self) -> list[float]:
        """Of each rank over all columns, in ms."""
        return [median(known) if (known := known_times(row.times_ms)) else 0.0 for row in self.times.ranks]

    @property
    def says(self) -> str:
        """The rank that stands out, and by how much; nothing where none does by a tenth."""
        times = self.medians
        slowest = max(range(len(times)), key=times.__getitem__)
        others = median(times[:slowest] + times[slowest + 1 :])
        if self.times.quantity != "own_step_time" or times[slowest] <= others * (1 + _OUTSTANDING):
            return ""
        row = self.times.ranks[slowest]
        where = f" on {row.node}" if row.node else ""
        return f"Rank {row.rank}{where} needs {times[slowest]:.4g} ms of its own in a step, the others {others:.4g}."


def known_times(times: Iterable[float | None]) -> list[float]:
    return [time for time in times if time is not None]


def gather_ranks(root: Path, rows: Iterable[Row], labels: Mapping[tuple[str, str], str]) -> list[RankFacts]:
    """For each point, by run and instance digest; none of trials without ranks."""
    trials = grouped((row for row in rows if row["outcome"] == "succeeded"), itemgetter("run_id", "instance_digest"))
    found: list[RankFacts] = []
    for key, label in labels.items():
        chosen = median_trial(trials.get(key, []), lambda row: (root / row["folder"] / _FILE).is_file(), "ranks")
        facts = _facts(root, *chosen, label) if chosen and len(found) < MOST_POINTS else None
        found += [facts] if facts else []
    return found


def _facts(root: Path, row: Row, chosen: str, point: str) -> RankFacts | None:
    """None where the evidence is gone, is not what was sealed, or tells of fewer than two ranks."""
    try:
        sealed = open_sealed(root, row)
        times = RankTimes.model_validate_json(sealed.content(_FILE))
    except (OSError, ValueError, KeyError, ValidationError):
        return None
    columns = len(times.first_steps)
    if len(times.ranks) < 2 or not columns or any(len(rank.times_ms) != columns for rank in times.ranks):
        return None
    return RankFacts(
        point=point,
        trial_id=row["trial_id"],
        repetition=row["repetition"],
        chosen=chosen,
        folder=row["folder"],
        sha256=sealed.manifest.files[_FILE].sha256,
        times=times,
    )
