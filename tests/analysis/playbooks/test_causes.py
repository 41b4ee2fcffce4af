"""By how much each series must move to speak for its cause, and how sure that makes a diagnosis."""

import pytest
from tables import check_table

from benchhouse.analysis.playbooks import diagnose
from benchhouse.analysis.playbooks.causes import how_sure, symptom_sentence
from benchhouse.analysis.playbooks.values import ComparedNumber, ComparedPoint, SeriesReading, Signal, SignalEvidence


def number(metric, stat, base, now, unit="ms", direction="lower", **more):
    usual = {"change": now / base - 1.0, "verdict": "worse", "p_adjusted": 0.001}
    return ComparedNumber(metric=metric, stat=stat, unit=unit, direction=direction, base=base, now=now, **usual | more)


def signal(scope, series, base, now, rank=None):
    def readings(side, value):
        return [SeriesReading(trial_id=f"{side}{at}", node="n", avg=value, low=0.0, peak=value) for at in range(5)]

    return Signal(
        scope=scope, series=series, unit="1", phase="trial", rank=rank, base=readings("a", base), now=readings("b", now)
    )


TAIL = [number("latency", "p99", 20, 41), number("latency", "mean", 8, 8.3)]
SLOWER = [number("tokens_per_s", "value", 1000, 780, unit="tokens/s", direction="higher")]
STEPS = [number("step_time", "p99", 300, 420)]
BUSY = signal("gpu0", "gpu_busy", 0.95, 0.66)
WAIT = number("queue_s", "value", 30, 300, unit="s")


def causes(numbers=(), signals=(), **more):
    return [
        one.cause for one in diagnose(ComparedPoint(point="p", numbers=list(numbers), signals=list(signals), **more))
    ]


@check_table(
    "cause, scope, series, least",
    [
        ("cpu_throttling", "trial", "cgroup_throttled", 0.02),
        ("cpu_throttling", "pod", "container_cpu_cfs_throttled_seconds_total", 0.02),
        ("cpu_throttling", "trial", "cgroup_throttled_periods", 0.5),
        ("restart", "pod", "kube_pod_container_status_restarts_total", 0.005),
        ("restart", "pod", "a_process_start_time_seconds", 1.0),
        ("restart", "pod", "kube_deployment_status_replicas", 1.0),
        ("restart", "pod", "kube_hpa_status_current_replicas", 1.0),
        ("restart", "trial", "cgroup_oom_kills", 0.005),
        ("restart", "service:a", "processes", 1.0),
        ("network_or_dns", "node", "net_drops", 1.0),
        ("network_or_dns", "node", "ping_loss", 0.005),
        ("network_or_dns", "node", "probe_dns_lookup_time", 0.002),
        ("network_or_dns", "node", "node_netstat_tcp_retranssegs", 1.0),
        ("cache_full", "service:a", "requests_preempted", 0.02),
        ("gpu_clocks_held_down", "gpu0", "gpu_throttled_heat", 0.05),
        ("storage_stalls", "node", "io_pressure", 0.02),
        ("storage_stalls", "node", "cpu_iowait", 0.05),
        ("storage_stalls", "trial", "major_faults", 20.0),
        ("storage_stalls", "trial", "swap_used", 64e6),
        ("noisy_neighbour", "trial", "cpu_wait", 0.05),
        ("noisy_neighbour", "node", "cpu_pressure", 0.05),
        ("noisy_neighbour", "node", "cpu_steal", 0.02),
        ("stall", "requests", "held_together", 0.02),
        ("queueing", "service:a", "queue_time", 0.05),
    ],
)
def test_a_longer_tail_is_attributed_to_signals_that_moved_enough(cause, scope, series, least):
    assert causes(TAIL, [signal(scope, series, 0.0, 1.01 * least)]) == [cause]
    assert causes(TAIL, [signal(scope, series, 0.0, 0.99 * least)]) == []


@check_table(
    "scope, series, base, more",
    [
        ("node", "io_pressure", 0.2, 0.5),
        ("trial", "swap_used", 1e9, 0.2),
        ("requests", "held_together", 0.1, 1.0),
        ("node", "cpu_steal", 0.2, 0.5),
    ],
)
def test_a_signal_that_was_large_before_must_grow_in_proportion(scope, series, base, more):
    assert causes(TAIL, [signal(scope, series, base, base * (1.01 + more))])
    assert causes(TAIL, [signal(scope, series, base, base * (0.99 + more))]) == []


