"""Detectors of effects that give the numbers of a serving trial another meaning. Each finding has a name.

Some check counted facts (repeats, failures, token counts): these raise no false alarm. The others check times, which
vary by nature; they are built for one false alarm in a thousand clean trials (`steadiness.py`).
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from benchhouse.experiments.serving.steadiness import LatencyShift, cold_start, drift, longest_silence, queue_growth
from benchhouse.experiments.serving.tally import ServingTally
from benchhouse.load.load_record import LoadRecord
from benchhouse.load.shape import Shape

REPEATED_SHARE = 0.01
CACHED_SHARE = 0.1  # beyond the requested shared part; the beginning of a chat template is in every prompt's cache
SHORT_SHARE = 0.01
MERGED_SHARE = 0.01
OTHER_LENGTH = 0.5  # of prompts: a word is roughly a token
TEMPLATE_TOKENS = 64
STALL_S = 0.25
COLD_FACTOR = 1.5
DRIFT_SHARE = 0.1
OVERLOAD_RISE = 1.2  # of latency, from the first to the last third
_CHANGING = ("ramp", "steps", "trace")  # arrivals that are not meant to be a steady state

Finding = tuple[str, str]


@dataclass(frozen=True)
class PromptFacts:
    """Facts about the prompts that were sent, independent of the server."""

    repeats: float = 0.0  # share of requests that repeated an earlier one
    shared_share: float = 0.0  # share of the input that prompts were requested to have in common
    mean_input: float | None = None  # requested tokens per prompt; None if the workload requests no length
    output_asked: bool = False  # whether output lengths were requested


def find(
    tally: ServingTally,
    book: LoadRecord,
    shape: Shape,
    prompts: PromptFacts = PromptFacts(),  # noqa: B008 - frozen
    cached_share: float | None = None,
) -> Iterator[Finding]:
    """Yield the name and evidence of each contamination; `cached_share` is that of the input by server metrics."""
    yield from _inputs(tally, prompts, cached_share or 0.0)
    yield from _outputs(tally, prompts.output_asked)
    yield from _failures(book)
    yield from _stall(tally, book, shape)
    if not (shape.open_loop and shape.law.kind in _CHANGING):
        yield from _course(tally, book, shape)


def _inputs(tally: ServingTally, prompts: PromptFacts, cached_share: float) -> Iterator[Finding]:
    """Check facts of the inputs. Repeats are counted over all that was sent, including warm-up, because a cache
    remembers that too; the rest uses the server's own counts. A chat template adds a few tokens to a short prompt."""
    if prompts.repeats > REPEATED_SHARE:
        cure = "raise prompts.distinct, shorten the load, or remove duplicates from the dataset"
        repeated = f"{prompts.repeats:.0%} of the requests repeated an earlier prompt"
        yield "prompts_repeated", f"{repeated}: a cache may have answered, whether the server tells or not ({cure})"
    share = max(tally.cached_tokens / tally.input_tokens if tally.input_tokens else 0.0, cached_share)
    if share > prompts.shared_share + CACHED_SHARE:
        cached = f"the server took {share:.0%} of the input from its cache ({prompts.shared_share:.0%} was asked to be"
        yield "prefix_cache", f"{cached} shared): time to first token is that of a cache"
    asked, counted = prompts.mean_input, tally.requests - tally.without_input
    if not asked or not counted:
        return
    mean = tally.input_tokens / counted
    if not asked * (1 - OTHER_LENGTH) <= mean <= asked * (1 + OTHER_LENGTH) + TEMPLATE_TOKENS:
        counts = f"the server counted {mean:.0f} input tokens a request, and {asked:.0f} were asked for"
        cure = "name prompts.tokenizer to have them made to measure"
        yield "prompt_lengths", f"{counts}: a word of the prompts is not a token of this model ({cure})"


def _outputs(tally: ServingTally, asked_output: bool) -> Iterator[Finding]:
    """Check facts of the outputs, by the server's own counts."""
    counted = tally.requests - tally.without_usage
    if asked_output and counted and tally.short / counted > SHORT_SHARE:
        cure = "extra: {ignore_eos: true} helps where the server knows it"
        if set(tally.finishes) <= {"length"}:
            inputs = f", {tally.input_tokens / tally.requests:.0f} of them input" if tally.input_tokens else ""
            cure = f"the server's limit of tokens a request may be reached{inputs}: raise it, or ask for less"
        short = f"{tally.short} of {counted} answers were shorter than asked (ended by {_counts(tally.finishes)})"
        yield "short_outputs", f"{short}: compare tokens, not requests ({cure})"
    if counted and tally.merged / counted > MERGED_SHARE:
        merged = f"{tally.events} events brought {tally.output_tokens} tokens"
        yield "merged_tokens", f"{merged}: itl is between events, tpot by token"
    if tally.without_usage:
        uncounted = f"{tally.without_usage} of {tally.requests} answers came without token counts"
        cure = "name target.tokenizer to have them counted here"
        yield "tokens_unknown", f"{uncounted}: no figure is by token ({cure})"


