"""Times of each rank: metrics that identify a straggler and its cause, and a table over steps."""

from collections.abc import Mapping, Sequence
from statistics import median

from benchhouse.experiments.training.figures import WholeStep, own_s, straggler_of
from benchhouse.experiments.training.steps import TrainingStep
from benchhouse.load.metrics import lower
from benchhouse.schema.experiment import Context
from benchhouse.schema.ranks import FILE, RankRow, RankTimes

_COLUMNS = 120  # of the table over steps
METRICS = (
    lower("own_step_time", "ms", "median of a rank's steps less comm_s, window `rank:N`: the slowest one has the most"),
    lower("rank_data_time", "ms", "median of data_s of a rank's steps, window `rank:N`"),
    lower(
        "rank_cpu_time",
        "ms",
        "median of cpu_s of a rank's steps, window `rank:N`; for the same work, of a slow core more",
    ),
)


def report_ranks(steps: Sequence[WholeStep], nodes: Mapping[int, str], ctx: Context) -> None:
    """Report times by rank; `nodes` maps ranks to nodes. With several nodes, also report each node (window `node:NAME`)
    with the time of its slowest rank."""
    by_rank: dict[int, list[TrainingStep]] = {}
    for whole in steps:
        for step in whole.ranks:
            by_rank.setdefault(step.rank, []).append(step)
    of_nodes: dict[str, float] = {}
    for rank, own in sorted(by_rank.items()):
        times = {
            "own_step_time": [time for step in own if (time := own_s(step)) is not None],
            "rank_data_time": [step.amounts["data_s"] for step in own if "data_s" in step.amounts],
            "rank_cpu_time": [step.amounts["cpu_s"] for step in own if "cpu_s" in step.amounts],
        }
        for name, seconds in times.items():
            if len(seconds) == len(own):
                ctx.emit(name, median(seconds) * 1e3, window=f"rank:{rank}")
        if len(times["own_step_time"]) == len(own):
            node = nodes.get(rank, "")
            of_nodes[node] = max(of_nodes.get(node, 0.0), median(times["own_step_time"]))
    if len(of_nodes) > 1:
        for node, slowest_s in of_nodes.items():
            ctx.emit("own_step_time", slowest_s * 1e3, window=f"node:{node}")
    slow = straggler_of(steps)
    said = slow.message(nodes.get(slow.rank, "")) if slow else ""
    if said:
        ctx.warn("straggler", said)
    if len(by_rank) > 1:
        table = rank_times(steps, nodes).model_copy(update={"straggler": said})
        (ctx.artifacts / FILE).write_text(table.model_dump_json() + "\n", encoding="utf-8")


def rank_times(steps: Sequence[WholeStep], nodes: Mapping[int, str]) -> RankTimes:
    """Return the table with at most 120 columns of equally many steps; the last column may have fewer."""
    tells = all(own_s(step) is not None for whole in steps for step in whole.ranks)
    size = -(-len(steps) // _COLUMNS)
    groups = [steps[begin : begin + size] for begin in range(0, len(steps), size)]
    rows: dict[int, list[float | None]] = {}
    for at, group in enumerate(groups):
        times: dict[int, list[float]] = {}
        for step in (step for whole in group for step in whole.ranks):
            seconds = own_s(step) if tells else step.took_s
            assert seconds is not None
            times.setdefault(step.rank, []).append(seconds)
        for rank, own in times.items():
            rows.setdefault(rank, [None] * len(groups))[at] = round(median(own) * 1e3, 6)
    return RankTimes(
        quantity="own_step_time" if tells else "step_time",
        first_steps=[group[0].number for group in groups],
        ranks=[RankRow(rank=rank, node=nodes.get(rank, ""), times_ms=row) for rank, row in sorted(rows.items())],
    )
