"""Pages of metrics in Prometheus' text format or OpenMetrics, read by prometheus_client.

Its parser takes about 20 us of CPU a line, so lines are chosen by how they begin before it sees them. Each line is
parsed by itself: one that is broken costs its own value and no other. Importing prometheus_client takes 85 ms of CPU,
which only those pay who read a page.
"""

import contextlib
from collections.abc import Iterator, Mapping
from typing import NamedTuple


class ExpositionSample(NamedTuple):
    """One value of a page."""

    name: str
    labels: Mapping[str, str]
    value: float


class Family(NamedTuple):
    """What a page says of the metrics of one name; empty where it does not."""

    kind: str = ""
    help: str = ""


def samples(page: str, beginnings: tuple[str, ...] = ("",)) -> Iterator[ExpositionSample]:
    """The samples whose lines begin in one of these ways, in the order of the page, under the names of the page."""
    for line in page.split("\n"):
        if line.startswith(beginnings) and (sample := parse_sample(line)):
            yield sample


def parse_sample(line: str) -> ExpositionSample | None:
    """The sample of a line; None of a comment, an empty line or what is none."""
    from prometheus_client.parser import text_string_to_metric_families

    with contextlib.suppress(ValueError):
        for family in text_string_to_metric_families(line):
            for sample in family.samples:
                return ExpositionSample(sample.name, sample.labels, float(sample.value))
    return None


def families(page: str) -> dict[str, Family]:
    """Type and help by name; that of a counter is without its `_total`."""
    from prometheus_client.parser import text_string_to_metric_families

    # Without the samples, which the parser would rename where a counter's do not end in `_total`.
    comments = "\n".join(line for line in page.split("\n") if line.startswith("#"))
    known: dict[str, Family] = {}
    with contextlib.suppress(ValueError):
        for family in text_string_to_metric_families(comments):
            known[family.name] = Family(family.type, family.documentation)
    return known
