"""Playbooks on values: a cause needs a number that is worse for sure and a signal that moved far."""

from tables import check_table

from benchhouse.analysis.playbooks import PLAYBOOKS, diagnose
from benchhouse.analysis.playbooks.pending import cause_of
from benchhouse.analysis.playbooks.signals import odd_one_out, shift
from benchhouse.analysis.playbooks.values import ComparedNumber, ComparedPoint, MemberNumber, SeriesReading, Signal

QUIET = [0.010, 0.011, 0.009, 0.010, 0.012]
LOUD = [0.30, 0.33, 0.28, 0.31, 0.29]


def number(metric, stat, base, now, unit="ms", direction="lower", p=0.001, verdict="worse"):
    change = now / base - 1
    return ComparedNumber(
        metric=metric, stat=stat, unit=unit, direction=direction, base=base, now=now, change=change, low=change - 0.02,
        high=change + 0.02, verdict=verdict, p_adjusted=p,
    )  # fmt: skip


def readings(values, side="now", node="node1"):
    return [SeriesReading(trial_id=f"{side}-{at}", node=node, avg=value) for at, value in enumerate(values)]


def signal(scope, series, base, now, unit="1", rank=None):
    return Signal(
        scope=scope, series=series, unit=unit, phase="steady", rank=rank, base=readings(base, "base"), now=readings(now)
    )


TAIL = [
    number("latency", "p99", 20, 41),
    number("latency", "mean", 8, 8.3, p=0.8, verdict="no evidence of a difference"),
]
SLOWER = [number("tokens_per_s", "value", 1000, 780, unit="tokens/s", direction="higher")]
IDLE = signal("gpu0", "gpu_busy", [0.94, 0.95, 0.93, 0.94, 0.95], [0.66, 0.68, 0.65, 0.67, 0.66])
THROTTLED = signal("trial", "cgroup_throttled", QUIET, LOUD)


def causes(numbers, signals=(), **more):
    return [one.cause for one in diagnose(ComparedPoint(point="p", numbers=numbers, signals=list(signals), **more))]


def test_a_longer_tail_with_throttled_time_is_put_down_to_the_cpu_limit():
    (found,) = diagnose(ComparedPoint(point="p", numbers=TAIL, signals=[THROTTLED]))
    assert (found.playbook, found.cause, found.certainty) == ("tail_latency_regression", "cpu_throttling", "strong")
    assert found.evidence[0].now == LOUD and found.evidence[0].trials[0] == "now-0"
    assert "latency p99: 20 -> 41 ms (+105%" in found.symptoms[0]
    assert found.next and found.change


def test_without_a_number_that_is_worse_for_sure_there_is_no_diagnosis():
    doubtful = [number("latency", "p99", 20, 41, p=0.2), TAIL[1]]
    assert causes(doubtful, [THROTTLED]) == []
    assert causes([TAIL[1]], [THROTTLED]) == []


def test_without_a_signal_that_moved_there_is_no_diagnosis():
    assert causes(TAIL, [signal("trial", "cgroup_throttled", QUIET, QUIET[::-1])]) == []
    assert causes(TAIL) == []


def test_where_the_mean_grew_with_its_tail_only_a_root_cause_is_named_and_less_surely():
    slower = [number("latency", "p99", 20, 41), number("latency", "mean", 8, 15)]
    (found,) = diagnose(ComparedPoint(point="p", numbers=slower, signals=[THROTTLED]))
    assert (found.cause, found.certainty) == ("cpu_throttling", "moderate")
    assert "the mean grew with the tail" in found.why_so_sure
    assert causes(slower, [signal("service:vllm", "queue_time", QUIET, LOUD)]) == []


LATE = [number("ttft", "mean", 50, 104), number("ttft", "p50", 49, 100)]
FLAT = number("tpot", "mean", 20, 20.1, p=0.9, verdict="no evidence of a difference")


