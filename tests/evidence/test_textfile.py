"""Prometheus text files: clean by promtool's own words, within their labels and their budget, whole at every moment."""

import json
import math
import os
import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from services.prometheus import is_clean, needs_prometheus, promtool
from tables import check_rows

from benchhouse.evidence import textfile
from benchhouse.evidence.textfile import (
    LiveFile,
    RunFile,
    TextfileSample,
    count_series,
    render,
    results,
    trial_labels,
    within,
)
from benchhouse.schema.errors import BenchError
from benchhouse.schema.hot_metrics import (
    GIVEN,
    LABELS,
    Allowance,
    concurrency_bucket,
    labels_of_user,
    result_name,
    telemetry_name,
)
from benchhouse.schema.measurement import Measurement
from benchhouse.schema.telemetry import Series
from benchhouse.schema.trial import Meta, TrialSpec
from benchhouse.worker.monitors import nvml, prometheus

UNITS = [
    "ms",
    "s",
    "1",
    "%",
    "MB/s",
    "1/s",
    "tokens/s",
    "$",
    "W",
    "J",
    "degC",
    "items",
    "ops/ms",
    "km/h",
    "°",
    "",
    "MiB",
]


def spec_of(case: str = "c", **more) -> TrialSpec:
    return TrialSpec.model_construct(
        **{
            "run_id": "r1", "benchmark_case_id": case, "executor": "slurm", "partition": "gpu", "qos": None,
            "parameters": {"concurrency": 24}, "warmup": False,
        }
        | more
    )  # fmt: skip


def meta_of(outcome: str = "succeeded", gpus=("NVIDIA H200",)) -> Meta:
    return Meta.model_construct(outcome=outcome, hardware={"gpus": list(gpus)})


def measured(value: float = 1.0, metric: str = "ttft", stat: str = "p99", unit: str = "ms") -> Measurement:
    return Measurement(metric=metric, stat=stat, value=value, unit=unit)


def test_a_result_is_named_in_base_units():
    rows = [
        ("ttft", "p99", "ms", "ttft_p99_seconds", 1e-3),
        ("queue_ms", "value", "ms", "queue_seconds", 1e-3),
        ("output_tokens_per_s", "value", "tokens/s", "output_tokens_per_second", 1),
        ("requests_per_s", "value", "1/s", "requests_per_second", 1),
        ("throughput", "p50", "MB/s", "throughput_p50_bytes_per_second", 1e6),
        ("recall@10", "value", "1", "recall_10", 1),
        ("error_rate", "value", "%", "error_rate_ratio", 0.01),
        ("cost_per_request", "value", "$", "cost_per_request_dollars", 1),
        ("rate", "value", "1/ms", "rate_per_second", 1000),
        ("camelCase", "max", "GiB", "camel_case_max_bytes", 2**30),
    ]

    def check(metric, stat, unit, name, factor):
        assert result_name(metric, stat, unit)[:2] == (f"benchhouse_result_{name}", pytest.approx(factor))

    check_rows(check, rows)


def test_a_figure_that_is_invalid_is_not_exported():
    rows = [measured(stat="p50"), measured().model_copy(update={"valid": False, "error_bound": 50.0})]
    assert [sample.name for sample in results(rows, ())] == ["benchhouse_result_ttft_p50_seconds"]


@needs_prometheus
def test_every_series_that_is_declared_has_a_clean_name():
    samples = [
        TextfileSample(telemetry_name(item).name, 1.0, (("scope", "gpu0"),), item.description, item.kind)
        for item in (*nvml.SERIES, *prometheus.SERIES)
    ]
    assert len({sample.name for sample in samples}) == len(samples)
    is_clean(render(samples))


@needs_prometheus
@settings(max_examples=20, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.from_regex(r"[A-Za-z][A-Za-z0-9_.@-]{0,20}", fullmatch=True),
            st.sampled_from(["value", "p50", "p99", "max"]),
            st.sampled_from(UNITS) | st.text(max_size=6),
            st.floats(allow_nan=True, allow_infinity=True),
        ),
        min_size=1,
        max_size=30,
    ),
    st.text(max_size=12),
)
def test_whatever_a_strangers_metric_is_called_promtool_is_content(rows, label):
    samples = [
        TextfileSample(result_name(metric, stat, unit).name, value, (("cluster", label),), f"{metric} {label}")
        for metric, stat, unit, value in rows
    ]
    kept, _ = within(samples, 1000)
    if kept:
        is_clean(render(kept))


