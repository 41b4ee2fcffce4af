"""Lengths in tokens, as a workload writes them: a number or a distribution. Also texts of about or exactly a length."""

import random
from collections.abc import Callable, Sequence
from importlib import import_module
from itertools import chain, cycle, islice
from pathlib import Path
from statistics import NormalDist
from string import ascii_lowercase, ascii_uppercase
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from benchhouse.schema.errors import BenchError
from benchhouse.schema.model import Model
from benchhouse.schema.quoting import describe
from benchhouse.schema.shorthand import AlsoTakes

MAX_TOKENS = 10_000_000
_LEAST_KEPT = 0.01  # of a normal distribution's draws; below it, nearly all of them would be discarded


def _at_least_one(tokens: int) -> int:
    if not 1 <= tokens <= MAX_TOKENS:
        raise ValueError(f"a length is 1 to {MAX_TOKENS:,} tokens, not {tokens:,}")
    return tokens


Tokens = Annotated[int, AfterValidator(_at_least_one), Field(json_schema_extra={"minimum": 1, "maximum": MAX_TOKENS})]


class Fixed(Model):
    """Always the same length; a bare number means this."""

    kind: Literal["fixed"] = "fixed"
    tokens: Tokens = Field(description="The length.")

    def draw(self, rng: random.Random) -> int:
        return self.tokens


class Uniform(Model):
    """Every length from `low` to `high` with the same frequency, both included."""

    kind: Literal["uniform"] = "uniform"
    low: Tokens = Field(description="Shortest length.")
    high: Tokens = Field(description="Longest length.")

    @model_validator(mode="after")
    def _are_ascending(self) -> "Uniform":
        _check_order(self.low, self.high)
        return self

    def draw(self, rng: random.Random) -> int:
        return self.low + int(rng.random() * (self.high - self.low + 1))


class Normal(Model):
    """A normal distribution, rounded; values outside `low` to `high` are drawn again, so that none pile up at the
    bounds.

    The mean of the lengths is therefore `mean` only if the bounds cut both tails equally, or neither.
    """

    kind: Literal["normal"] = "normal"
    mean: float = Field(ge=1, le=MAX_TOKENS, description="Mean before the bounds cut.")
    stdev: float = Field(ge=0, le=MAX_TOKENS, description="Standard deviation before the bounds cut.")
    low: Tokens = Field(1, description="Shortest length.")
    high: Tokens | None = Field(None, description="Longest length; no bound if not given.")

    @model_validator(mode="after")
    def _bounds_leave_something(self) -> "Normal":
        _check_order(self.low, self._top)
        kept = float(self.low <= round(self.mean) <= self._top)  # share of draws within the bounds
        if self.stdev:
            law = NormalDist(self.mean, self.stdev)
            kept = law.cdf(self._top + 0.5) - law.cdf(self.low - 0.5)
        if kept < _LEAST_KEPT:
            raise ValueError(
                f"mean {self.mean:g} and stdev {self.stdev:g} hardly ever give a length from {self.low} to "
                f"{self._top}: move the mean between low and high, or raise stdev"
            )
        return self

    @property
    def _top(self) -> int:
        return MAX_TOKENS if self.high is None else self.high

    def draw(self, rng: random.Random) -> int:
        while True:
            tokens = round(rng.gauss(self.mean, self.stdev))
            if self.low <= tokens <= self._top:
                return tokens


class LengthMixPart(Model):
    """One of the lengths of a mix."""

    weight: float = Field(gt=0, le=1e9, description="How often, against the weights of the other parts.")
    tokens: "Length" = Field(description="A length of any kind.")


class Mixed(Model):
    """Several lengths with weights for their frequency: for instance, short questions and long documents."""

    kind: Literal["mixed"] = "mixed"
    parts: list[LengthMixPart] = Field(min_length=1, max_length=1000, description="The lengths and their weights.")

    def draw(self, rng: random.Random) -> int:
        (part,) = rng.choices(self.parts, [part.weight for part in self.parts])
        return part.tokens.draw(rng)


