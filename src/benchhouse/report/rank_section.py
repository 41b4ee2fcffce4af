"""The section about ranks: one row per rank, one column per group of steps, darker for longer times."""

from collections.abc import Sequence

from markupsafe import Markup

from benchhouse.report.tags import join, tag
from benchhouse.report.time_chart import nice_step
from benchhouse.results.numbers import number
from benchhouse.results.ranks import RankFacts, measured_times

HOW = (
    "All ranks end a step together, as they wait for each other: a slow one is seen by the time of its own, without "
    "that wait. One trial of each point, the median one by duration."
)
_WHOLE = "These ranks do not tell what they wait for others, so that whole steps are drawn: they hide who is slow."
_WIDTH, _LEFT, _RIGHT, _TOP, _AXIS = 760, 150, 10, 6, 40
_ROW, _LEAST_ROW, _MOST_HEIGHT = 22.0, 1.5, 520.0
_SHADES = 8
_LETTERS = 22  # characters of a label


def rank_section(ranks: Sequence[RankFacts]) -> Markup:
    return join(tag("p", HOW, class_="small soft"), *map(_ranks, ranks))


def _ranks(item: RankFacts) -> Markup:
    return tag(
        "figure",
        tag("figcaption", chart_title(item)),
        *(
            tag("p", note, class_=kind)
            for note, kind in ((item.times.straggler, "bad"), (whole_steps(item), "note"))
            if note
        ),
        tag("div", rank_chart(item), class_="plot"),
        tag("p", tag("code", source(item)), class_="note"),
    )


def chart_title(item: RankFacts) -> str:
    what = "own time of a step" if item.times.quantity == "own_step_time" else "time of a step"
    return f"{item.point}: {what} by rank"


def whole_steps(item: RankFacts) -> str:
    return "" if item.times.quantity == "own_step_time" else _WHOLE


def source(item: RankFacts) -> str:
    return f"{item.folder}/artifacts/ranks.json {item.sha256[:12]} (repetition {item.repetition}, {item.chosen})"


def rank_chart(item: RankFacts) -> Markup:
    """Return a chart whose shades go from the shortest to the longest time, over a range of at least a tenth of the
    median."""
    rows, first_steps = item.times.ranks, item.times.first_steps
    drawn = sorted(time for row in rows for time in measured_times(row.times_ms))
    low, high = drawn[0], max(drawn[-1], drawn[0] + 0.1 * drawn[len(drawn) // 2])
    height = max(_LEAST_ROW, min(_ROW, _MOST_HEIGHT / len(rows)))
    width = (_WIDTH - _LEFT - _RIGHT) / len(first_steps)
    every = max(1, round(14 / height))  # so that labels don't overlap
    parts: list[Markup] = []
    for at, row in enumerate(rows):
        top = _TOP + at * height
        name = f"rank {row.rank}" + (f" {row.node}" if row.node else "")
        if at % every == 0:
            place = f"{top + height / 2 + 4:.1f}"
            parts.append(tag("text", name[:_LETTERS], class_="name", x=_LEFT - 7, y=place, text_anchor="end"))
        for column, time in enumerate(row.times_ms):
            if time is None:
                continue
            shade = round((time - low) / (high - low) * _SHADES) / _SHADES if high > low else 0.0
            words = f"{name}, from step {first_steps[column]}: {number(time)} ms"
            box = {"x": _LEFT + column * width, "y": top, "width": width + 0.2, "height": height + 0.2}
            size = {key: f"{value:.1f}" for key, value in box.items()}
            parts.append(
                tag("rect", tag("title", words), fill="var(--c0)", opacity=f"{0.08 + 0.92 * shade:.2f}", **size)
            )
    bottom = _TOP + len(rows) * height
    step = max(1, round(nice_step(len(first_steps), 10)))
    for column in range(0, len(first_steps), step):
        place = f"{_LEFT + (column + 0.5) * width:.1f}"
        parts.append(tag("text", str(first_steps[column]), x=place, y=f"{bottom + 15:.1f}", text_anchor="middle"))
    scale = f"step; from {number(low)} ms (light) to {number(high)} ms (dark)"
    parts.append(tag("text", scale, x=(_LEFT + _WIDTH) // 2, y=f"{bottom + 33:.1f}", text_anchor="middle"))
    return tag("svg", *parts, viewBox=f"0 0 {_WIDTH} {round(bottom + _AXIS)}", role="img", aria_label=chart_title(item))