@needs_prometheus
@pytest.mark.parametrize(
    "name", ["gauge", "x_count", "total", "time_hours", "milliseconds", "a_kb_b", "sum", "info", "m"]
)
def test_words_that_promtool_refuses_are_changed(name):
    is_clean(render([TextfileSample(result_name(name, "value", "1").name, 1.0, (), "h")]))


def test_labels_are_those_of_the_list_and_no_others():
    labels = dict(trial_labels(spec_of(), "NVIDIA H200", {"cluster": "alps", "region": "eu"}))
    assert labels == {
        "run_id": "r1", "benchmark_case_id": "c", "cluster": "alps", "region": "eu", "gpu_model": "NVIDIA H200",
        "scheduler_path": "slurm/gpu", "concurrency_bucket": "32",
    }  # fmt: skip
    assert set(labels) <= set(LABELS)


def test_other_labels_are_refused():
    rows = ["request_id", "trace_id", "prompt_hash", "user", "team", "trial_id", "run_id", ""]

    def check(name):
        with pytest.raises(BenchError) as raised:
            labels_of_user({name: "x"})
        assert all(label in raised.value.hint for label in GIVEN)

    check_rows(check, rows)


def test_concurrency_goes_into_powers_of_two():
    rows = [
        (1, "1"),
        (2, "2"),
        (3, "4"),
        (64, "64"),
        (65, "128"),
        (None, ""),
        ("many", ""),
        (0, ""),
        (True, ""),
        (1e300, ""),
    ]

    def check(concurrency, bucket):
        assert concurrency_bucket(concurrency) == bucket

    check_rows(check, rows)


def test_the_last_trial_of_a_case_takes_the_place_of_the_one_before(tmp_path):
    file = RunFile(tmp_path, "r1")
    for value in (10, 20):
        file.take(spec_of("a"), meta_of(), [measured(value)])
    file.take(spec_of("b"), meta_of(), [measured(30)])
    file.take(spec_of("b"), meta_of("failed"), [])
    file.take(spec_of("b", warmup=True), meta_of(), [measured(99)])
    file.take(spec_of("b"), meta_of("invalid"), [measured(98)])
    file.count({"succeeded": 3, "out_of_memory": 1}, planned=9)
    file.write()
    lines = file.path.read_text().splitlines()
    found = {line.split('case_id="')[1][0]: line.rpartition(" ")[2] for line in lines if "ttft_p99_seconds{" in line}
    assert found == {"a": "0.02", "b": "0.03"}
    assert 'benchhouse_run_trials_out_of_memory{run_id="r1"} 1.0' in lines
    assert 'benchhouse_run_trials_planned{run_id="r1"} 9.0' in lines


def test_statistics_that_are_not_hot_and_windows_stay_in_the_evidence(tmp_path):
    file = RunFile(tmp_path, "r1")
    rows = [measured(stat="stdev"), measured(stat="p99.9"), measured().model_copy(update={"window": "first"})]
    file.take(spec_of(), meta_of(), rows)
    file.write()
    assert "ttft" not in file.path.read_text()


@needs_prometheus
def test_what_is_over_the_budget_is_dropped_counted_and_told(tmp_path):
    file = RunFile(tmp_path, "r1", budget=50)
    for case in range(30):
        file.take(spec_of(f"case{case:02}"), meta_of(), [measured(), measured(stat="p50"), measured(stat="mean")])
    file.count({"succeeded": 30}, 30)
    file.write()
    text = file.path.read_text()
    assert count_series(text) == 50
    assert file.dropped == 90 - (50 - 4)
    assert f'benchhouse_run_series_dropped{{run_id="r1"}} {file.dropped:.1f}' in text
    assert "case29" in text, "the newest cases stay"
    assert "case00" not in text
    is_clean(text)


def test_the_folder_has_one_budget_and_the_oldest_runs_go_first(tmp_path):
    for age, run in enumerate(("old", "older", "oldest")):
        file = RunFile(tmp_path, run, budget=17)
        file.take(spec_of(run_id=run), meta_of(), [measured(), measured(stat="p50"), measured(stat="max")])
        file.write()
        os.utime(file.path, (1e9 - age, 1e9 - age))
    (tmp_path / "of_somebody_else.prom").write_text("x 1\n" * 100)
    new = RunFile(tmp_path, "new", budget=17)
    new.take(spec_of(run_id="new"), meta_of(), [measured(), measured(stat="p50"), measured(stat="max")])
    new.write()
    assert new.removed == ["benchhouse_run_oldest.prom"]
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "benchhouse_run_new.prom", "benchhouse_run_old.prom", "benchhouse_run_older.prom", "of_somebody_else.prom",
    ]  # fmt: skip
    assert sum(count_series(path.read_text()) for path in tmp_path.glob("benchhouse_*")) <= 17


