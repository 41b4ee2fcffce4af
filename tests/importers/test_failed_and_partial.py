"""What failed, was skipped or is only in part in a file has no time, and is not left out."""

import json

import pytest
from tables import check_table

from benchhouse.runs import imports
from benchhouse.schema.errors import BenchError
from benchhouse.schema.imported import ImportedReading
from benchhouse.schema.layout import WorkspaceFolder


@pytest.fixture
def changed(data, tmp_path):
    """`changed(name, change)`: a copy of a JSON file that a function has changed."""

    def of(name, change):
        document = json.loads((data / name).read_text())
        change(document)
        path = tmp_path / name
        path.write_text(json.dumps(document))
        return path

    return of


def figures(case) -> dict:
    return {item.metric.name.partition("@")[0]: list(item.values) for item in case.samples}


def test_google_benchmark_with_a_curve_and_a_failed_benchmark_is_read(read, data):
    small, *_, broken, counted, curve = read("google-benchmark", data / "google-benchmark-1.9.5-complexity.json").cases
    assert figures(small)["error_rate"] == [0] and figures(small)["real_time_ms"] == [0.015195006797014785]
    assert (broken.target["name"], figures(broken)) == ("broken", {"error_rate": [1]})
    assert broken.doubts == [("repetition_error", "no device")]
    assert figures(counted)["counter.hits"] == [7]
    assert curve.target["name"] == "sum" and figures(curve) == {
        "real_coefficient_ms": [pytest.approx(3890.8821137298487e-6)],
        "cpu_coefficient_ms": [pytest.approx(1977.9498882595985e-6)],
        "fit_rms": [0.0037355227650767314],
    }


def test_a_skipped_benchmark_is_not_one_that_took_no_time(read, changed):
    def skip(document):
        document["benchmarks"][0] |= {"skipped": True, "skip_message": "no GPU", "real_time": 0.0, "cpu_time": 0.0}

    case, _ = read("google-benchmark", changed("google-benchmark-1.9.5.json", skip)).cases
    assert figures(case)["error_rate"] == [pytest.approx(1 / 3)] and len(figures(case)["real_time_ms"]) == 2
    assert case.doubts == [("repetition_skipped", "no GPU")]


def test_a_job_of_fio_that_moved_nothing_is_a_case_with_its_error(read, changed):
    def fail(document):
        broken = json.loads(json.dumps(document["jobs"][0]))
        broken |= {"jobname": "broken", "error": 2, "read": broken["read"] | {"total_ios": 0}}
        document["jobs"].append(broken)

    good, broken = read("fio", changed("fio-3.33.json", fail)).cases
    assert figures(good)["clat_p99.99_ms"] == [9.633792]
    assert (broken.target["name"], figures(broken)) == ("broken", {"error_code": [2]})


def test_a_job_of_fio_that_broke_off_is_told(read, changed):
    (good,) = read("fio", changed("fio-3.33.json", lambda document: None)).cases
    (broken,) = read("fio", changed("fio-3.33.json", lambda document: document["jobs"][0].update(error=28))).cases
    assert not good.doubts and figures(broken)["error_code"] == [28]
    assert broken.doubts == [("fio_error", "the job randread ended with the error 28 (errno)")]


def test_what_fio_says_of_both_directions_together_is_read(read, changed):
    def unite(document):
        job = document["jobs"][0]
        job["mixed"] = job.pop("read")
        del job["write"], job["trim"]

    (case,) = read("fio", changed("fio-3.33.json", unite)).cases
    assert case.settings["direction"] == "mixed" and figures(case)["iops"] == [5953.488372]


def test_a_test_of_reframe_that_failed_counts_as_an_error(read, changed):
    def fail(document):
        test = json.loads(json.dumps(document["runs"][0]["testcases"][0]))
        test |= {"display_name": "broken", "perfvalues": {}, "result": "fail"}
        document["runs"][0]["testcases"].append(test | {"fail_phase": "sanity", "fail_reason": "no match"})

    good, _, broken = read("reframe", changed("reframe-4.10.4.json", fail)).cases
    assert figures(good) == {"speed": [12.5], "error_rate": [0]} and figures(broken) == {"error_rate": [1]}
    assert broken.doubts == [("test_fail", "broken: sanity: no match")]


def test_a_case_of_vectordbbench_that_failed_counts_as_an_error(read, changed):
    def fail(document):
        document["results"][1]["label"] = "x"

    good, broken, _ = read("vectordbbench", changed("vectordbbench-2.0.0.json", fail)).cases
    assert figures(good)["error_rate"] == [0] and figures(broken) == {"error_rate": [1]}


