"""Detectors against tallies and books made by hand: what was planted is named, and natural variance is not."""

import random
from types import SimpleNamespace

import pytest

from benchhouse.experiments.serving import contamination
from benchhouse.experiments.serving.tally import ServingTally
from benchhouse.load.load_record import Call, LoadRecord
from benchhouse.load.protocols.calls import CallResult
from benchhouse.load.shape import Shape

SECOND = 1_000_000_000
START = 100 * SECOND
CLOSED = Shape(concurrency=4, duration=5)
OPEN = Shape(rps=100, duration=5)


class Load:
    """A load of `window_s` seconds, written into a book request by request; times are seconds of the window."""

    def __init__(self, shape=CLOSED, window_s=5.0):
        self.shape, self.window_s = shape, window_s
        self.book = LoadRecord(ServingTally(None), start_ns=START, end_ns=START + round(window_s * SECOND))

    def ask(self, at, e2e, ttft=None, *, asked=4, tokens=4, events=4, error=None, **reply):
        call = Call(0, _ns(at), 0 <= at < self.window_s, SimpleNamespace(output_tokens=asked))
        call.sent_ns, call.ended_ns = call.due_ns, _ns(at + e2e)
        self.book.wrote(call)
        if error:
            self.book.settle(call, CallResult(error=error, detail=f"planted {error}"))
            return
        first = at + (e2e / 2 if ttft is None else ttft)
        between = (at + e2e - first) / max(events - 1, 1)
        stamps = [_ns(first + between * number) for number in range(events)]
        self.book.settle(call, CallResult(token_ns=stamps, output_tokens=tokens, **{"input_tokens": 10} | reply))

    def closed(self, law, clients=4, begin=-0.5, stall=(9.0, 9.0), **reply):
        """Clients that ask again at once; `law(at)` is a latency, and no answer ends within the stall."""
        for client in range(clients):
            at = begin + client * 0.003
            while at < self.window_s:
                e2e = law(at)
                if stall[0] <= at + e2e < stall[1]:
                    e2e = stall[1] - at
                self.ask(at, e2e, ttft=e2e, **reply)
                at += e2e
        return self

    def queue(self, rate, service, seed, servers=1, begin=-1.0):
        """Poisson arrivals at servers with exponential times, first come first served."""
        rng, at, free = random.Random(seed), begin, [begin] * servers
        while (at := at + rng.expovariate(rate)) < self.window_s:
            free.sort()
            free[0] = max(free[0], at) + rng.expovariate(1 / service)
            self.ask(at, free[0] - at)
        return self

    def find(self, output_asked=True, cached_share=None, **known):
        prompts = contamination.PromptFacts(output_asked=output_asked, **known)
        return dict(contamination.find(self.book.tally, self.book, self.shape, prompts, cached_share))


def _ns(at):
    return START + round(at * SECOND)


def steady(**options):
    return Load(**options).closed(lambda at: 0.05)


def test_a_steady_load_raises_nothing():
    assert steady().find() == {}


def test_repeated_prompts_are_named_with_their_share():
    for repeats, named in [(0.0, False), (0.01, False), (0.02, True), (1.0, True)]:
        found = steady().find(repeats=repeats)
        assert ("prompts_repeated" in found) == named
        assert not named or f"{repeats:.0%} of the requests" in found["prompts_repeated"]


def test_a_prefix_cache_is_named_beyond_what_was_asked_to_be_shared():
    for cached, shared, named in [(0, 0, False), (5, 0, True), (5, 0.5, False), (1, 0, False)]:
        load = Load()
        for number in range(100):
            load.ask(number * 0.05, 0.04, cached_tokens=cached)
        assert list(load.find(shared_share=shared)) == ["prefix_cache"] * named


def test_a_prefix_cache_is_named_where_only_the_servers_metrics_tell_of_it():
    assert "took 40% of the input" in steady().find(cached_share=0.4)["prefix_cache"]
    assert steady().find(cached_share=0.4, shared_share=0.35) == {}


def test_prompts_of_another_length_than_asked_are_named():
    """The server counts 10 a request; a template may have added a few dozen."""
    for asked, named in [(None, False), (10, False), (2, False), (100, True)]:
        assert list(steady().find(mean_input=asked)) == ["prompt_lengths"] * named


