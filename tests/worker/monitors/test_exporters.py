"""Exporters by name, from pages in the formats that they document (tests/data/exporters)."""

import json
import math
from pathlib import Path

import pytest
from laboratory import Lab
from services.metrics_page import serving

from benchhouse.schema.telemetry import EXPORTERS
from benchhouse.worker.monitors.exporters import KNOWN, METRICS
from benchhouse.worker.monitors.prometheus import PrometheusEndpoint, choose, reader

PAGES = Path(__file__).parents[2] / "data" / "exporters"
NAN = math.nan


def page_of(name: str) -> str:
    return (PAGES / f"{name}.txt").read_text()


def read(page: str, exporter=None, patterns=(), labels=()) -> dict[str, float]:
    chosen = choose(page, patterns, labels, exporter)
    return dict(zip((wanted.series.name for _, wanted in chosen), reader(chosen)(page), strict=True))


EXPECTED = {
    "dcgm": {
        "dcgm_fi_dev_gpu_util_0": 0.97,
        "dcgm_fi_dev_gpu_util_1": 0.5,
        "dcgm_fi_dev_fb_used_0": 80536 * 2**20,
        "dcgm_fi_dev_total_energy_consumption_1": 88211930.045,
        "dcgm_fi_dev_memory_temp_0": 61,
        "dcgm_fi_dev_memory_temp_1": NAN,
        "dcgm_fi_prof_pcie_rx_bytes_0": 2764800902,
        "dcgm_fi_prof_pcie_rx_bytes_1": NAN,
        "dcgm_fi_dev_pcie_replay_counter_1": 17,
    },
    "nvlink": {"dcgm_fi_dev_nvlink_crc_data_error_count_total_1": 212, "dcgm_fi_prof_nvlink_tx_bytes_0": 214748364800},
    "pci": {
        "node_pcidevice_current_link_width_0000_1a_00_0": 16,
        "node_pcidevice_current_link_width_0000_3b_00_0": 8,
        "node_pcidevice_current_link_width_0000_5e_00_1": NAN,
        "node_pcidevice_current_link_transfers_per_second_0000_3b_00_0": 16e9,
    },
    "ping": {"ping_loss_ratio_gpu_8": 0, "ping_loss_ratio_gpu_9": 0.125, "ping_rtt_worst_seconds_gpu_9": 0.0019},
    "node-problem-detector": {
        "problem_counter_oomkilling": 2,
        "problem_gauge_kerneldeadlock": 1,
        "problem_gauge_readonlyfilesystem": 0,
    },
    "kueue": {
        "kueue_pending_workloads_bench_active": 3,
        "kueue_pending_workloads_bench_inadmissible": 11,
        "kueue_admission_wait_time_seconds_sum_bench": 1843.25,
        "kueue_admission_attempts_total_inadmissible": 87,
        "kueue_cluster_queue_resource_usage_bench_h100_nvidia_com_gpu": 32,
    },
    "slinky": {
        "slurm_partition_jobs_pending_total_gpu": 12,
        "slurm_partition_nodes_idle_total_gpu": 3,
        "slurm_scheduler_cycle_mean_seconds": 0.00094,
        "slurm_scheduler_queue_total": 14,
    },
}


def test_every_exporter_has_a_page_and_a_state():
    assert set(EXPECTED) == set(EXPORTERS) == set(KNOWN)
    assert {exporter.state for exporter in KNOWN.values()} == {"contract-tested"}
    assert len(METRICS) == sum(len(exporter.metrics) for exporter in KNOWN.values()), "no name has two meanings"


@pytest.mark.parametrize("name", EXPORTERS)
def test_values_come_in_their_unit_one_series_for_each_that_is_watched(name):
    seen = read(page_of(name), name)
    expected = EXPECTED[name]
    assert {series: seen[series] for series in expected} == pytest.approx(expected, nan_ok=True)


@pytest.mark.parametrize("name", EXPORTERS)
def test_nothing_else_of_a_page_is_taken_and_all_of_it_is_of_the_family(name):
    chosen = choose(page_of(name), (), (), name)
    assert {metric for metric, _ in chosen} <= set(KNOWN[name].metrics)
    assert {wanted.series.family for _, wanted in chosen} == {metric.family for metric, _ in _used(name, chosen)}
    assert KNOWN[name].family in {wanted.series.family for _, wanted in chosen}


def _used(name, chosen):
    return [(KNOWN[name].metrics[metric], wanted) for metric, wanted in chosen]