def test_two_metrics_of_one_name_are_written_once(tmp_path):
    file = RunFile(tmp_path, "r1")
    file.take(spec_of(), meta_of(), [measured(1, metric="one.two"), measured(2, metric="one_two")])
    file.write()
    assert file.path.read_text().count("benchhouse_result_one_two_p99_seconds{") == 1
    assert file.dropped == 1


def test_a_reader_never_sees_half_a_file(tmp_path):
    file = RunFile(tmp_path, "r1")
    for case in range(100):
        file.take(spec_of(f"c{case}"), meta_of(), [measured()])
    file.write()
    size, torn, done = count_series(file.path.read_text()), [], threading.Event()

    def watch():
        while not done.is_set():
            text = file.path.read_text()
            if count_series(text) != size or not text.endswith("\n"):
                torn.append(text)

    thread = threading.Thread(target=watch)
    thread.start()
    for _ in range(200):
        file.write()
    done.set()
    thread.join()
    assert torn == []
    assert [path.name for path in tmp_path.iterdir()] == [file.path.name], "no temporary file is left"


def test_the_file_can_be_read_by_the_collector_of_another_user(tmp_path):
    file = RunFile(tmp_path, "r1")
    before = os.umask(0o022)
    try:
        file.write()
    finally:
        os.umask(before)
    assert file.path.stat().st_mode & 0o777 == 0o644


@needs_prometheus
def test_live_values_carry_their_scope_and_go_with_the_trial(tmp_path):
    recorded = json.loads((Path(__file__).parents[1] / "worker" / "monitors" / "h200.json").read_text())[-1]["nvml"]
    declared = {item.name: item for item in nvml.SERIES}
    live = LiveFile(tmp_path, spec_of(), {"cluster": "alps"}, gpu_model="NVIDIA H200")
    extra = Series(name="odd", unit="1", family="node")
    live.write(
        [
            *((f"gpu{at}", declared[name], value) for at in (0, 1) for name, value in recorded.items()),
            ("node", extra, math.nan),
        ]
    )
    text = live.path.read_text()
    is_clean(text)
    labels = 'run_id="r1",benchmark_case_id="c",cluster="alps",gpu_model="NVIDIA H200",scheduler_path="slurm/gpu"'
    bucket = 'concurrency_bucket="32"'
    assert f'benchhouse_telemetry_gpu_power_watts{{{labels},{bucket},scope="gpu1"}} 658.332\n' in text
    assert "benchhouse_telemetry_gpu_energy_joules_total" in text
    assert "odd" not in text, "what is not known is not written"
    live.close()
    live.close()
    assert list(tmp_path.iterdir()) == []


def test_live_values_have_a_budget_too(tmp_path):
    live = LiveFile(tmp_path, spec_of(), budget=5)
    live.write((f"gpu{at}", nvml.POWER, 1.0) for at in range(8))
    assert (count_series(live.path.read_text()), live.dropped) == (5, 3)


def test_a_contract_says_how_many_series_there_may_be_and_with_which_labels(tmp_path):
    sink = {"seriesBudget": 10, "droppedLabels": ["request_id", "trace_id", "scheduler_path"]}
    contract = {"sinks": {"hotMetrics": sink}}
    other = RunFile(tmp_path, "other")
    other.take(spec_of(run_id="other"), meta_of(), [measured()])
    other.write()
    file = RunFile(tmp_path, "r1", allowance=Allowance.of(contract))
    for case in range(30):
        file.take(spec_of(f"case{case:02}", contract=contract), meta_of(), [measured(), measured(stat="p50")])
    file.write()
    text = file.path.read_text()
    assert (count_series(text), file.dropped, file.removed) == (10, 60 - 8, [])  # its own budget, not the folder's
    assert "scheduler_path" not in text
    assert 'benchmark_case_id="case29"' in text
    live = LiveFile(tmp_path, spec_of(contract=contract))
    live.write((f"gpu{at}", nvml.POWER, 1.0) for at in range(8))
    assert (count_series(live.path.read_text()), live.dropped) == (2, 6)