@check_table(
    "cause, scope, series, least",
    [
        ("cpu_throttling", "trial", "cgroup_throttled", 0.02),
        ("storage", "node", "io_pressure", 0.02),
        ("storage", "node", "cpu_iowait", 0.05),
        ("storage", "node", "disk_busy", 0.2),
        ("storage", "node", "blocked", 0.5),
        ("network", "node", "net_errors", 1.0),
        ("network", "node", "node_netstat_tcp_retranssegs", 1.0),
        ("network", "node", "a_packet_loss", 0.005),
        ("network", "node", "node_infiniband_port_errors", 1.0),
        ("input_pipeline", "trial", "cpu_wait", 0.1),
        ("input_pipeline", "node", "cpu_pressure", 0.05),
        ("input_pipeline", "node", "cpu_busy", 0.5),
        ("input_pipeline", "trial", "cpu", 0.5),
    ],
)
def test_idle_gpus_are_attributed_to_signals_that_moved_enough(cause, scope, series, least):
    assert causes(SLOWER, [BUSY, signal(scope, series, 0.0, 1.01 * least)]) == [cause]
    assert causes(SLOWER, [BUSY, signal(scope, series, 0.0, 0.99 * least)]) == ["waiting_unexplained"]


@check_table(
    "base, now, waits",
    [
        (0.95, 0.79, True),
        (0.95, 0.81, False),  # nearly full
        (95.0, 79.0, True),
        (95.0, 81.0, False),
        (0.5, 0.44, True),
        (0.5, 0.456, False),  # less by a tenth is not less by enough
        (0.3, 0.26, False),
    ],
)
def test_a_gpu_waits_when_it_is_less_busy_than_it_was_and_not_nearly_full(base, now, waits):
    assert causes(SLOWER, [signal("gpu0", "gpu_busy", base, now)]) == ["waiting_unexplained"] * waits


@check_table(
    "slower, told",
    [
        (number("tokens_per_s", "value", 1000, 899, unit="tokens/s", direction="higher"), True),
        (number("tokens_per_s", "value", 1000, 901, unit="tokens/s", direction="higher"), False),
        (number("step_time", "mean", 100, 111), True),
        (number("step_time", "mean", 100, 109), False),
        (number("step_time", "max", 100, 150), False),
        (number("load_time", "mean", 100, 150), False),
        (number("step_time", "mean", 100, 150, change=None), False),
    ],
)
def test_throughput_must_have_fallen_by_a_tenth(slower, told):
    assert causes([slower], [BUSY]) == ["waiting_unexplained"] * told


def test_all_gpus_together_are_looked_at():
    gpus = [signal("gpu0", "gpu_busy", 0.95, 0.9), signal("gpu1", "gpu_busy", 0.95, 0.3)]
    (found,) = diagnose(ComparedPoint(point="p", numbers=SLOWER, signals=gpus))
    assert (found.evidence[0].scope, found.evidence[0].now) == ("all GPUs", [pytest.approx(0.6)] * 5)


@check_table(
    "cause, series, peers, just, not_quite",
    [
        ("pcie_link", "pcie_width", 16.0, 12.7, 12.9),
        ("pcie_link", "pcie_generation", 5.0, 3.9, 4.1),
        ("pcie_link", "pcie_replays", 0.0, 1.01, 0.99),
        ("nvlink", "nvlink_active", 18.0, 16.9, 17.1),
        ("nvlink", "nvlink_crc", 0.0, 1.01, 0.99),
        ("heat", "gpu_throttled_heat", 0.0, 0.051, 0.049),
        ("heat", "gpu_temperature", 60.0, 68.1, 67.9),
        ("heat", "gpu_temperature", 90.0, 99.1, 98.9),
        ("heat", "gpu_sm_clock", 1500.0, 1399.0, 1401.0),
        ("heat", "gpu_sm_clock", 3000.0, 2849.0, 2851.0),
        ("network_errors", "net_drops", 0.0, 1.01, 0.99),
        ("network_errors", "node_infiniband_port_errors", 0.0, 1.01, 0.99),
        ("network_errors", "node_netstat_tcp_retranssegs", 0.0, 1.01, 0.99),
        ("network_errors", "a_packet_loss", 0.0, 0.0051, 0.0049),
        ("cpu_throttling", "cgroup_throttled", 0.0, 0.0201, 0.0199),
        ("storage", "io_pressure", 0.0, 0.0201, 0.0199),
        ("storage", "cpu_iowait", 0.0, 0.051, 0.049),
        ("noisy_neighbour", "cpu_wait", 0.0, 0.101, 0.099),
        ("noisy_neighbour", "cpu_pressure", 0.0, 0.051, 0.049),
        ("noisy_neighbour", "cpu_steal", 0.0, 0.0201, 0.0199),
    ],
)
def test_a_member_that_stands_out_by_enough_is_why_all_wait(cause, series, peers, just, not_quite):
    def found(value):
        signals = [signal("x", series, peers, value if rank == 2 else peers, rank) for rank in range(5)]
        return [one for one in causes(STEPS, signals) if one.startswith("straggler")]

    assert found(just) == [f"straggler:{cause}"]
    assert found(not_quite) == []