def test_a_refused_request_of_vllm_without_words_is_no_answer_in_no_time(read, changed):
    def refuse(document):
        document["errors"][5] = ""  # it has no first token, and took no time

    (told,) = read("vllm-bench", changed("vllm-0.33.0-published-format.json", lambda document: None)).cases
    (case,) = read("vllm-bench", changed("vllm-0.33.0-published-format.json", refuse)).cases
    assert figures(case) == figures(told) and min(figures(case)["ttft"]) > 0 and not case.doubts

    def lose(document):
        document["completed"] = 38

    (case,) = read("vllm-bench", changed("vllm-0.33.0-published-format.json", lose)).cases
    assert case.doubts == [("vllm_bench_counts", "its lists have 39 good requests, and it says that 38 were completed")]


@check_table(
    "told, rate",
    [
        ({"request_count": 90, "error_request_count": 10}, 0.1),
        ({"request_count": 75, "error_summary": [{"count": 20}, {"count": 5}]}, 0.25),
        ({"request_count": 90, "error_summary": []}, 0),
        ({"request_count": 90}, None),
    ],
)
def test_a_summary_of_aiperf_has_its_error_rate_and_cancellation(told, rate, read, changed):
    def count(document):
        counts = {name: {"unit": "requests", "avg": n} for name, n in told.items() if isinstance(n, int)}
        document |= told | counts | {"was_cancelled": rate is None}

    (case,) = read("aiperf", changed("aiperf-0.13.0-published-format.json", count)).cases
    assert figures(case).get("error_rate") == (None if rate is None else [rate])
    assert [code for code, _ in case.doubts] == (["aiperf_cancelled"] if rate is None else [])


def test_no_request_at_all_is_no_error_rate(read, changed):
    def lose(document):
        document["successes"]["count"] = document["failures"]["count"] = 0

    (case,) = read("inference-perf", changed("inference-perf-0.7.0-published-format.json", lose)).cases
    assert "error_rate" not in figures(case) and case.missing["error_rate@inference-perf"] == "there is no request"


def test_aggregates_of_google_benchmark_alone_have_rates_and_counters(read, changed):
    def aggregate(document):
        (row,) = (item for item in document["benchmarks"] if item["name"] == "counted")
        row |= {"name": "counted_mean", "run_type": "aggregate", "aggregate_name": "mean"}
        document["benchmarks"] = [row]

    (case,) = read("google-benchmark", changed("google-benchmark-1.9.5-complexity.json", aggregate)).cases
    found = figures(case)
    assert (found["items_per_second_mean"], found["counter.hits_mean"]) == ([7347.777201875332], [7])
    assert found["real_time_mean_ms"] == [0.03843665426317365] and len(found) == 4


def test_a_property_that_ado_observed_is_no_setting_because_a_settings_name_ends_alike(read, data, tmp_path):
    path = tmp_path / "operation.csv"
    text = (data / "ado-2.3.0_operation.csv").read_text()
    header, *rows = text.replace(",latency_ms,", ",tch,").splitlines()
    batches = [row.split(",")[4] for row in rows]
    lines = [
        ",".join([*row.split(",")[:8], batch, *row.split(",")[9:]]) for row, batch in zip(rows, batches, strict=True)
    ]
    path.write_text("\n".join([header, *lines]) + "\n")
    case = read("ado", path).cases[2]
    assert case.settings == {"batch": 2, "model": "tiny"} and figures(case)["tch"] == [2]


def test_latencies_of_tokens_and_of_queries_are_in_the_detail_log_of_loadgen(read, data):
    (tokens,) = read("loadgen", data / "loadgen-6.0.17-server-tokens_detail.txt").cases
    found = figures(tokens)
    assert (found["ttft_p99_ms"], found["ttft_mean_ms"]) == ([6.893978], [1.488739])
    assert (found["tpot_p99_ms"], found["tpot_mean_ms"]) == ([1.993095], [0.802606])
    assert (found["completed_tokens_per_s"], found["latency_p99_ms"]) == ([398.997], [9.043819])
    assert "no rate" in tokens.missing["result_token_throughput"]
    (stream,) = read("loadgen", data / "loadgen-6.0.17-multi-stream_detail.txt").cases
    found = figures(stream)
    assert (found["query_latency_p90_ms"], found["latency_p90_ms"]) == ([17.916981], [13.480284])
    assert found["query_latency_max_ms"] == [24.988602]


def test_retries_of_pgbench_are_not_taken_for_a_lag(read, data):
    (case,) = read("pgbench", data / "pgbench-15.18_retries.26719").cases
    assert "schedule_lag_ms" not in figures(case) and figures(case)["error_rate"] == [1 / 120]
    assert "does not say whether of lags (-R) or of retries" in case.missing["schedule_lag_ms@pgbench"]
    (both,) = read("pgbench", data / "pgbench-15.18_rate-retries.26763").cases
    assert max(figures(both)["schedule_lag_ms"]) == 53.844 and sum(figures(both)["retries"]) == 59 - 42
    assert figures(both)["error_rate"] == [42 / 96]
    (rate,) = read("pgbench", data / "pgbench-15.18_rate.10590").cases
    assert figures(rate)["schedule_lag_ms"][0] == 2.499 and figures(rate)["skipped_share"] == [3 / 40]


