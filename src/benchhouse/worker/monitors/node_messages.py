"""The messages between a worker and the sampler on another node of its trial: one line of JSON each."""

import time
from array import array
from base64 import b64decode, b64encode

from pydantic import Field

from benchhouse.schema.model import Model, empty_list
from benchhouse.schema.telemetry import Series, SourceKind
from benchhouse.worker.monitors.sampler import Recording, Track


class NodeOrder(Model):
    """The first line that a sampler receives."""

    trial_id: str
    interval_s: float
    sources: list[SourceKind]


class SampleRequest(Model):
    """A further line; it may contain several requests."""

    clock: bool = Field(False, description="Read your clocks, at once.")
    scope: str = Field("", description="Sample the process tree below `pid` under this name from now on.")
    pid: int = 0
    end: bool = Field(False, description="Take the last sample, tell all and go.")


class PartTrack(Model):
    """Rows of one source since the last batch."""

    scope: str
    series: list[Series] = Field(default_factory=empty_list, description="Only in the first part that has it.")
    rows: str = Field(description="Doubles, base64.")


class SampleBatch(Model):
    """The samples since the last batch; the counts cover the whole time."""

    tracks: list[PartTrack]
    zero_s: float = Field(description="What the rows' times are counted from, by the node's monotonic clock.")
    lasted_s: float = Field(description="Since then.")
    cpu_s: float = Field(description="Of the whole process since then.")
    ticks_missed: int
    problems: list[str]


class SamplerReply(Model):
    """An answer of a sampler."""

    monotonic_s: float | None = None
    wall_s: float | None = None
    part: SampleBatch | None = None
    last: bool = False


def pack(recording: Recording, known: set[str], zero_s: float, cpu_s: float) -> SampleBatch:
    """Pack a recording. `known` are the scopes whose series were already sent; it is updated."""
    tracks = []
    for track in recording.tracks:
        series = [] if track.scope in known else list(track.series)
        known.add(track.scope)
        tracks.append(PartTrack(scope=track.scope, series=series, rows=b64encode(track.rows.tobytes()).decode()))
    return SampleBatch(
        tracks=tracks,
        zero_s=zero_s,
        lasted_s=time.monotonic() - zero_s,
        cpu_s=cpu_s,
        ticks_missed=recording.ticks_missed,
        problems=recording.problems,
    )


def unpack(part: SampleBatch, tracks: dict[str, Track]) -> None:
    """Add the rows of a batch to `tracks`."""
    for item in part.tracks:
        track = tracks.setdefault(item.scope, Track(item.scope, item.series))
        track.rows += array("d", b64decode(item.rows))
