"""Requests of a serving trial: the prompts as the driver sends them, and the tally of the replies."""

from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice, takewhile
from math import ceil
from pathlib import Path
from time import monotonic_ns
from typing import Any, NamedTuple

from benchhouse.experiments.serving.inputs import ServingTarget, ServingWorkload
from benchhouse.experiments.serving.lengths import load_tokenizer
from benchhouse.experiments.serving.prompts import (
    MAX_DEFAULT_PROMPTS,
    ConversationPrompts,
    Prompt,
    PromptSet,
    SyntheticPrompts,
    build_prompts,
)
from benchhouse.experiments.serving.tally import ServingTally
from benchhouse.http.client import HttpClient, NoAnswer
from benchhouse.load.arrivals import TraceArrivals
from benchhouse.load.engine import NotReached
from benchhouse.load.protocols.calls import CallResult, HttpDriver
from benchhouse.load.protocols.text import Generation, TextDriver
from benchhouse.load.source import Planned, RequestPool, RequestSource
from benchhouse.schema.errors import BenchError
from benchhouse.schema.experiment import Context

_FEWEST_PROMPTS = 1000
_USUAL_EVENTS = 100  # of an answer whose length the model decides


class RequestFacts(NamedTuple):
    """Facts that a tally needs about a request; the text is already in its bytes."""

    output_tokens: int | None
    input_tokens: int | None = None  # by the target's tokenizer, if there is one


class PromptRequests:
    """All requests of a trial, made before the measured time."""

    def __init__(self, target: ServingTarget, urls: Sequence[str], workload: ServingWorkload, ctx: Context) -> None:
        """Make the requests, which are the same for all `urls`; their Host is that of the first."""
        self._spec = workload.asked
        self._slo = workload.objectives
        self._batch = workload.batch
        self.api = target.api or ("completions" if self._batch > 1 else "chat")
        if self._batch > 1 and self.api == "chat":
            hint = "target.api: completions, or batch: 1"
            raise BenchError("a chat request holds one conversation, not a batch", hint)
        expected = _expected(workload) * self._batch
        self.prompts = build_prompts(self._spec, requests=expected, seed=ctx.seed, words=ctx.trial_id)
        self._tokens: Callable[[str], int] | None = load_tokenizer(Path(target.tokenizer)) if target.tokenizer else None
        chatting = isinstance(self._spec, ConversationPrompts)
        generation = Generation(
            api=self.api,
            stream=target.stream,
            batch=self._batch,
            extra=target.extra,
            keep_text=chatting or self._tokens is not None,
            keep_thoughts=self._tokens is not None and not chatting,  # a conversation's history has no thoughts
        )
        make: TextDriver = ctx.driver(target.driver)
        model = target.model or _only_model(urls, target)
        self._driver = make(urls[0], model, generation, api_key=target.api_key, headers=target.headers)
        self.source: RequestSource
        if isinstance(self._spec, ConversationPrompts):
            self.source = Conversations(self.prompts, self._driver, ctx.seed, self._spec.think_time)
        else:
            batches = ceil(len(self.prompts) / self._batch)
            planned = [self._planned(number) for number in range(batches)]
            self.source = RequestPool(planned, ctx.seed, events=_mean_events(planned) if target.stream else 1.0)

    def _planned(self, number: int) -> Planned:
        """Return the n-th request; a batch at the end of the pool continues with its start."""
        prompts = [self.prompts[number * self._batch + place] for place in range(self._batch)]
        output_tokens = max(prompt.output_tokens or 0 for prompt in prompts) * self._batch
        input_tokens = None
        if count := self._tokens:  # only the server knows what a chat template adds
            input_tokens = sum(count(message["content"]) for prompt in prompts for message in prompt.as_messages())
        data = self._driver.request(prompts if self._batch > 1 else prompts[0])
        return Planned(RequestFacts(output_tokens or None, input_tokens), data)

    def driver(self) -> HttpDriver:
        return self._driver

    @property
    def tally(self) -> Callable[[], ServingTally]:
        return partial(ServingTally, self._slo, self._tokens)  # can be sent to another node

    def repeats(self, requests: int) -> float:
        """Return the share of `requests` requests that repeat an earlier one."""
        prompts = requests * self._batch
        return self.prompts.repeats(prompts) / prompts if prompts else 0.0

    @property
    def mean_input(self) -> float | None:
        """Mean requested tokens of the prompts of a request; None if the workload requests none."""
        mean = None if isinstance(self._spec, ConversationPrompts) else self.prompts.mean_input
        return None if mean is None else self._batch * mean

    def shared_share(self, tally: ServingTally) -> float:
        """Return the share of input that was requested to be repeated: a shared prefix, or a conversation's history."""
        if isinstance(self._spec, ConversationPrompts):
            return 1.0
        if isinstance(self._spec, SyntheticPrompts) and self._spec.shared_prefix_tokens and tally.input_tokens:
            return min(self._spec.shared_prefix_tokens * tally.requests / tally.input_tokens, 1.0)
        return 0.0