@check_table(
    "symptom, told",
    [
        (number("step_time", "p99", 100, 106), True),
        (number("step_time", "p99", 100, 104), False),
        (number("steps", "value", 100, 94, unit="1/s", direction="higher"), True),
        (number("steps", "value", 100, 96, unit="1/s", direction="higher"), False),
        (number("step_time", "p99", 100, 150, change=None), False),
    ],
)
def test_steps_must_be_slower_by_five_percent(symptom, told):
    widths = [signal(f"gpu{at}", "pcie_width", 16.0, 8.0 if at == 2 else 16.0) for at in range(4)]
    assert causes([symptom], widths) == ["straggler:pcie_link"] * told


@check_table("before, told", [(0.0, True), (0.55, True), (0.75, False), (1.0, False)])
def test_a_member_that_stood_out_as_much_before_is_old_news(before, told):
    signals = [signal("x", "net_drops", 10.0 * before * (at == 1), 10.0 * (at == 1), at) for at in range(4)]
    assert ("straggler:network_errors" in causes(STEPS, signals)) is told


@check_table(
    "cause, series, least",
    [
        ("quota", "kueue_cluster_queue_resource_usage", 0.01),
        ("quota", "slurm_qos_limit", 1.0),
        ("over_constrained", "scheduler_unschedulable_pods", 0.5),
        ("admission", "kueue_admission_wait_time", 0.01),
        ("admission", "apiserver_admission_step_duration", 0.01),
        ("admission", "slurm_scheduler_mean_cycle", 0.1),
        ("capacity", "slurm_queue_pending", 1.0),
    ],
)
def test_a_long_wait_is_attributed_to_signals_that_moved_enough(cause, series, least):
    assert causes(signals=[signal("s", series, 0.0, 1.01 * least)], wait=WAIT) == [cause]
    assert causes(signals=[signal("s", series, 0.0, 0.99 * least)], wait=WAIT) == []


def test_idle_nodes_beside_waiting_jobs_are_fragmentation_and_none_of_them_alone():
    pending, idle = signal("s", "slurm_queue_pending", 10.0, 13.1), signal("s", "slurm_nodes_idle", 10.0, 12.1)
    assert causes(signals=[pending, idle], wait=WAIT) == ["fragmentation"]
    assert causes(signals=[pending, signal("s", "slurm_nodes_idle", 10.0, 11.9)], wait=WAIT) == ["capacity"]
    assert causes(signals=[idle], wait=WAIT) == []


@check_table("base, now, told", [(5, 15.1, True), (5, 14.9, False), (100, 151, True), (100, 149, False)])
def test_a_wait_is_long_when_it_is_ten_seconds_and_half_as_long_again(base, now, told):
    wait = number("queue_s", "value", base, now, unit="s")
    assert causes(signals=[signal("s", "slurm_queue_pending", 0.0, 9.0)], wait=wait) == ["capacity"] * told


@check_table(
    "tail, centre, told",
    [
        ((20, 26.2), (10, 10), True),
        ((20, 25.8), (10, 10), False),
        ((20, 40), (10, 13.4), True),
    ],
)
def test_a_tail_is_longer_by_three_tenths(tail, centre, told):
    numbers = [number("latency", "p99", *tail), number("latency", "mean", *centre, verdict="different")]
    assert causes(numbers, [signal("service:a", "queue_time", 0.0, 0.3)]) == ["queueing"] * told