def test_a_first_token_that_comes_later_alone_is_told_as_the_servers_time_before_it():
    found, *others = diagnose(ComparedPoint(point="p", numbers=[*LATE, FLAT]))
    assert others == [] and found.title == "the server became slower before the first token"
    assert (found.certainty, found.side, found.evidence) == ("moderate", "service", [])
    assert found.symptoms[0].startswith("ttft mean: 50 -> 104 ms (+108%")
    assert "tpot mean: 20 -> 20.1" in found.why_so_sure


@check_table(
    "numbers",
    [
        LATE,  # of an answer in one piece nothing is known of the others
        [*LATE, number("tpot", "mean", 20, 32)],
        [*LATE, FLAT, number("itl", "mean", 20, 32)],
        [number("ttft", "mean", 50, 104, p=0.3), FLAT],
        [number("ttft", "p99", 50, 104), FLAT],
    ],
)
def test_the_first_token_is_not_blamed_without_certain_evidence(numbers):
    assert causes(numbers) == []


def test_what_follows_from_a_cause_comes_after_it():
    queue = signal("service:vllm", "requests_waiting", [1, 1.2, 0.9, 1.1, 1], [30, 33, 28, 31, 36], "requests")
    (found,) = diagnose(ComparedPoint(point="p", numbers=TAIL, signals=[queue, THROTTLED]))
    assert found.cause == "cpu_throttling"
    assert any("requests_waiting" in line for line in found.also)
    assert causes(TAIL, [queue]) == ["queueing"]


def test_gpus_that_wait_for_their_storage():
    pressure = signal("node", "io_pressure", QUIET, LOUD)
    (found,) = diagnose(ComparedPoint(point="p", numbers=SLOWER, signals=[IDLE, pressure]))
    assert (found.playbook, found.cause) == ("low_gpu_utilization", "storage")
    assert [one.series for one in found.evidence] == ["gpu_busy", "io_pressure"]


def test_gpus_that_wait_for_nothing_that_is_sampled_are_said_to_wait():
    (found,) = diagnose(ComparedPoint(point="p", numbers=SLOWER, signals=[IDLE]))
    assert (found.cause, found.side) == ("waiting_unexplained", "unknown")
    assert causes(SLOWER, [signal("node", "io_pressure", QUIET, LOUD)]) == []  # GPUs are not known to wait


def test_gpus_are_seen_by_an_exporter_as_well():
    busy = [
        signal("service:dcgm", f"dcgm_fi_dev_gpu_util_{gpu}", [0.9, 0.91, 0.9, 0.92, 0.9], [0.5, 0.52, 0.5, 0.51, 0.5])
        for gpu in range(2)
    ]
    (found,) = diagnose(ComparedPoint(point="p", numbers=SLOWER, signals=busy))
    assert found.cause == "waiting_unexplained"
    assert (found.evidence[0].scope, found.evidence[0].series) == ("all GPUs", "dcgm_fi_dev_gpu_util")


def ranks(slow=None, factor=1.5, side="now"):
    levels = [100, 101, 99, 102, 98]
    return {at: [value * (factor if at == slow else 1 + at / 1000) for value in levels] for at in range(8)}


def members(now, base):
    return [
        MemberNumber(kind="rank", name=f"rank {at}", metric="compute", unit="ms", direction="lower",
               base=readings(base[at], "base"), now=readings(now[at]))
        for at in now
    ]  # fmt: skip


STEPS = [number("step_time", "p99", 300, 420)]


def test_the_one_slow_rank_is_named():
    (found,) = diagnose(ComparedPoint(point="p", numbers=STEPS, members=members(ranks(5), ranks())))
    assert (found.cause, found.suspect) == ("straggler:slow_member", "rank 5")
    assert "no series of it tells why" in found.title


def test_a_rank_that_was_as_slow_before_did_not_make_the_run_slower():
    assert causes(STEPS, members=members(ranks(5), ranks(5))) == []


def test_a_rank_that_lags_in_most_trials_is_named_where_it_is_always_the_same():
    now = ranks(5)
    now[5] = [150.0, 98.0, 155.0, 148.0, 152.0]  # not in the second
    assert causes(STEPS, members=members(now, ranks())) == ["straggler:slow_member"]
    now[5] = [150.0, 98.0, 155.0, 101.0, 99.0]
    assert causes(STEPS, members=members(now, ranks())) == []