def _mean_events(planned: Sequence[Planned]) -> float:
    """Return the mean requested tokens per answer, with a usual number if none is requested."""
    return sum(plan.item.output_tokens or _USUAL_EVENTS for plan in planned) / max(len(planned), 1)


class Conversations:
    """Turns of conversations, each with the real answers before it; one conversation per concurrent request."""

    needs_replies = True
    events = float(_USUAL_EVENTS)
    alone = "the next turn of a conversation needs the answers before it, which one process has"

    def __init__(self, prompts: PromptSet, driver: HttpDriver, seed: int, think_time_s: float = 0.0) -> None:
        self.seed = seed
        self._prompts, self._driver, self._think_ns = prompts, driver, round(think_time_s * 1e9)
        self._ready: deque[tuple[int, Prompt]] = deque()  # next turns whose history is known, and their earliest time
        self._begun = 0

    def take(self, index: int) -> Planned:
        if self._ready and self._ready[0][0] <= monotonic_ns():
            prompt = self._ready.popleft()[1]
        else:
            prompt = self._prompts.conversation(self._begun)[0]
            self._begun += 1
        return Planned(prompt, self._driver.request(prompt))

    def answered(self, item: Any, reply: CallResult) -> None:
        turns = self._prompts.conversation(item.conversation)
        if reply.error is None and item.turn + 1 < len(turns):
            self._ready.append((monotonic_ns() + self._think_ns, turns[item.turn + 1].after(item, reply.text)))


def _expected(workload: ServingWorkload) -> int:
    """Return the number of requests to send, including warm-up; a guess if it depends on the server's speed."""
    requested = workload.requests or 0
    if requested and not workload.warmup and not workload.cooldown:
        return requested
    if not workload.open_loop:
        return max(_FEWEST_PROMPTS, 50 * (workload.concurrency or 0), 2 * requested)
    around_s = workload.warmup + (workload.window_s or 0.0) + workload.cooldown
    if isinstance(workload.law, TraceArrivals):
        times = takewhile(lambda due: requested or due < around_s * 1e9, workload.law.due(None, 0))
        return sum(1 for _ in islice(times, MAX_DEFAULT_PROMPTS))
    course = workload.law.course(workload.rps, workload.schedule_s)
    return round(1.2 * (course.expected(around_s) + requested)) + 100


def _only_model(urls: Sequence[str], target: ServingTarget) -> str:
    """Return the name of the only model of the first server that can be reached."""
    for url in urls[:-1]:
        with suppress(NotReached):
            return _model_at(url, target)
    return _model_at(urls[-1], target)


def _model_at(url: str, target: ServingTarget) -> str:
    base = url.rstrip("/").removesuffix("/v1")
    headers = dict(target.headers) | ({"Authorization": f"Bearer {target.api_key}"} if target.api_key else {})
    try:
        answer = HttpClient(timeout_s=10.0, verify_tls=target.verify_tls).get(f"{base}/v1/models", headers)
    except NoAnswer as error:
        raise NotReached(f"{error.reason} (is the server up, and is target.url right?)") from error
    if not answer.ok:
        raise BenchError(f"{base}/v1/models answers with status {answer.status}", "name target.model")
    try:
        names = [str(item["id"]) for item in answer.json()["data"]]
    except (NoAnswer, LookupError, TypeError) as error:
        raise BenchError(f"{base}/v1/models does not say which models there are", "name target.model") from error
    if len(names) != 1:
        raise BenchError(f"the server has {len(names)} models ({', '.join(names[:5])})", "name target.model")
    return names[0]