def _from_number(value: Any) -> Any:
    """Accept a bare number as a fixed length; reject other shapes than a mapping here, where both can be named."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return {"kind": "fixed", "tokens": value}
    if not isinstance(value, dict | Model):
        raise ValueError(f"a length is a number of tokens or a mapping with `kind`, not {describe(value)}")
    return value


def _check_order(low: int, high: int) -> None:
    if high < low:
        raise ValueError(f"high {high} is less than low {low}")


_NUMBER = AlsoTakes({"type": "integer", "minimum": 1, "maximum": MAX_TOKENS})
_KINDS = Field(discriminator="kind")
Length = Annotated[Fixed | Uniform | Normal | Mixed, _KINDS, BeforeValidator(_from_number), _NUMBER]
LengthMixPart.model_rebuild()
Mixed.model_rebuild()


# ---- texts of a length --------------------------------------------------------------------------------------------

TokenCount = Callable[[str], int]

# Each word is one token, alone and after a space, for the tokenizers of GPT-4, GPT-4o, Llama 2 and 3, and Mistral.
WORDS = """
ability above action after again against air almost along also always amount analysis another answer any apply area
around art article ask author away baby back base bear beat bed before behavior below best between big bird bit black
board boat book born both box boy break bridge bright brown build business buy call camp campaign car care carry catch
cause cell central chair charge check child church circle claim class clean close cloud collect college color company
complete consider continue contract copy corn correct count country court cover create culture cup dark data daughter
deal deep depend design detail direct director doctor dog door draw dream drive drop dry each early earth easy eat
effect egg eight electric else end energy engine equal even ever every example express eye fact factor fair family far
farm father feed few field figure film final fine finger fire fish fit flat floor flow fly follow foot force forest
forward four fresh friend front full fund future gas general girl give glass gold gone grand grass gray green ground
grow growth guide half hand hard hat head heart heat height help here hill history hold home horse hot hour house ice
image inside instead interest issue job jump just keep kind king lake land language last late lay lead leader leave
left leg let letter life lift light line list live local long lot love machine main major man many mark market
material maybe mean meet member message method middle might million mind minute miss mix modern money more most mother
move movie music must name nature near need never news nice night nine nor north notice now number off offer official
often oil once one open order original our out over own page paper parent part party pass path patient pattern peace
people period person phone pick picture place plain plan plant play please point policy port position power practice
present pressure pretty print probably problem product program project public pull put quality question quiet quite
radio rain raise reach read real reason record region remember repeat reply report research resource rest result
return ride right ring river road role roll room rose round rule run safe sand save scale scene school score sea
season seat second see seed sell send sense service set seven share sharp shop shore short show side silver similar
simple sing sit six size skill sky sleep small soft some song soon sort source south special speed spell spread spring
staff stage stand star start station stay steel stick still stone stop store story straight street strong student
subject success such sun support surface sweet system take talk tell ten term thank their there these they thing third
though thought three throw thus time tiny tone top touch town trade train travel tree trip trust truth turn two type
unit until use usual value view voice wall want warm water wave wear weather week were west wheel where whether while
white who wide wife will win wind winter without wood word work world would yard year yellow yet young
""".split()  # noqa: SIM905 - a list of literals would be 500 lines
_PHRASES, _PHRASE_WORDS = 2000, 16  # long texts are built from phrases: one word at a time takes far longer


class Writer:
    """Writes texts of plain words, each about a token; exactly the requested tokens if a tokenizer's count is given.

    The first two words of a text follow from its number alone: texts of up to 262,144 numbers all start differently.
    """

    def __init__(self, seed: int | str, count: TokenCount | None = None) -> None:
        self._random = random.Random(f"{seed}/words").random
        self._order = sorted(WORDS, key=lambda _: self._random())
        self._phrases = [" ".join(self._words(_PHRASE_WORDS)) for _ in range(_PHRASES)]
        self._count = count

    def write(self, tokens: int, number: int, prefix: str = "", prefix_tokens: int = 0) -> str:
        """Return a text of `tokens` after `prefix`; with a tokenizer, the whole has exactly the sum of both."""
        base, order = len(WORDS), self._order
        parts = [order[number % base], order[(number + number // base + 1) % base]][:tokens]
        phrases, words = divmod(tokens - len(parts), _PHRASE_WORDS)
        draw, known = self._random, self._phrases
        parts += [known[int(draw() * _PHRASES)] for _ in range(phrases)]
        parts += self._words(words)
        text, before = " ".join(parts), f"{prefix} " if prefix else ""
        if self._count is None:
            return before + text
        count = self._count
        return before + fit_to_tokens(text.split(" "), lambda own: count(before + own), prefix_tokens + tokens)

    def _words(self, number: int) -> list[str]:
        draw, base = self._random, len(WORDS)
        return [WORDS[int(draw() * base)] for _ in range(number)]


def fit_to_tokens(words: Sequence[str], count: TokenCount, tokens: int) -> str:
    """Return the beginning of `words`, repeated if necessary, that `count` finds to be exactly `tokens` long. A shorter
    word fills the gap if one word more is too long and one less is too short. Raise BenchError if no text fits."""
    fits, spills, tried = 0, 0, tokens  # numbers of words; spills is 0 until a number is found to be too long
    while not spills or spills - fits > 1:
        text = _joined(words, tried)
        length = count(text)
        if length == tokens:
            return text
        if length < tokens:
            fits = tried
        else:
            spills = tried
        step = (tokens - length) * tried / max(length, 1)  # as if all words were as long as those so far
        tried += int(step) or (1 if step > 0 else -1)
        if spills and not fits < tried < spills:
            tried = (fits + spills) // 2
        elif tried > 16 * tokens + 64:
            break
    text = _joined(words, fits)
    length = count(text)
    for word in chain(dict.fromkeys(words), WORDS, ascii_lowercase, ascii_uppercase):
        longer = f"{text} {word}" if text else word
        longer_length = count(longer)
        if longer_length == tokens:
            return longer
        if length < longer_length < tokens:
            text, length = longer, longer_length
    raise BenchError(
        f"no text of exactly {tokens:,} tokens was found with this tokenizer",
        hint="leave the tokenizer out: lengths are then asked, and counted by the server",
    )


def _joined(words: Sequence[str], number: int) -> str:
    return " ".join(words[:number] if number <= len(words) else islice(cycle(words), number))


def load_tokenizer(path: Path) -> TokenCount:
    """Return a function that counts tokens with a `tokenizer.json` (or its folder), without special tokens."""
    file = path / "tokenizer.json" if path.is_dir() else path
    if not file.is_file():
        raise BenchError(f"the tokenizer {file} does not exist", hint="give the path of a model's tokenizer.json")
    try:
        library: Any = import_module("tokenizers")
    except ImportError as error:
        raise BenchError("prompts of exact length need the tokenizers library", "pip install tokenizers") from error
    try:
        tokenizer = library.Tokenizer.from_file(str(file))
    except Exception as error:  # the library raises nothing narrower
        raise BenchError(f"{file} is not a tokenizer: {error}", hint="give a model's tokenizer.json") from error
    tokenizer.no_truncation()  # some files request both, and then every long text has the same length
    tokenizer.no_padding()
    return lambda text: len(tokenizer.encode(text, add_special_tokens=False).ids)
