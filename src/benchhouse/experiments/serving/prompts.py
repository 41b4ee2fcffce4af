"""Prompts: what a workload requests, and the pool of prompts that is made before the measured time.

Lengths of synthetic prompts are requested, not guaranteed: the server's usage or the target's tokenizer counts the
tokens of a text. A text has an exact length only with a tokenizer.
"""

import hashlib
import random
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, count, islice
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from benchhouse.experiments.serving.datasets import Cutter, Format, Message, PromptDataset, read_dataset
from benchhouse.experiments.serving.lengths import MAX_TOKENS, Fixed, Length, Writer, load_tokenizer
from benchhouse.schema.digests import canonical_json
from benchhouse.schema.errors import BenchError
from benchhouse.schema.input_paths import InputPath
from benchhouse.schema.model import Model
from benchhouse.schema.quantities import Seconds, show_bytes

MAX_DEFAULT_PROMPTS = 10_000
MAX_POOL_BYTES = 10**9
MAX_TURNS = 1000


class _Made(Model):
    """Settings of all kinds of synthetic prompts."""

    prompt_tokens: Length = Field(Fixed(tokens=256), description="Length asked of each prompt.")
    output_tokens: Length | None = Field(Fixed(tokens=128), description="Length asked of an output; null: any.")
    tokenizer: InputPath | None = Field(None, description="Path of a tokenizer.json, for prompts of exact length.")
    seed: int | None = Field(
        None, ge=0, description="Seed of words and lengths; by default the trial's, and words differ in each trial."
    )


class SyntheticPrompts(_Made):
    """Generated prompts of plain words; each starts differently, unless a shared prefix is requested."""

    kind: Literal["synthetic"] = "synthetic"
    distinct: int | None = Field(None, ge=1, description="Different prompts; by default one a request, at most 10,000.")
    shared_prefix_tokens: int = Field(0, ge=0, le=MAX_TOKENS, description="Shared beginning, on top of prompt_tokens.")
    prefixes: int = Field(1, ge=1, le=1_000_000, description="How many different shared prefixes take turns.")


class DatasetPrompts(Model):
    """Prompts of a file, in its order; with a length, each is extended with the text of the following ones and cut."""

    kind: Literal["dataset"] = "dataset"
    file: InputPath = Field(min_length=1, description="JSON lines, CSV with a column `prompt`, or a prompt a line.")
    format: Format | None = Field(None, description="jsonl, csv or text; by default from the file's ending.")
    sha256: str = Field("", pattern="^([0-9a-f]{64})?$", description="Of `file`; another file is then refused.")
    prompt_tokens: Length | None = Field(
        None, description="Length asked of each prompt; by default as the file has it."
    )
    output_tokens: Length | None = Field(None, description="Length asked of an output where the file has none.")
    tokenizer: InputPath | None = Field(None, description="Path of a tokenizer.json, for prompt_tokens to be exact.")
    seed: int | None = Field(None, ge=0, description="Seed of lengths; the trial's own by default.")


class ConversationPrompts(_Made):
    """Conversations of several turns: generated questions, with the server's real answers as history."""

    kind: Literal["conversation"] = "conversation"
    turns: Length = Field(Fixed(tokens=3), description="Turns of a conversation; written as a length is.")
    think_time: Seconds = Field(0.0, description="Pause between an answer and the next turn.")
    distinct: int | None = Field(None, ge=1, description="Different conversations; by default up to 10,000 turns.")


def _synthetic_by_default(value: Any) -> Any:
    return {"kind": "synthetic", **value} if isinstance(value, dict) else value


PromptSpec = Annotated[
    SyntheticPrompts | DatasetPrompts | ConversationPrompts,
    Field(discriminator="kind"),
    BeforeValidator(_synthetic_by_default),
]


