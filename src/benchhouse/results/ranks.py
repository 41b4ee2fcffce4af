"""The ranks of a distributed trial side by side, for one trial of each point, read from its sealed evidence."""

from collections.abc import Iterable, Mapping
from operator import itemgetter
from pathlib import Path

from pydantic import Field, ValidationError

from benchhouse.results.trial_files import Row, median_trial, open_sealed
from benchhouse.schema.model import Model
from benchhouse.schema.ranks import FILE, RankTimes
from benchhouse.warehouse.grouping import grouped

MOST_POINTS = 20
_FILE = f"artifacts/{FILE}"


class RankFacts(Model):
    """One trial of one point."""

    point: str
    trial_id: str
    repetition: int
    chosen: str = Field(description="Which of the point's trials this is, in words.")
    folder: str
    sha256: str = Field(description="Of artifacts/ranks.json.")
    times: RankTimes


def measured_times(times: Iterable[float | None]) -> list[float]:
    return [time for time in times if time is not None]


def gather_ranks(root: Path, rows: Iterable[Row], labels: Mapping[tuple[str, str], str]) -> list[RankFacts]:
    """Return the ranks for each point (run and instance digest); points without rank data are skipped."""
    trials = grouped((row for row in rows if row["outcome"] == "succeeded"), itemgetter("run_id", "instance_digest"))
    found: list[RankFacts] = []
    for key, label in labels.items():
        chosen = median_trial(trials.get(key, []), lambda row: (root / row["folder"] / _FILE).is_file(), "ranks")
        facts = _facts(root, *chosen, label) if chosen and len(found) < MOST_POINTS else None
        found += [facts] if facts else []
    return found


def _facts(root: Path, row: Row, chosen: str, point: str) -> RankFacts | None:
    """Return the facts of a trial; None if the evidence is gone, differs from its seal, or has fewer than two ranks."""
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
