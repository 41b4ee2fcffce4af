import pickle
from types import SimpleNamespace

from benchhouse.experiments.serving.tally import ServingTally
from benchhouse.load.load_record import Call
from benchhouse.load.protocols.calls import CallResult
from benchhouse.load.slo import parse_slo

MS = 1_000_000
START, END = 10_000 * MS, 12_000 * MS
NAMES = ("requests", "events", "input_tokens", "output_tokens", "cached_tokens", "without_usage", "without_input",
         "counted_here", "short", "merged", "tokens_in_window", "finishes")  # fmt: skip


def call(due=0, sent=None, ended=100, measured=True, asked=None, said=None):
    """Times in milliseconds of the window."""
    made = Call(0, START + due * MS, measured, SimpleNamespace(output_tokens=asked, input_tokens=said))
    made.sent_ns, made.ended_ns = START + (due if sent is None else sent) * MS, START + ended * MS
    return made


def reply(*stamps, **more):
    return CallResult(token_ns=[START + stamp * MS for stamp in stamps], **more)


def tallied(*pairs, slo=None, count=None):
    tally = ServingTally(parse_slo(slo) if slo else None, count)
    missed = [tally.add(one, other, START, END) for one, other in pairs]
    return tally, missed


def values(stream):
    histogram = stream.histogram
    return [histogram.n, histogram.min and histogram.min / MS, histogram.max and histogram.max / MS]


def test_latencies_count_from_due_and_beside_that_from_sent():
    tally, _ = tallied((call(due=0, sent=30, ended=100), reply(50, 60, 90, output_tokens=3, input_tokens=5)))
    assert values(tally.ttft) == [1, 50, 50]
    assert values(tally.ttft_sent) == [1, 20, 20]
    assert values(tally.e2e) == [1, 100, 100]
    assert values(tally.e2e_sent) == [1, 70, 70]
    assert values(tally.itl) == [2, 10, 30]
    assert values(tally.tpot) == [1, 20, 20]
    assert values(tally.jitter) == [1, 20, 20]
    assert (tally.requests, tally.events, tally.output_tokens, tally.input_tokens) == (1, 3, 3, 5)


def test_a_failure_is_in_no_latency_and_a_warm_up_request_in_none_either():
    tally, _ = tallied(
        (call(), CallResult(error="timeout")),
        (call(due=-500, ended=-400, measured=False), reply(-450, output_tokens=1)),
    )
    assert tally.requests == 0
    assert all(values(getattr(tally, name))[0] == 0 for name in tally.STREAMS)


def test_an_answer_that_was_not_streamed_has_an_end_and_no_first_token():
    tally, _ = tallied((call(), CallResult(output_tokens=4)))
    assert (values(tally.e2e)[0], values(tally.ttft)[0], tally.tokens_in_window) == (1, 0, 4)


def test_tokens_in_the_window_are_those_whose_events_are_in_it_measured_or_not():
    tally, _ = tallied(
        (call(due=-100, ended=20, measured=False), reply(-20, -10, 0, 10, output_tokens=8)),
        (call(due=1990, ended=2020), reply(1995, 2000, 2005, 2010, output_tokens=4)),
    )
    assert tally.tokens_in_window == 4 + 1


def test_tokens_per_output_token_is_by_the_count_not_by_events():
    tally, _ = tallied((call(ended=200), reply(50, 90, 130, output_tokens=9)))
    assert values(tally.tpot) == [1, 10, 10]
    assert tally.merged == 1


def test_short_outputs_are_counted_where_a_length_was_asked():
    rows = [(call(asked=asked), reply(10, 20, output_tokens=got)) for asked, got in ((2, 2), (5, 2), (None, 2))]
    assert tallied(*rows)[0].short == 1


def test_what_the_server_does_not_count_the_tokenizer_does():
    words = lambda text: len(text.split())  # noqa: E731
    tally, _ = tallied(
        (call(said=6), reply(10, 20, text="a b c")),
        (call(said=6), reply(10, 20, text="a b c", output_tokens=9, input_tokens=7)),
        (call(measured=False, said=6), reply(10, 20, text="a b c")),
        count=words,
    )
    assert (tally.output_tokens, tally.input_tokens, tally.counted_here) == (3 + 9, 6 + 7, 1)
    assert (tally.without_usage, tally.without_input) == (0, 0)
    assert tally.tokens_in_window == 3 + 9 + 3
    nobody, _ = tallied((call(), reply(10, 20, text="a b c")))
    assert (nobody.without_usage, nobody.without_input, nobody.counted_here) == (1, 1, 0)


def test_each_objective_that_a_request_misses_has_its_bit():
    for answer, missed in [
        (reply(40, 50, output_tokens=2), 0b00),
        (reply(60, 70, output_tokens=2), 0b01),
        (reply(40, 70, output_tokens=2), 0b10),
        (CallResult(error="http_500"), 0b11),
    ]:
        assert tallied((call(), answer), slo="ttft.p99<50ms,itl.p99<20ms")[1] == [missed]


def test_the_tally_of_the_parts_is_the_tally_of_the_whole():
    rows = [
        (call(due=n * 7, ended=n * 7 + 40 + n, measured=n % 3 > 0, asked=4),
         CallResult(error="reset") if n % 5 == 0
         else reply(n * 7 + 10, n * 7 + 20 + n, output_tokens=3, finish=str(n % 2)))
        for n in range(60)
    ]  # fmt: skip
    whole, _ = tallied(*rows)
    parts = [pickle.loads(pickle.dumps(tallied(*rows[shard::3], count=len)[0])) for shard in range(3)]
    merged = parts[2]
    merged.merge(parts[0])
    merged.merge(parts[1])
    for name in whole.STREAMS:
        assert getattr(merged, name).histogram.to_json() == getattr(whole, name).histogram.to_json()
    assert {name: getattr(merged, name) for name in NAMES} == {name: getattr(whole, name) for name in NAMES}