def test_several_slow_ranks_are_no_straggler():
    now = ranks(5)
    now |= dict.fromkeys((1, 2, 3), now[5])
    assert causes(STEPS, members=members(now, ranks())) == []


def test_the_hardware_of_the_slow_rank_is_the_reason():
    widths = [signal(f"gpu{at}", "pcie_width", [16] * 5, [8 if at == 2 else 16] * 5, "lanes") for at in range(4)]
    (found,) = diagnose(ComparedPoint(point="p", numbers=STEPS, signals=widths, members=members(ranks(5), ranks())))
    assert found.cause == "straggler:pcie_link"
    assert "gpu2" in found.title  # which GPU a rank has is not guessed: it is named beside it


def on_nodes(slow=None):
    """What each of four nodes waits for a core, that of the experiment first."""
    signals = []
    for at in range(4):
        name = f"node{at + 1}"
        now = LOUD if at == slow else QUIET
        scope = f"{name}/trial" if at else "trial"
        sides = {"base": readings(QUIET, "base", name), "now": readings(now, node=name)}
        signals.append(Signal(scope=scope, series="cpu_wait", unit="1", phase="steady", **sides))
    return signals


@check_table("slow", range(4))
def test_the_one_node_of_each_trial_whose_cores_others_use_is_named(slow):
    found = diagnose(ComparedPoint(point="p", numbers=STEPS, signals=on_nodes(slow)))[0]
    assert (found.cause, found.suspect) == ("straggler:noisy_neighbour", f"node{slow + 1}")
    assert f"--exclude=node{slow + 1}" in found.next[0]
    assert "straggler" not in " ".join(causes(STEPS, on_nodes()))


def test_a_rank_of_one_machine_whose_core_others_use_is_named_by_its_own_wait():
    waits = [signal(f"rank:{at}", "cpu_wait", QUIET, LOUD if at == 5 else QUIET, rank=at) for at in range(8)]
    (found,) = diagnose(ComparedPoint(point="p", numbers=STEPS, signals=waits, members=members(ranks(5), ranks())))
    assert (found.cause, found.suspect) == ("straggler:noisy_neighbour", "rank 5")


def told_by(metric, now, slow=None, kind="rank", quiet=40.0):
    """Four members, of which one has `now` in place of what the others have."""
    return [
        MemberNumber(
            kind=kind, name=f"node{at + 1}" if kind == "node" else f"rank {at}", metric=metric, unit="ms",
            direction="lower", base=readings([quiet + step for step in range(5)], "base"),
            now=readings([(now if at == slow else quiet) + step for step in range(5)]),
        )
        for at in range(4)
    ]  # fmt: skip


@check_table(
    "why, cause",
    [
        ({"rank_data_time": 90.0}, "straggler:data"),
        ({"rank_cpu_time": 60.0}, "straggler:slow_core"),
        ({}, "straggler:slow_member"),
    ],
)
def test_a_slow_rank_is_named_with_its_node_and_why(why, cause):
    told = [*told_by("own_step_time", 70.0, slow=2), *told_by("own_step_time", 70.0, slow=1, kind="node")]
    told += [
        member for name in ("rank_data_time", "rank_cpu_time") for member in told_by(name, why.get(name, 40.0), slow=2)
    ]
    (found,) = diagnose(ComparedPoint(point="p", numbers=STEPS, signals=[], members=told))
    assert (found.cause, found.suspect, found.node) == (cause, "rank 2", "node2")
    assert found.title.startswith("rank 2 on node2 lags behind its peers") and "--exclude=node2" in found.next[0]


def test_what_a_node_tells_of_itself_explains_the_rank_that_runs_there():
    told = [*told_by("own_step_time", 70.0, slow=2), *told_by("own_step_time", 70.0, slow=1, kind="node")]
    found = diagnose(ComparedPoint(point="p", numbers=STEPS, signals=on_nodes(1), members=told))[0]
    assert (found.cause, found.suspect, found.node) == ("straggler:noisy_neighbour", "rank 2", "node2")
    elsewhere = diagnose(ComparedPoint(point="p", numbers=STEPS, signals=on_nodes(3), members=told))[0]
    assert elsewhere.cause == "straggler:slow_member", "another node's trouble is not this rank's"