@dataclass(frozen=True, slots=True)
class Prompt:
    """Content of one request: `text`, or `messages` if it is already a chat. A length of None is not requested."""

    text: str | None = None
    messages: tuple[Message, ...] = ()
    input_tokens_asked: int | None = None  # of a later turn: without the history before it
    output_tokens: int | None = None
    conversation: int = 0  # number in the pool
    turn: int = 0

    def as_messages(self) -> list[dict[str, str]]:
        """Return the messages for a chat endpoint; a bare text is one of the user."""
        return [message._asdict() for message in self._said]

    def as_text(self) -> str:
        """Return the text for a completions endpoint. Raise BenchError for several messages: joining them needs the
        model's chat template."""
        if len(self.messages) > 1:
            raise BenchError(
                f"prompt {self.conversation} is a chat of {len(self.messages)} messages, and the endpoint takes text",
                hint="use the chat endpoint, or a dataset of plain prompts",
            )
        return self._said[0].content

    def after(self, sent: "Prompt", answer: str) -> "Prompt":
        """Return this turn with its history: the prompt `sent` in the previous turn, and the answer to it."""
        return replace(self, text=None, messages=(*sent._said, Message("assistant", answer), *self._said))

    @property
    def _said(self) -> tuple[Message, ...]:
        return self.messages if self.text is None else (Message("user", self.text),)

    @property
    def size(self) -> int:
        """Bytes of the content."""
        return sum(len(message.content.encode()) for message in self._said)


class PromptSet:
    """The pool of prompts, by conversation and turn; it repeats from its start."""

    def __init__(self, conversations: Iterable[tuple[Prompt, ...]], file_sha256: str | None = None) -> None:
        self._conversations = list(conversations)
        self._prompts = list(chain.from_iterable(self._conversations))
        self.file_sha256 = file_sha256
        if not self._prompts:
            raise ValueError("a set of prompts has at least one")

    def __len__(self) -> int:
        return len(self._prompts)

    def __getitem__(self, index: int) -> Prompt:
        """Return the prompt of any index; the first follows the last again."""
        return self._prompts[index % len(self._prompts)]

    @property
    def conversations(self) -> int:
        """Number of conversations; a single prompt is a conversation of one turn."""
        return len(self._conversations)

    def conversation(self, number: int) -> tuple[Prompt, ...]:
        """Return the turns of the n-th conversation, modulo their number; all but the first need `Prompt.after`."""
        return self._conversations[number % len(self._conversations)]

    @cached_property
    def digest(self) -> str:
        """The SHA-256 over the content and the requested lengths of every prompt, in order."""
        sha = hashlib.sha256()
        for prompt in self._prompts:
            content = prompt.text if prompt.text is not None else prompt.messages
            lengths = (prompt.input_tokens_asked, prompt.output_tokens)
            sha.update(canonical_json([content, *lengths, prompt.conversation, prompt.turn]) + b"\n")
        return sha.hexdigest()

    @property
    def mean_input(self) -> float | None:
        """Mean length requested of a prompt; None if one has none."""
        lengths = [prompt.input_tokens_asked for prompt in self._prompts]
        return None if None in lengths else fmean(filter(None, lengths))

    def repeats(self, requests: int) -> int:
        """Return how many of `requests` requests, taken in order, repeat an earlier one."""
        return requests - bisect_left(self._first_new_words, requests)

    @cached_property
    def _first_new_words(self) -> list[int]:
        """Indices in the pool at which new content appears, in order."""
        first: dict[tuple[str | None, tuple[Message, ...]], int] = {}
        for index, prompt in enumerate(self._prompts):
            first.setdefault((prompt.text, prompt.messages), index)
        return list(first.values())

    def facts(self) -> dict[str, Any]:
        """Return the facts of the pool that evidence records."""
        return {
            "digest": self.digest,
            "file_sha256": self.file_sha256,
            "prompts": len(self),
            "conversations": self.conversations,
            "distinct": len(self._first_new_words),
            "bytes": sum(prompt.size for prompt in self._prompts),
        }


