"""Detectors of what makes the numbers of a serving trial mean something else than they say. Each finding has a name.

Some look at facts that were counted (repeats, failures, token counts): these raise no false alarm. The others look at
times, which vary by nature; they are built for a false alarm in one of a thousand clean trials (`steadiness.py`).
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from benchhouse.experiments.serving.steadiness import Change, cold_start, drift, longest_silence, queue_growth
from benchhouse.experiments.serving.tally import ServingTally
from benchhouse.load.book import Book
from benchhouse.load.shape import Shape

REPEATED_SHARE = 0.01
CACHED_SHARE = 0.1  # beyond what was asked to be shared; the beginning of a chat template is in every prompt's cache
SHORT_SHARE = 0.01
MERGED_SHARE = 0.01
OTHER_LENGTH = 0.5  # of prompts: a word is a token, more or less
TEMPLATE_TOKENS = 64
STALL_S = 0.25
COLD_FACTOR = 1.5
DRIFT_SHARE = 0.1
OVERLOAD_RISE = 1.2  # of latency, from the first to the last third
_CHANGING = ("ramp", "steps", "trace")  # arrivals that are not to be one steady state

Finding = tuple[str, str]


@dataclass(frozen=True)
class PromptFacts:
    """What is known of the prompts that were sent, whatever the server made of them."""

    repeats: float = 0.0
    """Share of requests that said what an earlier one had said."""
    shared_share: float = 0.0
    """Share of the input that prompts were asked to have in common."""
    mean_input: float | None = None
    """Mean tokens of a prompt as asked for; None where the workload asks for none."""
    output_asked: bool = False
    """Whether lengths of outputs were asked for."""


def find(
    tally: ServingTally,
    book: Book,
    shape: Shape,
    prompts: PromptFacts = PromptFacts(),  # noqa: B008 - frozen
    cached_share: float | None = None,
) -> Iterator[Finding]:
    """Name and evidence of each contamination; `cached_share` of the input is what the server's metrics call cached."""
    yield from _repeated(prompts.repeats)
    yield from _cached(tally, prompts.shared_share, cached_share)
    yield from _inputs(tally, prompts.mean_input)
    yield from _outputs(tally, prompts.output_asked)
    yield from _failures(book)
    yield from _stall(tally, book, shape)
    if not (shape.open_loop and shape.law.kind in _CHANGING):
        yield from _course(tally, book, shape)


def _repeated(repeats: float) -> Iterator[Finding]:
    """A fact: counted over all that was sent, warm-up included, for a cache remembers that too."""
    if repeats > REPEATED_SHARE:
        yield (
            "prompts_repeated",
            (
                f"{repeats:.0%} of the requests repeated an earlier prompt: a cache may have answered, whether the "
                "server tells or not (raise prompts.distinct, shorten the load, or remove duplicates from the dataset)"
            ),
        )


def _cached(tally: ServingTally, shared_share: float, counted: float | None) -> Iterator[Finding]:
    """A fact, where the server tells: with each answer, or by its metrics."""
    told = tally.cached_tokens / tally.input_tokens if tally.input_tokens else 0.0
    share = max(told, counted or 0.0)
    if share > shared_share + CACHED_SHARE:
        yield (
            "prefix_cache",
            (
                f"the server took {share:.0%} of the input from its cache ({shared_share:.0%} was asked to be shared): "
                "time to first token is that of a cache"
            ),
        )


def _inputs(tally: ServingTally, asked: float | None) -> Iterator[Finding]:
    """A fact, by the server's own counts; a chat's template adds a few tokens to a short prompt."""
    counted = tally.requests - tally.without_input
    if not asked or not counted:
        return
    mean = tally.input_tokens / counted
    if not asked * (1 - OTHER_LENGTH) <= mean <= asked * (1 + OTHER_LENGTH) + TEMPLATE_TOKENS:
        yield (
            "prompt_lengths",
            (
                f"the server counted {mean:.0f} input tokens a request, and {asked:.0f} were asked for: a word of the "
                "prompts is not a token of this model (name prompts.tokenizer to have them made to measure)"
            ),
        )


def _outputs(tally: ServingTally, asked_output: bool) -> Iterator[Finding]:
    """Facts, by the server's own counts."""
    counted = tally.requests - tally.without_usage
    if asked_output and counted and tally.short / counted > SHORT_SHARE:
        yield (
            "short_outputs",
            (
                f"{tally.short} of {counted} answers were shorter than asked (ended by {_counts(tally.finishes)}): "
                f"compare tokens, not requests ({_helps(tally)})"
            ),
        )
    if counted and tally.merged / counted > MERGED_SHARE:
        yield (
            "merged_tokens",
            f"{tally.events} events brought {tally.output_tokens} tokens: itl is between events, tpot by token",
        )
    if tally.without_usage:
        yield (
            "tokens_unknown",
            (
                f"{tally.without_usage} of {tally.requests} answers came without token counts: no figure is by token "
                "(name target.tokenizer to have them counted here)"
            ),
        )