WAIT = number("queue_s", "value", 30, 300, unit="s")


def test_long_waits_need_a_sign_from_the_scheduler():
    pending = signal("service:slurm", "slurm_queue_pending", [5, 6, 5, 6, 5], [30, 32, 31, 33, 30])
    idle = signal("service:slurm", "slurm_nodes_idle", [5, 6, 5, 6, 5], [0, 0, 0, 0, 0])
    assert causes([], [pending, idle], wait=WAIT) == ["capacity"]
    assert causes([], [], wait=WAIT) == []
    assert causes([], [pending, idle], wait=WAIT.model_copy(update={"now": 35.0, "change": 0.17})) == []


def test_the_schedulers_own_word_is_evidence_where_none_of_its_series_was_sampled():
    (said,) = diagnose(
        ComparedPoint(point="p", numbers=[], wait=WAIT, reasons={"Resources": 4, "Priority": 3, "BeginTime": 9})
    )
    assert (said.cause, said.certainty) == ("capacity", "moderate")
    assert [one.says for one in said.evidence] == [
        "the batch system said Resources of 4 waiting",
        "the batch system said Priority of 3 waiting",
    ]
    assert causes([], [], wait=WAIT, reasons={"Dependency": 3}) == []
    assert causes([], [], wait=WAIT.model_copy(update={"p_adjusted": 0.2}), reasons={"Resources": 4}) == []


@check_table(
    "reason, cause",
    [("QOSMaxCpuPerUserLimit", "quota"), ("AssocGrpGRES", "quota"), ("Resources", "capacity"),
     ("ReqNodeNotAvail, UnavailableNodes:n1", "over_constrained"), ("Priority", "capacity"), ("Dependency", None)],
)  # fmt: skip
def test_slurms_own_reason_is_understood(reason, cause):
    assert cause_of({reason: 3}) == cause


def test_two_repetitions_prove_nothing():
    assert causes(TAIL, [signal("trial", "cgroup_throttled", QUIET[:2], LOUD[:2])]) == []


def test_a_series_that_the_base_lacks_is_weak_evidence_and_says_so():
    (found,) = diagnose(ComparedPoint(point="p", numbers=TAIL, signals=[signal("trial", "cgroup_throttled", [], LOUD)]))
    assert found.certainty == "weak" and "the base has no such series" in found.evidence[0].says


@check_table(
    "base, now, way, least, moved",
    [
        ([1.0, 1.1, 0.9], [2.0, 2.1, 1.9], "up", 0.1, True),
        ([1.0, 1.1, 0.9], [2.0, 2.1, 1.9], "down", 0.1, False),
        ([1.0, 1.1, 0.9], [2.0, 2.1, 1.9], "up", 5.0, False),  # not enough to matter
        ([1.0, 1.1, 0.9], [1.2, 1.1, 1.3], "up", 0.1, False),  # within the spread
        ([0.0, 0.0, 0.0], [0.0, 0.0, 0.0], "up", 0.0, False),
    ],
)
def test_a_shift_is_far_and_matters(base, now, way, least, moved):
    assert bool(shift(base, now, way, least)) == moved


def test_what_hits_all_members_of_a_trial_alike_hides_no_odd_one():
    wild = [100, 180, 60, 240, 130]
    rows = {f"rank {at}": readings([value * (1.3 if at == 3 else 1 + at / 500) for value in wild]) for at in range(6)}
    found = odd_one_out(rows, "up", 0.0, 0.1)
    assert found and found.member == "rank 3"


def test_every_playbook_of_the_contract_is_here():
    assert set(PLAYBOOKS) >= {
        "tail_latency_regression", "low_gpu_utilization", "distributed_straggler", "scheduler_backpressure",
    }  # fmt: skip
