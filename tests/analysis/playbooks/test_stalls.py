"""Stalls among other reasons for slow requests, by the order in which requests end: none of these made the rule."""

from random import Random

from tables import check_table

from benchhouse.analysis.playbooks import diagnose
from benchhouse.analysis.playbooks.stalls import longest_hold
from benchhouse.analysis.playbooks.values import ComparedNumber, ComparedPoint, SeriesReading, Signal

TRIALS = 5
LATENCY = {"metric": "latency", "unit": "ms", "direction": "lower"}
TAIL = [
    ComparedNumber(**LATENCY, stat="p99", base=20, now=41, change=1.05, verdict="worse", p_adjusted=0.001),
    ComparedNumber(**LATENCY, stat="mean", base=8, now=8.3, change=0.04, verdict="no evidence of a difference"),
]


def signal(scope, series, base, now, unit="1"):
    sides = [[SeriesReading(trial_id=f"{side}{at}", node="n", avg=value) for at, value in enumerate(values)]
             for side, values in (("a", base), ("b", now))]  # fmt: skip
    return Signal(scope=scope, series=series, unit=unit, phase="trial", base=sides[0], now=sides[1])


def causes(signals):
    return [one.cause for one in diagnose(ComparedPoint(point="p", numbers=TAIL, signals=signals))]


def ended(requests):
    """How long each took, in the order in which they ended."""
    return [end - begin for end, begin in sorted((end, begin) for begin, end in requests)]


def closed(draw, clients=8, each=150, stalls=(), share=1.0, usual_s=0.005, slow=0.0):
    """Clients that ask again when they have their answer; a stall holds a share of them until its end."""
    requests = []
    for client in range(clients):
        at = draw.uniform(0, usual_s)
        for _ in range(each):
            end = at + usual_s * draw.lognormvariate(0, 0.3) + (0.3 if draw.random() < slow else 0.0)
            for begin, length in stalls:
                if client < share * clients and begin < end and at < begin + length:
                    end = max(end, begin + length + draw.uniform(0, 0.001))
            requests.append((at, end))
            at = end + draw.uniform(0, usual_s)
    return ended(requests)


def opened(draw, rate, count=1500, stalls=(), usual_s=0.004, burst=1.0):
    """Requests that come when they come, to a server with one place; a burst doubles what comes for a while."""
    requests, at, free = [], 0.0, 0.0
    for index in range(count):
        at += draw.expovariate(rate * (burst if count * 0.4 < index < count * 0.6 else 1.0))
        begin = max(at, free)
        for stall, length in stalls:
            begin = stall + length if stall <= begin < stall + length else begin
        free = begin + usual_s * draw.uniform(0.8, 1.2)
        requests.append((at, free))
    return ended(requests)


def said(make, base, now):
    draw = Random(7)
    holds = [[longest_hold(make(draw, **given)) for _ in range(TRIALS)] for given in (base, now)]
    return causes([signal("requests", "held_together", *holds, unit="s")])


@check_table(
    "make, base, stalled",
    [
        (closed, {}, {"stalls": [(0.7, 0.1)]}),
        (closed, {}, {"stalls": [(0.2, 1.5), (2.5, 1.5)]}),
        (closed, {}, {"stalls": [(0.5, 0.25)], "share": 0.5}),
        (closed, {"clients": 16}, {"clients": 16, "stalls": [(0.9, 0.3)], "share": 0.25}),
        (closed, {"clients": 2, "usual_s": 0.02}, {"clients": 2, "usual_s": 0.02, "stalls": [(1.0, 0.4)]}),
        (opened, {"rate": 60}, {"rate": 60, "stalls": [(3.0, 0.5)]}),
        (opened, {"rate": 120}, {"rate": 120, "stalls": [(at, 0.2) for at in (1.0, 4.0, 9.0)]}),
    ],
)
def test_a_stall_is_named_whatever_its_length_place_and_share(make, base, stalled):
    assert said(make, base, stalled) == ["stall"]


@check_table(
    "make, base, now",
    [
        (closed, {}, {}),
        (closed, {"usual_s": 0.02}, {"usual_s": 0.03}),
        (closed, {"each": 400}, {"each": 400, "slow": 0.004}),
        (closed, {"each": 400}, {"each": 400, "slow": 0.03}),
        (closed, {}, {"stalls": [(0.7, 0.3)], "share": 0.125}),
        (opened, {"rate": 100}, {"rate": 100, "burst": 3.0}),
        (opened, {"rate": 100}, {"rate": 190}),
    ],
)
def test_slowness_for_another_reason_is_not_a_stall(make, base, now):
    assert said(make, base, now) == []


def test_a_root_comes_before_the_stall_that_it_makes_and_the_stall_before_its_queue():
    stall = signal("requests", "held_together", [0.01] * 5, [0.4] * 5, unit="s")
    queue = signal("service:vllm", "requests_waiting", [1.0] * 5, [9.0] * 5)
    throttled = signal("trial", "cgroup_throttled", [0.0] * 5, [0.3] * 5)
    assert causes([queue, stall]) == ["stall"]
    assert causes([queue, stall, throttled]) == ["cpu_throttling"]


@check_table("took", [[], [0.1], [0.1] * 5, [9.0, 0.1, 0.1, 0.1, 0.1]])
def test_few_requests_or_a_single_slow_request_give_no_stall(took):
    assert longest_hold(took) == 0.0
