"""The part of the page about a large sweep as a whole: how its leading metrics spread, and which axis moves them."""

from collections.abc import Sequence

from markupsafe import Markup

from benchhouse.report.tags import join, table, tag
from benchhouse.results.content import AxisSpreadFacts, SpreadFacts
from benchhouse.results.numbers import percent, plural, quantity, titled

HEADS = ("axis", "values", "best at", "median there", "worst at", "median there", "explains")
RIGHT = (1, 3, 5, 6)  # numbers
HOW = (
    "The median is over all points at a value of the axis. Explains: the share of the variance over all points that "
    "the axis accounts for by itself (adjusted for its number of values)."
)


def spread_section(spreads: Sequence[SpreadFacts]) -> Markup:
    return join(tag("p", HOW, class_="small soft"), *(_metric(item) for item in spreads))


def quartile_sentence(item: SpreadFacts) -> str:
    """`1,000 points from 3 to 42.5 ms, half of them between 11 and 30, median 20`."""
    low, lower, middle, upper, high = (quantity(value, item.unit) for value in item.quartiles)
    half = f"half of them between {lower} and {upper}"
    return f"{plural(item.points, 'point')} from {low} to {high}, {half}, median {middle}"


def axis_row(item: SpreadFacts, row: AxisSpreadFacts) -> list[str]:
    """The cells under HEADS."""
    return [
        row.axis,
        str(row.levels),
        row.best,
        quantity(row.best_median, item.unit),
        row.worst,
        quantity(row.worst_median, item.unit),
        percent(row.explained, signed=False),
    ]


def axis_heads(item: SpreadFacts) -> Sequence[str]:
    """Without a direction, nothing is best: then the columns say highest and lowest."""
    return HEADS if item.direction else [head.replace("best", "highest").replace("worst", "lowest") for head in HEADS]


def _metric(item: SpreadFacts) -> Markup:
    rows = [axis_row(item, row) for row in item.axes]
    return join(
        tag("h3", titled(item.name, item.unit)),
        tag("p", f"{quartile_sentence(item)}."),
        table(axis_heads(item), rows, RIGHT) if rows else None,
    )