def test_prompts_that_are_far_longer_than_asked_are_named():
    load = Load()
    for number in range(100):
        load.ask(number * 0.05, 0.04, input_tokens=900)
    found = load.find(mean_input=256)["prompt_lengths"]
    assert "counted 900 input tokens a request, and 256 were asked for" in found


def test_outputs_cut_by_the_servers_own_limit_get_no_advice_about_stopping():
    load = Load()
    for number in range(100):
        load.ask(number * 0.05, 0.04, tokens=2, finish="length")
    assert "limit of tokens a request" in load.find()["short_outputs"]


def test_short_outputs_are_named_only_where_their_length_was_asked():
    load = Load()
    for number in range(100):
        load.ask(
            number * 0.05, 0.04, tokens=2 if number % 20 == 0 else 4, finish="stop" if number % 20 == 0 else "length"
        )
    assert load.find()["short_outputs"].startswith(
        "5 of 100 answers were shorter than asked (ended by length 95, stop 5)"
    )
    assert load.find(output_asked=False) == {}


def test_merged_tokens_are_named_but_not_the_one_token_that_only_ends_an_output():
    for events, named in [(12, False), (11, False), (3, True)]:
        load = Load()
        for number in range(100):
            load.ask(number * 0.05, 0.04, asked=12, tokens=12, events=events)
        assert list(load.find()) == ["merged_tokens"] * named


def test_answers_without_token_counts_are_counted():
    load = Load()
    for number in range(100):
        load.ask(number * 0.05, 0.04, tokens=None if number < 3 else 4)
    assert load.find()["tokens_unknown"].startswith("3 of 100 answers")


def test_failures_are_named_by_kind_and_time_outs_apart_from_them():
    load = Load()
    for number in range(100):
        load.ask(number * 0.05, 0.04, error={0: "reset", 1: "http_429", 2: "http_429", 3: "timeout"}.get(number))
    found = load.find()
    assert list(found) == ["timeouts", "failures"]
    assert found["timeouts"].startswith("1 of 100 requests had no complete answer in time (planted timeout)")
    assert found["failures"].startswith("3 of 100 requests failed (http_429 2, reset 1)")
    assert "First http_429: planted http_429" in found["failures"]


def test_failures_of_the_warm_up_are_no_failures_of_the_window():
    load = steady()
    load.ask(-0.2, 0.1, error="reset")
    assert load.find() == {}


def test_a_stall_is_named_with_its_length_and_place():
    rng = random.Random(1)
    for length in [0.3, 1.0, 2.0]:
        load = Load().closed(lambda at: 0.02 + rng.expovariate(100), stall=(1.5, 1.5 + length))
        (said,) = load.find().values()
        silence, began = (
            float(part.split(" s")[0]) for part in said.removeprefix("nothing came for ").split(", from ")
        )
        assert silence == pytest.approx(length, abs=0.1 * length)
        assert began == pytest.approx(1.5, abs=0.05)


def test_a_stall_is_seen_through_the_queue_that_it_leaves_behind():
    load = Load(OPEN)
    for number in range(
        -100, 500
    ):  # an answer every 10 ms, but none from 1.5 s to 2.5 s; then 20 ms a token of backlog
        at = number / 100
        back = max(0.0, 2.5 - at - 0.02) * (at >= 1.48) + max(0.0, 1.0 - (at - 2.5) / 2) * (at >= 2.48)
        load.ask(at, 0.02 + back, ttft=0.02 + back, events=1, tokens=1, asked=1)
    said = load.find()["stall"]
    assert said.startswith("nothing came for 1.0")
    assert "closed loop" not in said, "an open loop hides no stall"


def test_a_silence_before_or_after_the_window_is_no_stall_of_it():
    assert Load().closed(lambda at: 0.05, begin=-2.0, stall=(-1.5, -0.2)).find() == {}
    late = steady()
    late.ask(4.99, 3.0)
    assert late.find() == {}


def test_a_time_without_requests_is_no_stall():
    load = Load()
    for number in range(40):
        load.ask(number * 0.03, 0.02)
        load.ask(3.5 + number * 0.03, 0.02)
    assert load.find() == {}