def _helps(tally: ServingTally) -> str:
    """Against short outputs: by why they ended."""
    if set(tally.finishes) <= {"length"}:
        inputs = f", {tally.input_tokens / tally.requests:.0f} of them input" if tally.input_tokens else ""
        return f"the server's limit of tokens a request may be reached{inputs}: raise it, or ask for less"
    return "extra: {ignore_eos: true} helps where the server knows it"


def _failures(book: Book) -> Iterator[Finding]:
    """Facts. Time-outs stand apart: they are the slowest requests, so that their absence makes the tail look short."""
    asked, late = book.failed + book.succeeded, book.errors["timeout"]
    if late:
        yield (
            "timeouts",
            (
                f"{late} of {asked} requests had no complete answer in time ({book.details.get('timeout', '')}): the "
                "slowest are in no latency, so that percentiles are too low (raise timeout, or lower the load)"
            ),
        )
    if failed := [(kind, count) for kind, count in book.errors.most_common() if kind != "timeout"]:
        first = failed[0][0]
        yield (
            "failures",
            (
                f"{sum(count for _, count in failed)} of {asked} requests failed ({_counts(dict(failed[:5]))}), the "
                f"rest gives latencies. First {first}: {book.details.get(first, '')}"
            ),
        )


def _stall(tally: ServingTally, book: Book, shape: Shape) -> Iterator[Finding]:
    """A silence that neither chance (one in a thousand trials) nor a pause of the load process explains.

    The latter is for the certificate to tell.
    """
    found = longest_silence(tally.silence.gaps(book.window_s))
    if found is None:
        return
    length_s, began_s, expected_s = found
    pauses = book.loop_lag.histogram
    paused_s = pauses.quantile(1.0) / 1e9 if pauses.n else 0.0
    if length_s > max(STALL_S, expected_s) and paused_s < length_s / 2:
        hidden = (
            "" if shape.open_loop else ": in a closed loop hardly any request is hit by that, so percentiles hide it"
        )
        yield (
            "stall",
            f"nothing came for {length_s:.2f} s, from {began_s:.2f} s into the window, with requests waiting{hidden}",
        )


def _course(tally: ServingTally, book: Book, shape: Shape) -> Iterator[Finding]:
    """Cold start, a queue that still grows, drift: the window was not one steady state.

    False alarms in one of a thousand trials for each of the three; drift is not looked for where overload explains it.
    """
    batches = tally.history.batches(book.window_s, queued=shape.open_loop)

    def look(test: Callable[..., Change | None], **limit: float) -> tuple[str, Change] | None:
        """The first latency that changed, to first token or end to end; what was not streamed has only one."""
        for name, column in (("ttft", 1), ("e2e", 2)) if tally.ttft.histogram.n else (("latency", 2),):
            at, means = [batch.at_s for batch in batches], [batch[column] for batch in batches]
            if found := test(at, means, queued=shape.open_loop, **limit):
                return name, found
        return None

    if batches and (cold := look(cold_start, factor=COLD_FACTOR)):
        name, change = cold
        batches = [batch for batch in batches if batch.at_s > change.until_s]
        yield (
            "cold_start",
            (
                f"mean {name} is {change.before:.1f} ms when the window begins and {change.after:.1f} ms from "
                f"{change.until_s:.1f} s on: a cold start (lengthen warmup)"
            ),
        )
    if overload := _overload(tally, book, shape):
        yield "overload", overload
    elif drifted := look(drift, share=DRIFT_SHARE):
        name, change = drifted
        yield (
            "drift",
            (
                f"mean {name} went from {change.before:.1f} ms to {change.after:.1f} ms in the window "
                f"({change.share:+.0%}): no one level stands for it (find what changed, or lengthen warmup)"
            ),
        )


def _overload(tally: ServingTally, book: Book, shape: Shape) -> str | None:
    """Of an open loop: what is asked for piles up, and each request waits longer than the one before."""
    if not shape.open_loop:
        return None
    rows = [book.seconds[second] for second in sorted(book.seconds)]
    while rows and not rows[-1].due:  # of a number of requests, while the last ones end
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


def _counts(found: Mapping[str, int]) -> str:
    return ", ".join(f"{name or 'no reason given'} {count}" for name, count in sorted(found.items()))
