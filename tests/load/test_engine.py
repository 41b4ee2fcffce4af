"""Whole loads against the mock server, whose log says what really happened."""

import gc
import os
import resource
import signal
import threading
import time
from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest
from laboratory import children, stopped, wait_until
from mocks.llm import MockLLM
from mocks.scripted import ScriptedServer

from benchhouse.drivers.openai import OpenAI
from benchhouse.experiments.serving.tally import ServingTally
from benchhouse.load.arrivals import StepRates, TraceArrivals
from benchhouse.load.certificate import certify
from benchhouse.load.engine import NotReached, run_load
from benchhouse.load.load_record import Call
from benchhouse.load.protocols.text import Generation
from benchhouse.load.shape import Shape
from benchhouse.load.source import Planned, RequestPool
from benchhouse.schema.errors import BenchError

MS = 1_000_000


@dataclass
class Prompt:
    text: str
    output_tokens: int = 4

    def as_text(self):
        return self.text


class Kept:
    """A tally that keeps everything."""

    def __init__(self):
        self.all = []

    def add(self, call, reply, start_ns, end_ns):
        self.all.append((call.index, call.measured, call.due_ns, call.sent_ns, call.ended_ns, reply))
        return int(reply.error is not None)

    def merge(self, other):
        self.all += other.all

    def streams(self):
        return ()

    @property
    def measured(self):
        return [row for row in self.all if row[1]]


def load(url, records=None, prompts=50, tokens=4, **shape):
    """`records` is the file for them."""
    driver = OpenAI(url, "mock", Generation("completions"))
    made = [Prompt(f"prompt {number}", tokens) for number in range(prompts)]
    pool = RequestPool([Planned(prompt, driver.request(prompt)) for prompt in made], seed=1)
    return run_load(lambda: driver, pool, Shape(records=records is not None, **shape), Kept, records=records)


# Closed loop


@pytest.mark.usefixtures("each_engine")
def test_a_closed_loop_keeps_exactly_its_concurrency_in_flight():
    with MockLLM(ttft_ms=20) as server:
        book = load(server.url, concurrency=7, requests=100, warmup=0)
        assert server.stats()["max_concurrent"] == 7
        assert server.stats()["max_connections"] == 7
        assert book.most_in_flight == 7
        assert book.connections_late == 0


def test_a_number_of_requests_is_measured_exactly_and_nothing_more_is_sent():
    with MockLLM(ttft_ms=1) as server:
        book = load(server.url, concurrency=5, requests=123, warmup=0)
        assert (book.sent, book.succeeded, book.unmeasured) == (123, 123, 0)
        assert len(server.truth()) == 123
        assert sorted(row[0] for row in book.tally.all) == list(range(123))


def test_warm_up_and_cool_down_are_sent_and_not_measured():
    with MockLLM(ttft_ms=10) as server:
        book = load(server.url, concurrency=4, duration=0.5, warmup=0.3, cooldown=0.3)
        truth = server.truth()
    assert len(truth) == book.sent + book.unmeasured == len(book.tally.all)
    inside = [row for row in truth if book.start_ns <= row.arrival_ns < book.end_ns]
    assert abs(book.sent - len(inside)) <= 8  # those on their way at the two edges
    assert book.unmeasured >= 40
    assert book.window_s == 0.5
    assert min(row[2] for row in book.tally.measured) >= book.start_ns
    assert max(row[2] for row in book.tally.measured) < book.end_ns


def test_throughput_counts_what_ended_in_the_window_measured_or_not():
    with MockLLM(ttft_ms=100) as server:
        book = load(server.url, concurrency=3, duration=1, warmup=0.25, cooldown=0.2)
        ends = [row.end_ns for row in server.truth()]
    inside = sum(book.start_ns <= end < book.end_ns for end in ends)
    assert abs(book.completed_in_window - inside) <= 3
    assert sum(second.completed for second in book.seconds.values()) == book.completed_in_window
    assert sum(second.due for second in book.seconds.values()) == book.sent
    assert book.seconds[0].in_flight == 3


