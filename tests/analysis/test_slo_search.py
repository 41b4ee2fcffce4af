"""The search against services with a known knee; the full truth test on queues is benchmarks/slo_search.py."""

import importlib.util
import math
import sys
from pathlib import Path

import numpy as np
import pytest
from tables import check_table

from benchhouse.analysis.slo_search import LoadRange, RequestBatch, Search

_SCRIPT = Path(__file__).parents[2] / "benchmarks" / "slo_search.py"


@pytest.fixture(scope="module")
def queues():
    spec = importlib.util.spec_from_file_location("slo_search_on_queues", _SCRIPT)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def smooth(knee, share, slope):
    """A service whose odds of being over grow as a power of the load and are exactly the allowed ones at `knee`."""

    def over(load):
        odds = share / (1.0 - share) * math.exp(min(slope * math.log(load / knee), 40.0))
        return odds / (1.0 + odds)

    return over


def cliff(knee):
    return lambda load: 0.0 if load <= knee else 1.0


def run(search, services, seed=1, rate=None):
    """Independent requests; `rate` gives the throughput of a load that is not a rate itself."""
    generator = np.random.default_rng(seed)
    while probe := search.next():
        a_second = max(1, round(rate(probe.load) if rate else probe.load))
        counts = [a_second] * (probe.requests // a_second) + [probe.requests % a_second]
        batches = [
            RequestBatch(n, tuple(int(generator.binomial(n, p(probe.load))) for p in services)) for n in counts if n
        ]
        search.tell(probe.load, batches, sum(counts) / len(batches), latency_s=0.1)
    return search.result()


@pytest.mark.parametrize("slope", [4, 12, 60])
def test_a_knee_of_any_steepness_is_found_within_the_precision(slope):
    for seed in range(2):
        found = run(Search([0.05], first=7.0), [smooth(80.0, 0.05, slope)], seed)
        assert found.status == "found"
        assert found.knee == pytest.approx(80.0, rel=0.03)
        assert found.low < found.knee < found.high
        assert (math.log(found.high) - math.log(found.low)) / 2.0 <= 0.03


def test_the_interval_covers_the_knee_about_as_often_as_it_says():
    covered = 0
    for seed in range(20):
        found = run(Search([0.05], first=30.0), [smooth(80.0, 0.05, 12)], seed)
        covered += found.low <= 80.0 <= found.high
    assert covered >= 17  # 19 expected at 95%; 16 or fewer would happen once in sixty times


def test_a_cliff_is_found_by_halving_its_bracket():
    found = run(Search([0.05], first=10.0), [cliff(80.0)])
    assert found.status == "found"
    assert found.knee == pytest.approx(80.0, rel=0.03)


def test_the_first_clause_to_break_decides():
    services = [smooth(120.0, 0.01, 12), smooth(80.0, 0.05, 12), lambda load: 0.0]
    found = run(Search([0.01, 0.05, 0.001], first=20.0), services)
    assert found.knee == pytest.approx(80.0, rel=0.03)


def test_a_first_guess_above_the_knee_goes_down():
    found = run(Search([0.05], first=5000.0), [smooth(80.0, 0.05, 12)])
    assert found.knee == pytest.approx(80.0, rel=0.03)


def test_probes_gather_at_the_knee():
    found = run(Search([0.05], first=1.0), [smooth(80.0, 0.05, 12)])
    near = sum(point.requests for point in found.curve if 0.85 < point.load / 80.0 < 1.15)
    assert near > 2 / 3 * found.requests


def test_whole_loads_are_probed_at_whole_numbers_and_the_last_good_one_is_told():
    search = Search([0.05], first=4, loads=LoadRange(whole=True))
    found = run(search, [cliff(37.5)], rate=lambda load: 10.0 * load)
    assert all(point.load == int(point.load) for point in found.curve)
    assert found.status == "found"
    assert found.low <= 37 <= found.high
    assert found.knee in (36, 37)


def test_a_service_that_holds_at_the_highest_load_allowed_is_all_pass():
    found = run(Search([0.05], first=10.0, loads=LoadRange(highest=60.0)), [smooth(80.0, 0.05, 12)])
    assert (found.status, found.knee) == ("all_pass", 60.0)
    assert max(point.load for point in found.curve) == 60.0


def test_a_service_that_breaks_at_the_lowest_load_allowed_is_none_pass():
    found = run(Search([0.05], first=200.0, loads=LoadRange(lowest=100.0)), [smooth(80.0, 0.05, 12)])
    assert (found.status, found.knee) == ("none_pass", 0.0)


def test_a_knee_outside_the_loads_allowed_is_never_called_found():
    for seed in range(3):
        found = run(Search([0.05], first=10.0, loads=LoadRange(highest=75.0)), [smooth(80.0, 0.05, 12)], seed)
        assert found.status in ("all_pass", "budget")


def test_the_budget_is_kept_to_the_request_and_what_is_known_is_told():
    found = run(Search([0.01], first=10.0, requests=5000), [smooth(80.0, 0.01, 12)])
    assert (found.status, found.requests) == ("budget", 5000)
    assert found.low <= found.knee <= found.high


def test_a_budget_too_small_for_a_bracket_gives_an_open_interval():
    found = run(Search([0.01], first=1.0, requests=600), [smooth(80.0, 0.01, 12)])
    assert (found.status, found.high) == ("budget", math.inf)


def test_a_probe_without_requests_is_refused():
    with pytest.raises(ValueError, match="no requests"):
        Search([0.01], first=1.0).tell(1.0, [RequestBatch(0, (0,))], 0.0)


@check_table("arguments", [{"lowest": 5.0, "highest": 1.0}, {"lowest": -1.0}])
def test_impossible_bounds_are_refused(arguments):
    with pytest.raises(ValueError, match="expected 0 < lowest"):
        Search([0.01], first=1.0, loads=LoadRange(**arguments))


def test_the_queue_of_the_benchmark_obeys_erlang(queues):
    case = queues.Case(4, 0.95, 0.5)
    counted = queues.simulate(case, [30.0] * 8, [40_000] * 8, [np.random.default_rng(i) for i in range(8)])
    share = sum(over.sum() for _, over, _ in counted) / sum(n.sum() for n, _, _ in counted)
    assert share == pytest.approx(queues.share_over(30.0, case), rel=0.12)
    single = queues.Case(1, 0.95, 1.5)
    assert queues.share_over(8.0, single) == pytest.approx(math.exp(-3.0))
    assert queues.true_knee(single) == pytest.approx(10.0 - math.log(20.0) / 1.5)


@pytest.mark.slow("it simulates millions of requests in a queue")
def test_the_knee_of_a_queue_is_found_although_its_slow_requests_come_in_clumps(queues):
    case = queues.CASES[2]
    knee = queues.true_knee(case)
    searches, _ = queues.search_all(case, knee, runs=4, seed=3)  # benchmarks/slo_search.py makes hundreds
    results = [search.result() for search in searches]
    assert max(abs(result.knee / knee - 1.0) for result in results) <= 0.03
    assert sum(result.low <= knee <= result.high for result in results) >= 3


def test_a_search_that_begins_at_the_lowest_load_allowed_goes_up():
    found = run(
        Search([0.05], first=1.0, loads=LoadRange(whole=True)), [smooth(37.5, 0.05, 12)], rate=lambda load: 10.0 * load
    )
    assert found.status == "found" and found.knee in (36, 37)


def limited(search, services, can_deliver, seed=1):
    """As `run`, with a client that can't deliver loads above a limit; the loads it was asked for in vain."""
    generator, in_vain = np.random.default_rng(seed), []
    while probe := search.next():
        if probe.load > can_deliver:
            in_vain.append(probe.load)
            if not search.undelivered(probe.load):
                break
            continue
        counts = [max(1, round(probe.load))] * max(1, round(probe.requests / max(1, probe.load)))
        batches = [RequestBatch(n, tuple(int(generator.binomial(n, p(probe.load))) for p in services)) for n in counts]
        search.tell(probe.load, batches, sum(counts) / len(counts))
    return search.result(), in_vain


def test_a_load_that_the_client_cannot_deliver_bounds_the_search_and_the_result_says_so():
    result, in_vain = limited(Search([0.05], first=20.0), [smooth(200.0, 0.05, 12)], can_deliver=50.0)
    assert (result.status, result.client_limit) == ("client_limited", min(in_vain))
    assert 40.0 <= result.knee <= 50.0, "the highest load that was delivered"


def test_a_client_that_cannot_deliver_the_first_load_is_asked_for_less():
    result, in_vain = limited(Search([0.05], first=20.0), [smooth(200.0, 0.05, 12)], can_deliver=6.0)
    assert in_vain[:2] == [20.0, 10.0]
    assert result.status == "client_limited" and 4.5 <= result.knee <= 6.0


def test_a_knee_below_the_clients_limit_is_found_all_the_same():
    result, in_vain = limited(Search([0.05], first=200.0), [smooth(80.0, 0.05, 12)], can_deliver=110.0)
    assert in_vain == [200.0] and (result.status, result.client_limit) == ("found", 200.0)
    assert result.knee == pytest.approx(80.0, rel=0.03)


def test_a_client_that_delivers_nothing_ends_the_search_at_an_eighth():
    result, in_vain = limited(Search([0.05], first=20.0), [smooth(200.0, 0.05, 12)], can_deliver=0.0)
    assert in_vain == [20.0, 10.0, 5.0, 2.5] and result.probes == 0
    _, in_vain = limited(
        Search([0.05], first=4.0, loads=LoadRange(whole=True)), [smooth(200.0, 0.05, 12)], can_deliver=0.0
    )
    assert in_vain == [4.0, 2.0, 1.0]


def test_whole_loads_that_cannot_be_delivered_are_bounded_by_whole_ones():
    result, _ = limited(
        Search([0.05], first=1.0, loads=LoadRange(whole=True)), [smooth(200.0, 0.05, 12)], can_deliver=5.0
    )
    assert (result.status, result.knee) == ("client_limited", 5.0)