def build_prompts(spec: PromptSpec, *, requests: int | None, seed: int, words: str = "") -> PromptSet:
    """Make the pool before the measured time. The same arguments give the same pool everywhere.

    `requests` is the number that will be sent, including warm-up, if known. `seed` is used if the spec has none, and
    `words`, if given, for the words alone. A pool for fewer requests is the beginning of one for more.
    """
    wording: int | str = (words or seed) if spec.seed is None else spec.seed
    seed = seed if spec.seed is None else spec.seed
    if isinstance(spec, DatasetPrompts):
        data = read_dataset(Path(spec.file), spec.format)
        if spec.sha256 not in ("", data.sha256):
            message = f"{spec.file} has sha256 {data.sha256}, and prompts.sha256 is {spec.sha256}"
            raise BenchError(message, hint="it has changed since the plan was made: plan it again")
        return PromptSet(_of_file(spec, data, seed), data.sha256)
    writer = Writer(wording, load_tokenizer(Path(spec.tokenizer)) if spec.tokenizer else None)
    made = _conversations(spec, seed, writer) if isinstance(spec, ConversationPrompts) else _singles(spec, seed, writer)
    return PromptSet(_pool(made, spec.distinct, requests))


def _of_file(spec: DatasetPrompts, data: PromptDataset, seed: int) -> Iterator[tuple[Prompt, ...]]:
    lengths, outputs = random.Random(f"{seed}/prompt"), random.Random(f"{seed}/output")
    cutter = Cutter(data.rows, load_tokenizer(Path(spec.tokenizer)) if spec.tokenizer else None)
    for number, row in enumerate(data.rows):
        text, messages, tokens = row.text, row.messages, _drawn(spec.prompt_tokens, lengths)
        if tokens:
            text, messages = cutter.cut(number, tokens), ()
        yield (Prompt(text, messages, tokens, row.output_tokens or _drawn(spec.output_tokens, outputs), number),)


def _pool(
    made: Iterator[tuple[Prompt, ...]], distinct: int | None, requests: int | None
) -> Iterator[tuple[Prompt, ...]]:
    """Yield the number of distinct conversations, or enough for the requests, within the memory limit."""
    wanted = min(requests or MAX_DEFAULT_PROMPTS, MAX_DEFAULT_PROMPTS)
    prompts = size = 0
    for number, turns in enumerate(islice(made, distinct), 1):
        size += sum(turn.size for turn in turns)
        if size > MAX_POOL_BYTES and distinct:
            raise BenchError(
                f"{distinct:,} different prompts don't fit into memory: at most {show_bytes(MAX_POOL_BYTES)} are kept, "
                f"and the first {number:,} are more",
                hint="lower distinct or prompt_tokens",
            )
        if size > MAX_POOL_BYTES and prompts:
            return
        yield turns
        prompts += len(turns)
        if not distinct and prompts >= wanted:
            return


def _singles(spec: SyntheticPrompts, seed: int, writer: Writer) -> Iterator[tuple[Prompt, ...]]:
    lengths, outputs = random.Random(f"{seed}/prompt"), random.Random(f"{seed}/output")
    shared = spec.shared_prefix_tokens
    prefixes: list[str] = []
    for number in count():
        if shared and len(prefixes) < spec.prefixes:  # made when first needed
            prefixes.append(writer.write(shared, number))
        prefix = prefixes[number % spec.prefixes] if shared else ""
        tokens = spec.prompt_tokens.draw(lengths)
        text = writer.write(tokens, number, prefix, shared)
        yield (Prompt(text, (), shared + tokens, _drawn(spec.output_tokens, outputs), number),)


def _conversations(spec: ConversationPrompts, seed: int, writer: Writer) -> Iterator[tuple[Prompt, ...]]:
    lengths, outputs = random.Random(f"{seed}/prompt"), random.Random(f"{seed}/output")
    numbers, turns = count(), random.Random(f"{seed}/turns")
    for conversation in count():
        counts = [spec.prompt_tokens.draw(lengths) for _ in range(min(spec.turns.draw(turns), MAX_TURNS + 1))]
        if len(counts) > MAX_TURNS or sum(counts) > MAX_TOKENS:
            raise BenchError(
                f"a conversation has at most {MAX_TURNS:,} turns and {MAX_TOKENS:,} tokens, and one would have more",
                hint="lower turns or prompt_tokens",
            )
        texts = [writer.write(tokens, next(numbers)) for tokens in counts]
        yield tuple(
            Prompt(text, (), tokens, _drawn(spec.output_tokens, outputs), conversation, turn)
            for turn, (text, tokens) in enumerate(zip(texts, counts, strict=True))
        )


def _drawn(length: Length | None, rng: random.Random) -> int | None:
    return None if length is None else length.draw(rng)