def _failures(book: LoadRecord) -> Iterator[Finding]:
    """Check facts of failures. Timeouts are separate: without these slowest requests, the tail looks short."""
    total, late = book.failed + book.succeeded, book.errors["timeout"]
    if late:
        unanswered = f"{late} of {total} requests had no complete answer in time ({book.details.get('timeout', '')})"
        effect = "the slowest are in no latency, so that percentiles are too low (raise timeout, or lower the load)"
        yield "timeouts", f"{unanswered}: {effect}"
    if failed := [(kind, count) for kind, count in book.errors.most_common() if kind != "timeout"]:
        first, failures = failed[0][0], sum(count for _, count in failed)
        kinds = f"{failures} of {total} requests failed ({_counts(dict(failed[:5]))}), the rest gives latencies"
        yield "failures", f"{kinds}. First {first}: {book.details.get(first, '')}"


def _stall(tally: ServingTally, book: LoadRecord, shape: Shape) -> Iterator[Finding]:
    """Find a silence that neither chance nor a pause of the load process (within error bounds) explains."""
    silence = longest_silence(tally.silence.gaps(book.window_s))
    if silence is None:
        return
    length_s, began_s, expected_s = silence
    pauses = book.loop_lag.histogram
    paused_s = pauses.quantile(1.0) / 1e9 if pauses.n else 0.0
    if length_s > max(STALL_S, expected_s) and paused_s < length_s / 2:
        hidden = ": in a closed loop hardly any request is hit by that, so percentiles hide it"
        gap = f"nothing came for {length_s:.2f} s, from {began_s:.2f} s into the window, with requests waiting"
        yield "stall", gap + ("" if shape.open_loop else hidden)


def _course(tally: ServingTally, book: LoadRecord, shape: Shape) -> Iterator[Finding]:
    """Find departures from a steady state: cold start, a growing queue, or drift (not under overload)."""
    batches = tally.history.batches(book.window_s, queued=shape.open_loop)

    def look(test: Callable[..., LatencyShift | None], **limit: float) -> tuple[str, LatencyShift] | None:
        """Return the first latency that changed, to first token or end to end; only one without streaming."""
        for name, column in (("ttft", 1), ("e2e", 2)) if tally.ttft.histogram.n else (("latency", 2),):
            at, means = [batch.at_s for batch in batches], [batch[column] for batch in batches]
            if change := test(at, means, queued=shape.open_loop, **limit):
                return name, change
        return None

    if batches and (cold := look(cold_start, factor=COLD_FACTOR)):
        name, change = cold
        batches = [batch for batch in batches if batch.at_s > change.until_s]
        after = f"{change.after:.1f} ms from {change.until_s:.1f} s on: a cold start (lengthen warmup)"
        yield "cold_start", f"mean {name} is {change.before:.1f} ms when the window begins and {after}"
    if overload := _overload(tally, book, shape):
        yield "overload", overload
    elif drifted := look(drift, share=DRIFT_SHARE):
        name, change = drifted
        levels = f"from {change.before:.1f} ms to {change.after:.1f} ms in the window ({change.share:+.0%})"
        cure = "find what changed, or lengthen warmup"
        yield "drift", f"mean {name} went {levels}: no one level stands for it ({cure})"


def _overload(tally: ServingTally, book: LoadRecord, shape: Shape) -> str | None:
    """Describe an overload of an open loop: requests pile up, and each waits longer. None if there is none."""
    if not shape.open_loop:
        return None
    rows = [book.seconds[second] for second in sorted(book.seconds)]
    while rows and not rows[-1].due:  # a load of a fixed number of requests ends with seconds in which none is due
        rows.pop()
    early_ms, late_ms = tally.history.first_and_last_third()
    grown = queue_growth([row.due for row in rows], [row.completed + row.errors for row in rows])
    if grown is None or late_ms < OVERLOAD_RISE * early_ms:
        return None
    return (
        f"{grown[0]} requests piled up in the window, for {grown[1]:.0%} of those due were answered, and mean e2e rose "
        f"from {early_ms:.0f} to {late_ms:.0f} ms: the server can't keep up with this rate, and latencies depend on "
        "how long one looks (lower rps; `bench slo find` finds the highest)"
    )


def _counts(kinds: Mapping[str, int]) -> str:
    return ", ".join(f"{name or 'no reason given'} {count}" for name, count in sorted(kinds.items()))
