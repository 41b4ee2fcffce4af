"""Pages of metrics in Prometheus' text format or OpenMetrics, read by prometheus_client.

Its parser takes about 20 us of CPU per line, so lines are selected by their beginnings first. Each line is parsed on
its own: a broken one loses only its own value. Importing prometheus_client takes 85 ms of CPU, only when a page is
read.
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
    """The type and help of the metrics of one name; empty if the page has none."""

    kind: str = ""
    help: str = ""


def samples(page: str, beginnings: tuple[str, ...] = ("",)) -> Iterator[ExpositionSample]:
    """Yield the samples whose lines start with one of `beginnings`, in the order and under the names of the page."""
    for line in page.split("\n"):
        if line.startswith(beginnings) and (sample := parse_sample(line)):
            yield sample


def parse_sample(line: str) -> ExpositionSample | None:
    """Return the sample of a line; None for a comment, an empty line, or an invalid one."""
    from prometheus_client.parser import text_string_to_metric_families

    with contextlib.suppress(ValueError):
        for family in text_string_to_metric_families(line):
            for sample in family.samples:
                return ExpositionSample(sample.name, sample.labels, float(sample.value))
    return None


def families(page: str) -> dict[str, Family]:
    """Return type and help by name; a counter's name is without its `_total`."""
    from prometheus_client.parser import text_string_to_metric_families

    # Without the samples, because the parser would rename counters that do not end in `_total`.
    comments = "\n".join(line for line in page.split("\n") if line.startswith("#"))
    known: dict[str, Family] = {}
    with contextlib.suppress(ValueError):
        for family in text_string_to_metric_families(comments):
            known[family.name] = Family(family.type, family.documentation)
    return known
