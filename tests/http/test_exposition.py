"""Pages of metrics, read by prometheus_client a line at a time."""

import pytest

from benchhouse.http.exposition import ExpositionSample, Family, families, parse_sample, samples

PAGE = """# HELP done_total Requests that ended.
# TYPE done_total counter
done_total{model="a}b",engine="0"} 3
# TYPE nv_success counter
nv_success{model="x"} 7 1700000000000
# TYPE wait_seconds histogram
wait_seconds_bucket{le="+Inf"} 4 # {trace_id="q"} 0.5
wait_seconds_sum 1.5
broken{ 1
wait_seconds_count NaN
"""


def test_samples_have_the_names_of_the_page_and_a_broken_line_is_left_out():
    assert [(sample.name, sample.value) for sample in samples(PAGE)][:4] == [
        ("done_total", 3), ("nv_success", 7), ("wait_seconds_bucket", 4), ("wait_seconds_sum", 1.5),
    ]  # fmt: skip
    assert len(list(samples(PAGE))) == 5
    assert next(samples(PAGE)).labels == {"model": "a}b", "engine": "0"}


def test_only_lines_that_begin_as_wanted_are_parsed():
    assert [sample.name for sample in samples(PAGE, ("nv_", "wait_seconds_sum"))] == ["nv_success", "wait_seconds_sum"]


def test_type_and_help_are_found_by_name():
    assert families(PAGE) == {
        "done": Family("counter", "Requests that ended."),
        "nv_success": Family("counter", ""),
        "wait_seconds": Family("histogram", ""),
    }


@pytest.mark.parametrize(
    "line", ["", "# a comment", "# TYPE x counter", "<html>", "x", "x y", 'x{a="b} 1', "\x00\ufffd"]
)
def test_what_is_no_sample_is_none(line):
    assert parse_sample(line) is None


def test_a_sample_is_read_with_its_labels():
    assert parse_sample('x{a="\\"b\\\\"} 1.5e3') == ExpositionSample("x", {"a": '"b\\'}, 1500.0)