def test_a_pause_of_the_load_process_is_its_own_fault_and_no_stall_of_the_server():
    load = Load().closed(lambda at: 0.05, stall=(1.5, 2.5))
    load.book.loop_lag.extend([100_000] * 250)
    assert "stall" in load.find()
    load.book.loop_lag.add(SECOND)
    assert load.find() == {}


def test_a_cold_start_is_named_with_both_levels_and_its_end():
    found = Load().closed(lambda at: 0.25 if at < 1 else 0.05, begin=0.0).find()
    assert list(found) == ["cold_start"]
    assert found["cold_start"].startswith("mean ttft is 250.0 ms when the window begins and 50.0 ms from 1.")


def test_what_was_not_streamed_has_a_latency_and_no_first_token():
    found = Load().closed(lambda at: 0.25 if at < 1 else 0.05, begin=0.0, events=0).find()
    assert found["cold_start"].startswith("mean latency is 250.0 ms when the window begins and 50.0 ms from 1.")


def test_a_drift_is_named_with_its_size_whichever_way_it_goes():
    for factor in [0.6, 1.4]:
        found = Load().closed(lambda at, factor=factor: 0.05 * (1 + (factor - 1) * max(at, 0) / 5)).find()
        assert list(found) == ["drift"]
        assert ("+" if factor > 1 else "-") in found["drift"]


def test_a_step_in_the_middle_is_a_drift_and_a_small_one_is_none():
    assert list(Load().closed(lambda at: 0.05 if at < 2.5 else 0.06).find()) == ["drift"]
    assert Load().closed(lambda at: 0.05 if at < 2.5 else 0.053).find() == {}


def test_a_drift_is_seen_between_hiccups():
    slow = {1.0, 2.2, 3.7}  # one slow request each
    load = Load()
    for number in range(500):
        at = number / 100
        load.ask(at, 0.05 * (1 + at / 10) + (0.2 if at in slow else 0.0))
    assert list(load.find()) == ["drift"]


def test_overload_is_named_and_not_called_drift():
    found = Load(OPEN).queue(rate=160, service=0.01, seed=1).find()
    assert list(found) == ["overload"]
    assert "requests piled up" in found["overload"]


def test_requests_that_outlast_the_warm_up_are_no_overload():
    load = Load(OPEN)
    for number in range(-100, 500):  # 100 a second, 4 s each: in flight grows to 400, latency does not
        load.ask(number / 100, 4.0)
    assert load.find() == {}


def test_a_load_that_is_to_change_is_not_blamed_for_changing():
    ramp = Shape(rps=50, arrivals={"kind": "ramp", "to": 250}, duration=5)
    load = Load(ramp).queue(rate=160, service=0.01, seed=1)
    assert load.find() == {}


def test_an_empty_window_raises_nothing():
    assert Load().find() == {}


def test_what_several_load_processes_saw_is_judged_as_one():
    whole = Load().closed(lambda at: 0.05 * (1 + max(at, 0) / 5), clients=4)
    parts = [Load().closed(lambda at: 0.05 * (1 + max(at, 0) / 5), clients=2) for _ in range(2)]
    parts[0].book.merge(parts[1].book)
    assert list(parts[0].find()) == list(whole.find()) == ["drift"]


LAWS = {
    "one client": lambda seed: Load().closed(_exponential(seed, 0.05), clients=1),
    "eight clients": lambda seed: Load().closed(_exponential(seed, 0.05), clients=8),
    "twenty clients": lambda seed: Load().closed(_exponential(seed, 0.1), clients=20),
    "half loaded queue": lambda seed: Load(OPEN).queue(50, 0.01, seed),
    "nearly full queue": lambda seed: Load(OPEN).queue(85, 0.01, seed),
    "four servers": lambda seed: Load(OPEN).queue(80, 0.04, seed, servers=4),
    "no queue": lambda seed: Load(OPEN).queue(80, 0.05, seed, servers=80),
}


def _exponential(seed, mean):
    rng = random.Random(seed)
    return lambda at: rng.expovariate(1 / mean)


@pytest.mark.parametrize("law", LAWS)
def test_natural_variance_raises_hardly_anything(law):
    """At the rate that the detectors are built for, two or more in 25 loads of a law have a chance below 1%."""
    blamed = [found for seed in range(25) if (found := LAWS[law](seed).find())]
    assert len(blamed) <= 1, blamed