def test_think_time_passes_between_an_answer_and_the_next_request():
    with MockLLM() as server:
        load(server.url, concurrency=1, requests=5, warmup=0, think_time=0.05)
        truth = server.truth()
    pauses = [after.arrival_ns - before.end_ns for before, after in pairwise(truth)]
    assert len(pauses) == 4 and min(pauses) > 49 * MS


def test_the_cpu_of_a_load_process_is_never_more_than_a_core():
    with MockLLM() as server:
        assert 0 < load(server.url, concurrency=4, requests=200, warmup=0, tokens=64).cpu_share <= 1.01


def test_what_is_frozen_stays_so_over_a_load():
    """As what a worker imports before it forks, of which no experiment is to copy a page."""
    gc.freeze()
    before = gc.get_freeze_count()
    with MockLLM() as server:
        load(server.url, concurrency=1, requests=2, warmup=0)
    assert gc.get_freeze_count() > before / 2 > 0  # some of it may have ended meanwhile


class KeptAndCounted(ServingTally):
    """A tally as of a serving load, that keeps every call too."""

    def __init__(self):
        super().__init__(None)
        self.kept = Kept()

    def add(self, call, reply, start_ns, end_ns):
        self.kept.add(call, reply, start_ns, end_ns)
        return super().add(call, reply, start_ns, end_ns)


def test_a_stall_in_a_closed_loop_hits_only_those_in_flight_and_is_a_silence_of_its_length():
    with MockLLM(ttft_ms=5, stall_at=0.5, stall_for=1) as server:
        driver = OpenAI(server.url, "mock", Generation("completions"))
        pool = RequestPool([Planned(Prompt("a"), driver.request(Prompt("a")))], 1)
        book = run_load(lambda: driver, pool, Shape(concurrency=2, duration=2, warmup=0), KeptAndCounted)
        ends = sorted(row.end_ns for row in server.truth())
    waits_s = [(row[4] - row[2]) / 1e9 for row in book.tally.kept.measured]
    assert sum(wait_s > 0.95 for wait_s in waits_s) == 2
    length_s, began_s = max(book.tally.silence.gaps(book.window_s))
    silence_s, after_ns = max(((later - earlier) / 1e9, earlier) for earlier, later in pairwise(ends))
    assert 0.97 <= length_s == pytest.approx(silence_s, abs=0.1)
    assert began_s == pytest.approx((after_ns - book.start_ns) / 1e9, abs=0.1)


# Open loop