def test_a_contract_can_not_ask_for_more_series_than_there_may_be():
    assert Allowance.of({"sinks": {"hotMetrics": {"seriesBudget": 10**9, "droppedLabels": []}}}) == Allowance()


@needs_prometheus
def test_odd_label_values_are_escaped(tmp_path):
    text = render([TextfileSample("benchhouse_x", 1.0, (("cluster", 'a"b\\c\nd'),), "a\\b\nc")])
    assert promtool("check", "metrics", text=text).returncode == 0
    assert text.splitlines()[-1] == 'benchhouse_x{cluster="a\\"b\\\\c\\nd"} 1.0'


def test_samples_of_a_name_stand_together_behind_its_explanation():
    samples = [
        TextfileSample("b", 1, (("x", "1"), ("y", 'q"')), "one\ntwo"),
        TextfileSample("a", 2.5, help='say "a"', kind="counter"),
        TextfileSample("b", 3.0, (("x", "2"),), "other"),
    ]  # fmt: skip
    text = render(samples)
    assert text == (
        '# HELP a say "a"\n# TYPE a counter\na 2.5\n'
        '# HELP b one\\ntwo\n# TYPE b gauge\nb{x="1",y="q\\""} 1.0\nb{x="2"} 3.0\n'
    )
    assert count_series(text) == 3 and count_series("# x\n\na 1\n") == 1


def test_the_first_ones_are_kept_and_none_twice():
    one, two = TextfileSample("a", 1.0), TextfileSample("a", 2.0, (("x", "1"),))
    assert within(
        [one, TextfileSample("b", math.nan), one, two, TextfileSample("c", math.inf), TextfileSample("d", 4.0)], 2
    ) == ([one, two], 2)
    assert within([one], 0) == ([], 1)


def test_results_are_of_whole_trials_in_base_units_and_say_what_they_are():
    rows = [measured(20.0), measured(2.0, "qps", "value", "1/s"), measured().model_copy(update={"scope": "node"})]
    labels = (("run_id", "r1"),)
    assert results(rows, labels) == [
        TextfileSample(
            "benchhouse_result_ttft_p99_seconds", pytest.approx(0.02), labels, "ttft, p99, of the last trial of a case."
        ),
        TextfileSample("benchhouse_result_qps_per_second", 2.0, labels, "qps, of the last trial of a case."),
    ]


def test_sampled_values_have_their_scope_and_kind():
    series = Series(name="gpu_wait", unit="ms", family="gpu", kind="counter", description="Wait.")
    (plain,) = textfile.telemetry([("gpu1", Series(name="odd", unit="1", family="node"), 2.0)], ())
    (counted,) = textfile.telemetry([("gpu0", series, 2000.0)], (("run_id", "r1"),))
    assert (plain.value, plain.labels, plain.help, plain.kind) == (2.0, (("scope", "gpu1"),), "odd", "gauge")
    assert (counted.labels, counted.help, counted.kind) == ((("run_id", "r1"), ("scope", "gpu0")), "Wait.", "counter")
    assert counted.value == pytest.approx(2.0)


def test_a_run_without_trials_says_how_many_are_planned_and_no_time(tmp_path, monkeypatch):
    file = RunFile(tmp_path, "r1")
    file.count({"out_of_memory": 0}, planned=9)
    file.write()
    assert [line for line in file.path.read_text().splitlines() if "HELP" not in line and "TYPE" not in line] == [
        'benchhouse_run_series_dropped{run_id="r1"} 0.0',
        'benchhouse_run_trials_out_of_memory{run_id="r1"} 0.0',
        'benchhouse_run_trials_planned{run_id="r1"} 9.0',
    ]
    assert "Trials of the run: out of memory." in file.path.read_text()
    monkeypatch.setattr(textfile.time, "time", lambda: 1234.5)
    file.take(spec_of(), meta_of(gpus=()), [])
    file.write()
    assert 'benchhouse_run_last_trial_timestamp_seconds{run_id="r1"} 1234.5\n' in file.path.read_text()
    assert (
        file.path.name == "benchhouse_run_r1.prom"
        and LiveFile(tmp_path, spec_of()).path.name == "benchhouse_live_r1.prom"
    )


def test_labels_that_nothing_is_known_of_are_left_out():
    labels = trial_labels(spec_of(partition=None, qos="high", parameters={}), "", {})
    assert labels == (("run_id", "r1"), ("benchmark_case_id", "c"), ("scheduler_path", "slurm/high"))