@check_table("mean, told", [(13.4, True), (13.6, False)])
def test_a_median_that_moved_by_a_third_of_the_tail_is_more_than_a_tail(mean, told):
    numbers = [number("latency", "p99", 20, 40), number("latency", "mean", 10, mean)]
    assert causes(numbers, [signal("service:a", "queue_time", 0.0, 0.3)]) == ["queueing"] * told


@check_table("now, others, told", [(121, 100, True), (119, 100, False), (140, 109, True), (140, 111, False)])
def test_a_first_token_is_late_by_a_fifth_and_the_others_by_a_quarter_of_that_at_most(now, others, told):
    numbers = [number("ttft", "mean", 100, now), number("tpot", "mean", 100, others, verdict="different")]
    assert causes(numbers) == ["slower_before_first_token"] * told


def evidence(distance=10.0, trials=5, series="a", **more):
    fields = {"scope": "s", "unit": "1", "phase": "p", "stat": "avg", "trials": [], "says": "x"}
    return SignalEvidence(
        **fields | {"series": series, "distance": distance, "base": [0.0] * 5, "now": [1.0] * trials} | more
    )


@check_table(
    "shown, certainty",
    [
        ([evidence()], "strong"),
        ([evidence(8.0)], "strong"),
        ([evidence(7.9)], "moderate"),
        ([evidence(trials=4)], "weak"),
        ([evidence(trials=4), evidence(trials=4, series="b")], "moderate"),
        ([evidence(trials=4), evidence(trials=4)], "weak"),
        ([evidence(against="normal")], "weak"),
        ([evidence(against="normal"), evidence()], "strong"),
        ([evidence(base=[0.0] * 3)], "weak"),
        ([evidence(base=[0.0] * 3, against="peers")], "strong"),
        ([evidence(hits=4, p_value=0.01)], "moderate"),
        ([evidence(hits=4, p_value=0.011)], "weak"),
        ([evidence(hits=4, p_value=0.5), evidence(hits=3, p_value=0.001)], "moderate"),
    ],
)
def test_confidence_depends_on_distance_trials_and_series(shown, certainty):
    assert how_sure(shown)[0] == certainty


def test_how_sure_it_is_is_said_in_words():
    assert how_sure([evidence(9.4), evidence(3.0, series="b")])[1] == (
        "2 series moved, the farthest by 9 spreads, in 5 trials a side"
    )
    assert how_sure([evidence(hits=4, p_value=0.5), evidence(hits=3, p_value=0.012)])[1] == (
        "1 series came and went, seen in 3 of 5 trials; chance alone does that in 1.2% of such pairs of runs"
    )


def test_a_symptom_is_a_sentence():
    assert symptom_sentence(number("a", "p99", 20.06, 41.3, low=0.98, high=1.12)) == (
        "a p99: 20.1 -> 41.3 ms (+106%, 95% interval +98% to +112%)"
    )
    assert symptom_sentence(number("a", "value", 2000, 1000, unit="1")) == "a: 2,000 -> 1,000 (-50%)"
    assert symptom_sentence(number("a", "value", 1.0, 2.0, change=None)) == "a: 1 -> 2 ms"


def test_the_evidence_of_a_cause_is_told_farthest_first():
    near, far = signal("trial", "cgroup_throttled", 0.0, 0.03), signal("trial", "cgroup_throttled_periods", 0.0, 9.0)
    (found,) = diagnose(ComparedPoint(point="p", numbers=TAIL, signals=[near, far]))
    distances = [evidence.distance for evidence in found.evidence]
    assert len(distances) == 2 and distances == sorted(distances, reverse=True)


def test_the_word_of_the_batch_system_goes_before_a_stronger_sign():
    quota = signal("s", "slurm_qos_limit", 0.0, 1.5)
    pending = signal("s", "slurm_queue_pending", 0.0, 900.0)
    assert causes(signals=[quota, pending], wait=WAIT) == ["quota"]
    assert causes(signals=[quota, pending], wait=WAIT, reasons={"Resources": 3}) == ["capacity"]


def test_a_preempted_request_needs_no_base_to_be_odd():
    now = signal("service:a", "requests_preempted", 0.0, 0.5).model_copy(update={"base": []})
    assert causes(TAIL, [now]) == ["cache_full"]