@pytest.mark.usefixtures("each_engine")
@pytest.mark.serial
def test_an_open_loop_sends_when_it_is_due_and_counts_from_then():
    with MockLLM(ttft_ms=10) as server:
        shape = Shape(rps=100, duration=1, warmup=0.2, arrivals="constant")
        book = load(server.url, rps=100, duration=1, warmup=0.2, arrivals="constant")
        arrivals = [row.arrival_ns for row in server.truth()]
    assert (book.sent, book.unmeasured) == (100, 20)
    dues = sorted(row[2] for row in book.tally.all)
    assert {after - before for before, after in pairwise(dues)} == {10 * MS}
    late = [arrival - due for arrival, due in zip(arrivals, dues, strict=True)]
    assert min(late) >= 0
    assert sorted(late)[len(late) // 2] < 2 * MS
    assert certify(book, shape).offered == 100


def test_a_stall_shows_in_an_open_loop_as_long_as_it_was():
    """Requests due in a stall of one second wait for its rest: of 200 in 2 s, 100 wait evenly up to 1 s."""
    with MockLLM(stall_at=0.5, stall_for=1) as server:
        book = load(server.url, rps=100, duration=2, warmup=0, arrivals="constant")
        ends = [row.end_ns for row in server.truth()]
    at = -5  # the fifth largest of 100 waits in steps of 10 ms: 0.96 s, or more if the mock was late
    dues = sorted(row[2] for row in book.tally.measured)
    truth = sorted((end - due) / 1e9 for end, due in zip(ends, dues, strict=True))[at]
    assert truth > 0.95
    for since in (2, 3):  # from the due time, and from the send: there were connections enough, so that hides nothing
        waits = sorted((row[4] - row[since]) / 1e9 for row in book.tally.measured)
        assert waits[at] == pytest.approx(truth, rel=0.05)


def test_requests_beyond_the_most_in_flight_wait_and_are_told():
    with MockLLM(ttft_ms=200) as server:
        shape = {"rps": 100, "duration": 1, "warmup": 0, "arrivals": "constant", "max_in_flight": 4}
        book = load(server.url, **shape)
        assert server.stats()["max_concurrent"] <= 4
    assert book.most_in_flight == 4
    assert book.sent + book.never_sent == 100
    found = certify(book, Shape(**shape))
    assert found.delivered < 30
    assert "not_delivered" in [problem.code for problem in found.problems]
    # From the due time, the wait for a connection counts; from the send, it does not.
    assert max(row[4] - row[2] for row in book.tally.measured) > 2_000 * MS
    assert max(row[4] - row[3] for row in book.tally.measured) < 1_500 * MS


def test_waiting_for_room_is_latency_and_no_doubt_of_the_client():
    """One at a time, of which each takes 100 ms: the last of 20 has waited for almost a second and a half."""
    with MockLLM(ttft_ms=100) as server:
        shape = {"rps": 20, "duration": 1, "warmup": 0, "arrivals": "constant", "max_in_flight": 1}
        driver = OpenAI(server.url, "mock", Generation("completions"))
        pool = RequestPool([Planned(prompt, driver.request(prompt)) for prompt in [Prompt("prompt", 1)]], seed=1)
        book = run_load(lambda: driver, pool, Shape(**shape), lambda: ServingTally(None))
    waits, lag = book.tally.e2e.histogram, book.lag.histogram
    assert lag.max > 500 * MS
    assert waits.max > 500 * MS
    late = book.tally.e2e.bounds_ns()
    assert late["p99"] < lag.max / 2, "the wait for the server is not the client's"


def test_what_makes_a_call_late_makes_those_late_that_were_queued_behind_it():
    calls = [Call(number, due, True, None) for number, due in enumerate((0, 10, 20))]
    for call, (sent, ended) in zip(calls, [(7, 100), (103, 200), (201, 300)], strict=True):
        call.sent_ns, call.ended_ns = sent, ended
    calls[0].waited_ns = 2
    assert calls[1].late_ns == 93
    calls[1].follow(calls[0])
    calls[2].follow(calls[1])
    assert [call.late_ns for call in calls] == [7, 3 + 7 + 2, 1 + 3 + 7 + 2]


def test_a_stop_longer_than_the_timeout_fails_no_answer_that_came_in_time():
    """The requests in flight are answered while this process is stopped, and their answers lie in the sockets."""
    # A request that is stopped between its stamp and its first byte is late in truth: so they are few.
    with MockLLM(ttft_ms=400) as server, stopped(1.0, 3.0):
        book = load(server.url, concurrency=4, duration=5, warmup=0, timeout=1.5)
    assert book.loop_lag.histogram.max > 2_000 * MS
    assert book.errors == {} and book.succeeded > 4


def test_requests_that_never_got_a_connection_are_given_up_and_counted():
    with MockLLM(ttft_ms=300) as server:
        book = load(server.url, rps=100, duration=1, warmup=0, arrivals="constant", max_in_flight=1, timeout=0.5)
    assert book.never_sent > 50
    assert book.sent + book.never_sent == 100


def test_an_open_loop_of_few_requests_divides_by_the_whole_window():
    with MockLLM() as server:
        book = load(server.url, rps=2, duration=1, warmup=0, arrivals="constant")
    assert (book.sent, book.window_s) == (2, 1.0)


def test_steps_and_traces_bring_their_own_times(tmp_path):
    file = tmp_path / "trace.txt"
    file.write_text("10.0\n10.1\n10.1\n10.3\n")
    with MockLLM() as server:
        book = load(server.url, arrivals=TraceArrivals(file=str(file)), warmup=0)
        assert [(row[2] - book.start_ns) // MS for row in sorted(book.tally.all)] == [0, 100, 100, 300]
        assert 0.3 <= book.window_s < 1  # the load was over with the trace
        steps = StepRates(rates=(20, 60), each=0.5, gaps="constant")
        assert load(server.url, arrivals=steps, duration=1, warmup=0).sent == 40


def test_an_open_loop_of_a_number_of_requests_sends_exactly_those():
    with MockLLM() as server:
        book = load(server.url, rps=200, requests=50, warmup=0.1)
        assert book.sent == 50
        assert len(server.truth()) == 50 + book.unmeasured


# What goes wrong


def test_an_answer_that_comes_just_after_its_limit_is_a_time_out():
    """Limits are looked at every 20 ms; what comes in between is judged by its stamp."""
    with MockLLM(ttft_ms=11) as server:
        book = load(server.url, concurrency=1, requests=10, warmup=0, timeout=0.01)
    assert book.errors == Counter(timeout=10)
    assert book.succeeded == 0


def test_an_answer_that_never_ends_is_a_time_out_and_no_latency():
    with MockLLM(never_end=0.2, seed=3) as server:
        book = load(server.url, concurrency=4, requests=50, warmup=0, timeout=0.3)
    late = [row for row in book.tally.measured if row[5].error]
    assert book.errors == Counter(timeout=len(late)) and 3 <= len(late) <= 20
    assert book.succeeded == 50 - len(late)
    assert all(300 * MS <= row[4] - row[3] < 600 * MS for row in late)


@pytest.mark.parametrize("kind", [429, 500])
def test_refusals_are_counted_by_kind_with_the_servers_words(kind):
    with MockLLM(fail_status=kind, fail_share=0.3, seed=5) as server:
        book = load(server.url, concurrency=4, requests=200, warmup=0)
        failed = sum(row.status == kind for row in server.truth())
    assert book.errors == Counter({f"http_{kind}": failed}) and 30 < failed < 90
    assert book.succeeded == 200 - failed
    assert book.details[f"http_{kind}"]


@pytest.mark.usefixtures("each_engine")
def test_resets_and_cuts_are_counted_and_the_load_goes_on():
    with MockLLM(reset_share=0.1, cut_share=0.1, itl_ms=1, seed=5) as server:
        book = load(server.url, concurrency=4, requests=200, warmup=0)
        bad = sum(row.outcome in ("reset", "cut") for row in server.truth())
    assert book.errors == Counter(reset=bad) and bad > 10
    assert book.connections_late >= bad - 4


def test_a_server_that_closes_after_every_answer_costs_connections_and_nothing_else():
    with MockLLM(close=True) as server:
        book = load(server.url, concurrency=2, requests=40, warmup=0)
    assert (book.succeeded, book.failed, book.resent) == (40, 0, 0)
    assert book.connections == 40


def test_a_request_on_a_stale_connection_is_sent_again_once_and_counted():
    ok = b"HTTP/1.1 200 OK\r\nContent-Length: 14\r\n\r\ndata: [DONE]\n\n"

    def script(wire):  # every connection answers twice, and then goes without a word
        for _ in range(2):
            if wire.request():
                wire.send(ok)
        wire.request()
        wire.reset()

    with ScriptedServer(script) as server:
        book = load(server.url, concurrency=1, requests=7, warmup=0)
        assert book.resent == 3
        assert book.errors == Counter(empty=7)  # all were answered, if only with an empty stream
        assert len(server.requests) == 7 + 3


def test_a_server_that_goes_in_mid_run_ends_the_load_early_without_a_hot_loop():
    server = MockLLM(ttft_ms=5).start()

    def kill_when_busy():
        wait_until(lambda: server.stats()["requests"] > 100, "a hundred requests")
        os.kill(server.pid, signal.SIGKILL)

    threading.Thread(target=kill_when_busy, daemon=True).start()
    before, began = time.process_time(), time.monotonic()
    try:
        book = load(server.url, concurrency=8, duration=60, warmup=0)
    finally:
        server.stop()
    assert "has not taken a connection" in book.stopped
    assert time.monotonic() - began < 50
    assert time.process_time() - before < 3
    assert book.succeeded > 50
    assert book.errors["refused"] < 8 * 20 * 15  # each of 8 clients at most 20 times a second


def test_a_server_that_goes_in_the_warm_up_ends_the_load_too():
    server = MockLLM(ttft_ms=5).start()
    threading.Timer(0.3, lambda: os.kill(server.pid, signal.SIGKILL)).start()
    began = time.monotonic()
    try:
        book = load(server.url, rps=50, duration=60, warmup=60)
    finally:
        server.stop()
    assert book.stopped and time.monotonic() - began < 50


def test_a_port_without_a_server_is_told_before_the_load():
    with MockLLM() as server:
        url = server.url
    for processes in (1, 2):
        with pytest.raises(NotReached, match="refused: Connection refused"):
            load(url, concurrency=2, requests=1, processes=processes)


def test_a_bug_in_a_driver_is_an_error_of_the_client_and_ends_nothing():
    class Buggy(OpenAI):
        def read(self, exchange):
            raise KeyError("oops")

    with MockLLM() as server:
        driver = Buggy(server.url, "mock", Generation("completions"))
        pool = RequestPool([Planned(None, driver.request(Prompt("a")))], 1)
        book = run_load(lambda: driver, pool, Shape(concurrency=2, requests=6, warmup=0), Kept)
    assert book.errors == Counter(client=6)
    assert book.details == {"client": "KeyError: 'oops'"}


# Files


@pytest.fixture
def few_files():
    """A hard limit can't be raised again: so in a process of its own."""

    def call(limit, work):
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                os.closerange(3, 1 << 16)  # what tests before this one have open is not the load's
                resource.setrlimit(resource.RLIMIT_NOFILE, (min(limit, 64), limit))
                work()
                code = 0
            except BaseException as error:
                print(repr(error), flush=True)
            finally:
                os._exit(code)
        assert os.waitpid(pid, 0)[1] == 0

    return call


def test_more_connections_than_open_files_are_refused_before_the_first_one(few_files):
    with MockLLM() as server:

        def work():
            with pytest.raises(BenchError, match=r"300 requests in flight need 364 open files.* and one may have 256"):
                load(server.url, concurrency=300, requests=1)
            with pytest.raises(BenchError, match="may have 256"):
                load(server.url, rps=5, requests=1, max_in_flight=300)

        few_files(256, work)
        assert server.stats()["requests"] == 0


def test_the_soft_limit_is_raised_and_the_default_of_an_open_loop_lowered_to_the_hard_one(few_files):
    with MockLLM(ttft_ms=400) as server:

        def work():
            assert load(server.url, concurrency=150, requests=150, warmup=0).succeeded == 150
            book = load(server.url, rps=1000, duration=0.5, warmup=0, arrivals="constant", timeout=10)
            assert book.most_in_flight == 256 - 64
            assert book.succeeded + book.never_sent == 500 and not book.errors

        few_files(256, work)


# Processes


@pytest.mark.usefixtures("each_engine")
@pytest.mark.parametrize("shape", [{"concurrency": 5}, {"rps": 300}])
def test_two_processes_measure_what_was_asked_of_both_together(shape):
    with MockLLM(ttft_ms=2) as server:
        book = load(server.url, requests=101, warmup=0, processes=2, **shape)
        assert len(server.truth()) == 101
        assert server.stats()["max_concurrent"] <= (5 if "concurrency" in shape else 4096)
    assert (book.sent, book.succeeded, book.processes) == (101, 101, 2)
    assert len({row[0] for row in book.tally.all}) == 101
    assert book.lost == []


def test_the_schedule_of_two_processes_is_that_of_one():
    dues = []
    with MockLLM() as server:
        for processes in (1, 2):
            book = load(server.url, rps=200, duration=0.5, warmup=0, processes=processes)
            dues.append(sorted(row[2] - book.start_ns for row in book.tally.all))
    assert dues[0] == dues[1]


def test_a_load_process_that_is_killed_is_named_and_its_records_are_kept(tmp_path):
    from pyarrow import parquet

    with MockLLM(ttft_ms=5) as server:
        before = set(children(os.getpid()))

        def kill_the_second():
            wait_until(lambda: server.stats()["requests"] > 50, "the load to begin")
            os.kill(max(set(children(os.getpid())) - before), signal.SIGKILL)

        threading.Thread(target=kill_the_second, daemon=True).start()
        shape = {"concurrency": 4, "duration": 2, "warmup": 0, "processes": 2}
        book = load(server.url, tmp_path / "requests.parquet", **shape)
    assert [(lost.shard, lost.how) for lost in book.lost] == [(1, "ended by signal 9")]
    assert "shard_lost" in [problem.code for problem in certify(book, Shape(**shape)).problems]
    assert parquet.read_table(tmp_path / "requests.parquet").num_rows >= book.succeeded


def test_a_failure_inside_a_load_process_is_told_with_its_words(capfd):
    class Broken(Kept):
        def add(self, *_):
            raise RuntimeError("no room")

    with MockLLM() as server:
        driver = OpenAI(server.url, "mock", Generation("completions"))
        pool = RequestPool([Planned(None, driver.request(Prompt("a")))], 1)
        with pytest.raises(BenchError, match="RuntimeError: no room"):
            run_load(lambda: driver, pool, Shape(concurrency=2, requests=6, warmup=0, processes=2), Broken)
    assert "Traceback" in capfd.readouterr().err


# Records


def test_records_say_what_the_server_saw(tmp_path):
    from pyarrow import parquet

    file = tmp_path / "requests.parquet"
    with MockLLM(ttft_ms=20, itl_ms=5, fail_status=500, fail_share=0.2, seed=2) as server:
        book = load(server.url, file, concurrency=3, requests=60, warmup=0.1)
        truth = server.truth()
    table = parquet.read_table(file).to_pylist()
    assert len(table) == len(truth) == book.sent + book.unmeasured
    assert sum(row["measured"] for row in table) == 60
    assert Counter(row["error"] for row in table if row["measured"])["http_500"] == book.errors["http_500"]
    good, seen = [row for row in table if not row["error"]], [row for row in truth if row.status == 200]
    assert {(row["output_tokens"], row["events"], row["count"]) for row in good} == {(4, 4, 1.0)}
    assert sum(row["input_tokens"] for row in good) == sum(row.prompt_tokens for row in seen)
    for name, stamp in (("first_output_s", "first_ns"), ("last_output_s", "last_ns"), ("ended_s", "end_ns")):
        ours = sorted(book.start_ns + row[name] * 1e9 for row in good)
        theirs = sorted(getattr(row, stamp) for row in seen)
        off_ms = sorted((mine - its) / MS for mine, its in zip(ours, theirs, strict=True))
        assert off_ms[0] > -1 and off_ms[len(off_ms) // 2] < 5
    assert all(row["due_s"] == row["sent_s"] <= row["first_output_s"] <= row["last_output_s"] for row in good)
    assert not list(Path(tmp_path).glob("*.spool"))


# Truth


@pytest.mark.usefixtures("each_engine")
@pytest.mark.serial
def test_latencies_of_64_streams_are_those_that_the_server_saw():
    with MockLLM(ttft_ms=50, itl_ms=10) as server:
        book = load(server.url, concurrency=64, requests=640, warmup=0, tokens=16)
        truth = sorted(server.truth(), key=lambda row: row.first_ns)
    ours = sorted(row[5].token_ns for row in book.tally.all)
    assert len(ours) == len(truth) == 640
    off = sorted(mine[0] - theirs.first_ns for mine, theirs in zip(ours, truth, strict=True))
    assert abs(off[320]) < 0.5 * MS and off[int(0.95 * 640)] < 5 * MS
    ttfts = sorted(row[5].token_ns[0] - row[3] for row in book.tally.all)
    seen = sorted(row.ttft_ns for row in truth)
    assert -0.5 * MS < ttfts[320] - seen[320] < 10 * MS  # the server counts from when it got round to reading
    mine = sum(stamps[-1] - stamps[0] for stamps in ours) / 640 / 15
    theirs = sum(row.mean_gap_ns for row in truth) / 640
    assert abs(mine - theirs) < 0.5 * MS