def test_a_sample_of_the_transactions_has_no_rate(read, data):
    (case,) = read("pgbench", data / "pgbench-15.18_sampled.26756").cases
    assert "transactions_per_s" not in figures(case) and "--sampling-rate" in case.missing["transactions_per_s@pgbench"]


def test_a_part_of_a_result_is_refused_and_names_the_whole(data, tmp_path):
    for name in ("pgbench-15.18_log.10584", "pgbench-15.18_log.10584.1"):
        (tmp_path / name).write_bytes((data / name).read_bytes())
    with pytest.raises(BenchError, match=r"10584\.1 is a part of the result that pgbench-15\.18_log\.10584 begins"):
        imports.read(WorkspaceFolder(tmp_path / "ws"), tmp_path / "pgbench-15.18_log.10584.1", None)
    assert not (tmp_path / "ws").exists()


def test_of_k6_only_what_it_defines_has_a_direction(read, tmp_path):
    lines = []
    for name, kind, contains in (("basket", "trend", "default"), ("wait", "trend", "time"), ("errors", "counter", "")):
        lines.append({"metric": name, "type": "Metric", "data": {"type": kind, "contains": contains}})
        lines += [
            {"metric": name, "type": "Point", "data": {"time": f"2026-11-19T01:00:0{at}Z", "value": 1}} for at in (1, 3)
        ]
    path = tmp_path / "k6.json"
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    (case,) = read("k6", path).cases
    assert {item.metric.name: item.metric.direction for item in case.samples} == {
        "basket@k6": None, "wait@k6": "lower", "errors@k6": None, "errors_per_s@k6": None,
    }  # fmt: skip


def test_a_negative_time_is_told(data, tmp_path):
    path = tmp_path / "back.json"
    path.write_text((data / "hyperfine-1.15.0.json").read_text().replace("0.000706036", "-0.000706036"))
    reading = imports.read(WorkspaceFolder(tmp_path), path, None).reading.read_text()
    assert '"negative_time"' in reading and "a clock was set back" in reading


def test_a_time_to_the_first_token_below_zero_and_more_errors_than_requests_are_told(changed, tmp_path):
    def spoil(document):
        document["ttfts"][0] = -0.25
        document["failed"] = 41

    path = changed("vllm-0.33.0-published-format.json", spoil)
    reading = ImportedReading.model_validate_json(
        imports.read(WorkspaceFolder(tmp_path), path, None).reading.read_bytes()
    )
    assert ("negative_time", "ttft@vllm-bench goes down to -250 ms: a clock was set back") in reading.cases[0].doubts
    assert ("no_share", "error_rate@vllm-bench is 1.025: errors are a share of what was tried") in reading.cases[
        0
    ].doubts


def test_more_cases_than_a_scenario_can_have_are_refused_before_anything_is_kept(changed, tmp_path):
    def multiply(document):
        row = document["benchmarks"][0]
        document["benchmarks"] = [
            row | {"name": f"{at} {'x' * 100_000}", "run_name": f"{at} {'x' * 100_000}"} for at in range(50)
        ]

    path = changed("google-benchmark-1.9.5.json", multiply)
    with pytest.raises(BenchError, match="50 cases are too many for one run"):
        imports.read(WorkspaceFolder(tmp_path / "ws"), path, None)
    assert not list((tmp_path / "ws" / ".bench" / "imports").iterdir())


def test_two_who_import_one_file_at_once_make_one_run(data, tmp_path):
    """What was read names the run before anybody makes it."""
    workspace = WorkspaceFolder(tmp_path)
    folders = [imports.read(workspace, data / "hyperfine-1.15.0.json", None) for _ in range(2)]
    assert folders[0].run.read_text() == folders[1].run.read_text() != ""


@check_table(
    "name",
    [
        "hyperfine-1.15.0.json",
        "wrk-4.1.0.txt",
        "locust-2.47.0_stats.csv",
        "k6-1.3-published-format.json",
        "pgbench-15.18_rate.10590",
    ],
)
def test_a_byte_order_mark_and_windows_line_ends_change_nothing(read, data, name, tmp_path):
    (kind,) = imports.kinds_of(data / name)
    wanted = read(kind, data / name)
    path = tmp_path / name
    path.write_bytes(b"\xef\xbb\xbf" + (data / name).read_bytes().replace(b"\n", b"\r\n"))
    assert imports.kinds_of(path) == [kind]
    assert [case.samples for case in read(kind, path).cases] == [case.samples for case in wanted.cases]
    path.write_bytes((data / name).read_text().encode("utf-16"))
    for asked in (lambda: imports.kinds_of(path), lambda: read(kind, path)):
        with pytest.raises(BenchError, match="UTF-16"):
            asked()