def test_gauges_that_end_in_total_are_gauges_and_counters_are_counters():
    kinds = {wanted.series.name: wanted.series.kind for _, wanted in choose(page_of("slinky"), (), (), "slinky")}
    assert set(kinds.values()) == {"gauge"}
    untyped = "\n".join(line for line in page_of("slinky").split("\n") if not line.startswith("#"))
    assert {wanted.series.kind for _, wanted in choose(untyped, (), (), "slinky")} == {"gauge"}
    kinds = {wanted.series.name: wanted.series.kind for _, wanted in choose(page_of("kueue"), (), (), "kueue")}
    assert kinds["kueue_evicted_workloads_total_bench_preempted"] == "counter"
    assert kinds["kueue_pending_workloads_train_active"] == "gauge"


def test_slurm_from_25_11_on_is_read_from_its_own_page():
    seen = read(page_of("slinky_25_11"), "slinky")
    assert seen == pytest.approx(
        {
            "slurm_jobs_pending": 14, "slurm_partition_jobs_pending_gpu": 12, "slurm_nodes_idle": 3,
            "slurm_sched_mean_cycle": 0.00094, "slurm_schedule_queue_len": 14,
        }
    )  # fmt: skip


def test_patterns_and_labels_narrow_an_exporter():
    assert read(page_of("dcgm"), "dcgm", ["*_GPU_UTIL"]) == {
        "dcgm_fi_dev_gpu_util_0": 0.97,
        "dcgm_fi_dev_gpu_util_1": 0.5,
    }
    by_host = read(page_of("dcgm"), "dcgm", ["*_GPU_UTIL", "*_POWER_USAGE"], ["Hostname"])
    assert by_host == pytest.approx(
        {"dcgm_fi_dev_power_usage_gpu_7": 612.431 + 688.02, "dcgm_fi_dev_gpu_util_gpu_7": 0.735}
    ), "power is added, shares are averaged"


def test_units_hold_also_where_the_exporter_is_not_named():
    chosen = dict(choose(page_of("dcgm"), ["DCGM_FI_DEV_TOTAL_*"], ["gpu"]))
    series = chosen["DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"].series
    assert (series.unit, series.family, series.kind) == ("J", "energy", "counter")


def test_another_program_at_that_address_is_reported():
    with serving(page_of("ping").encode()) as url:
        source = PrometheusEndpoint(url, exporter="dcgm")
    assert source.name == "service:dcgm"
    assert source.series == ()
    assert source.problems == [
        f"service:dcgm: {url} answers none of the metrics of dcgm (bench monitors list); values are missing"
    ]


def test_a_trial_keeps_the_series_of_its_endpoints_and_exporters_by_family(tmp_path):
    lab = Lab(tmp_path)
    vllm = b"vllm:num_requests_waiting 7\nvllm:num_requests_running 3\n"
    with (
        serving(page_of("dcgm").encode()) as gpus,
        serving(page_of("kueue").encode()) as queues,
        serving(vllm) as llm,
    ):
        endpoints = [
            {"url": gpus, "exporter": "dcgm"},
            {"url": queues, "exporter": "kueue"},
            {"url": llm, "name": "llm"},
            {"url": "http://127.0.0.1:1/metrics"},
        ]
        lab.run("slow", workload={"seconds": 1.2}, monitors={"interval": 0.1, "prometheus": endpoints})
    (trial,) = lab.trials()
    summary = json.loads((trial.folder / "telemetry" / "summary.json").read_text())
    gpu, queue, server = (summary["scopes"][f"service:{name}"]["series"] for name in ("dcgm", "kueue", "llm"))
    assert gpu["dcgm_fi_dev_gpu_temp_1"]["family"] == "gpu"
    assert gpu["dcgm_fi_dev_gpu_temp_1"]["phases"]["trial"]["max"] == 83
    assert queue["kueue_pending_workloads_bench_inadmissible"]["family"] == "scheduler"
    waiting = server["requests_waiting"]["phases"]["trial"]
    assert waiting["avg"] == waiting["max"] == 7
    assert waiting["n"] >= 2
    assert [line for line in summary["problems"] if "127.0.0.1:1" in line and "refused" in line]
    families = "SELECT DISTINCT family FROM telemetry_slice_fact WHERE scope = 'service:dcgm' ORDER BY family"
    answer = lab.bench("query", families, "--json").stdout
    assert [row["family"] for row in json.loads(answer)["rows"]] == ["energy", "gpu", "pcie"]
