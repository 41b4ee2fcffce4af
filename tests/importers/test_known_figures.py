"""Figures of text and JSON files, read off by hand: the right number, of the right case, in the right unit."""

import pytest


@pytest.fixture
def figures(read, data):
    """`figures(kind, name)`: the first value of each metric, by case."""

    def of(kind, name):
        cases = read(kind, data / name).cases
        return [(case, {item.metric.name.partition("@")[0]: item.values[0] for item in case.samples}) for case in cases]

    return of


def test_repetitions_of_go_are_samples_and_what_failed_is_a_case_without_a_time(read, data):
    found = read("benchstat", data / "go-1.19.8.txt")
    ten, thousand, crc, broken = found.cases
    assert (ten.target, ten.settings) == ({"name": "Join/parts=10"}, {"pkg": "example.com/sums", "gomaxprocs": 2})
    series = {item.metric.name: list(item.values) for item in ten.samples}
    assert series["time_ns@go"] == [270.5, 411.7, 144.1]
    assert series["allocated_bytes@go"] == [16] * 3 and series["reported.parts_op@go"] == [10] * 3
    assert ten.facts["iterations"] == [147453, 135416, 183559] and ten.facts["goarch"] == "amd64"
    assert [item.metric.unit for item in crc.samples] == ["ns", "MB/s", "1"] and not crc.missing.get("time_ns@go")
    assert (broken.target["name"], broken.settings["gomaxprocs"]) == ("Broken", None)
    assert [(item.metric.name, list(item.values)) for item in broken.samples] == [("error_rate@go", [1])]
    assert all(case.doubts[0][0] == "go_test_failed" for case in found.cases) and thousand.settings == ten.settings


def test_units_of_go_say_what_is_better(read, tmp_path):
    path = tmp_path / "go.txt"
    path.write_text("Unit hits/op better=higher\nBenchmarkX-x\t 5\t 2.5 ns/op\t 7 hits/op\nPASS\n")
    (case,) = read("benchstat", path).cases
    assert (case.target, case.settings) == ({"name": "X-x"}, {"pkg": None, "gomaxprocs": 1})
    assert [(item.metric.unit, item.metric.direction) for item in case.samples][:2] == [
        ("ns", "lower"),
        ("hits/op", "higher"),
    ]


def test_iterations_of_jmh_come_in_one_unit_whatever_it_was_told_to_print(figures):
    (ten, _), _, (total, rate), (sampled, calls) = figures("jmh", "jmh-1.37-published-format.json")
    assert ten.settings == {"mode": "avgt", "threads": 1, "param_size": "10"}
    time, _, collections = ten.samples
    assert len(time.values) == 6 and 40_000 < min(time.values) < max(time.values) < 44_000  # 41.5 us
    assert next((figure.stat, figure.value) for figure in collections.told) == ("mean", 14)  # JMH's sum
    assert 3.1e6 < rate["ops_per_s"] < 3.5e6 and total.settings["mode"] == "thrpt"
    assert calls["sample_max_ns"] == 4000 and "samples" in sampled.missing


def test_a_benchmark_of_criterion_has_times_of_one_iteration(read, data):
    sort, _ = read("criterion", data / "criterion-1.1-published-format.json").cases
    time, slope = sort.samples
    assert len(time.values) == 10 and all(3400 * 0.96 < value < 3400 * 1.06 for value in time.values)
    assert 3400 * 0.96 < slope.values[0] < 3400 * 1.06
    assert {figure.stat for figure in time.told} == {"mean", "p50"}


def test_outputs_of_wrk_in_one_file_are_cases_in_milliseconds(figures):
    (good, ok), (_, missing) = figures("wrk", "wrk-4.1.0.txt")
    assert good.target == {"name": "http://127.0.0.1:18734/index.html"}
    assert good.settings == {"duration": "1s", "threads": 1, "connections": 2}
    assert ok == {
        "latency_mean_ms": 1.12, "latency_stdev_ms": 1.08, "latency_max_ms": 7.87, "latency_p50_ms": 0.718,
        "latency_p75_ms": 1.16, "latency_p90_ms": 2.5, "latency_p99_ms": 5.46, "requests_per_s": 1702.11,
        "bytes_per_s": pytest.approx(315.82 * 1024), "error_rate": 0, "socket_errors": 0,
    }  # fmt: skip
    assert missing["error_rate"] == 1 and missing["latency_max_ms"] == 156.5


def test_wrk2_is_another_tool_and_keeps_latencies_from_the_send_apart(figures):
    ((case, found),) = figures("wrk", "wrk2-4.0.0-published-format.txt")
    assert {item.metric.name.partition("@")[2] for item in case.samples} == {"wrk2"}
    assert (found["latency_p99.999_ms"], found["uncorrected_latency_p99_ms"]) == (12.53, 3.04)
    assert (found["error_rate"], found["socket_errors"]) == (6 / 60018, 4)


def test_ycsb_has_a_case_for_each_kind_of_operation_and_none_is_fast_that_never_worked(figures):
    (overall, run), (_, reads), (_, failed), (update, none) = figures("ycsb", "ycsb-0.17-published-format.txt")
    assert run == {"run_time_ms": 10110, "ops_per_s": 98.91196834817013} and overall.facts["TOTAL_GCs"] == {"Count": 1}
    assert reads == {
        "latency_mean_us": 902.25, "latency_min_us": 402, "latency_max_us": 38015, "latency_p50_us": 731,
        "latency_p95_us": 1723, "latency_p99.9_us": 38015, "error_rate": pytest.approx(0.008),
    }  # fmt: skip
    assert failed["latency_p50_us"] == 702
    assert none == {"error_rate": 1} and update.missing["latency"] == "no operation was measured"


def test_raw_latencies_of_ycsb_are_samples(figures):
    (read_, _), _ = figures("ycsb", "ycsb-0.17-raw-published-format.txt")[::-1]
    (latency, errors) = read_.samples
    assert len(latency.values) == 40 and max(latency.values) == 9120 and errors.values[0] == 0


def test_an_output_of_wrk_that_did_not_end_is_refused_with_its_line(read, data, tmp_path):
    lines = (data / "wrk-4.1.0.txt").read_text().splitlines(keepends=True)
    path = tmp_path / "wrk.txt"
    path.write_text("".join(lines[:-2]))
    with pytest.raises(Exception, match=r"wrk.txt:14: this run has no Requests/sec"):
        read("wrk", path)


def test_two_results_of_ycsb_in_one_file_are_refused(read, data, tmp_path):
    path = tmp_path / "both.txt"
    path.write_text((data / "ycsb-0.17-published-format.txt").read_text() * 2)
    with pytest.raises(Exception, match="are two results in it"):
        read("ycsb", path)
