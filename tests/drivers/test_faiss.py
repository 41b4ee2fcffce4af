import sys

import numpy
import pytest

from benchhouse.drivers.faiss import Faiss
from benchhouse.schema.errors import BenchError

OPTIONS = {
    "flat": {},
    "ivf": {"nlist": 8, "nprobe": 8},
    "hnsw": {"m": 16, "ef_construction": 100, "ef_search": 200},
    "pq": {"pq_m": 8, "pq_bits": 8},
}


@pytest.fixture
def vectors():
    return numpy.random.default_rng(0).standard_normal((2000, 16), dtype=numpy.float32)


def built(index: str, vectors, metric="l2", parts: int = 1) -> Faiss:
    engine = Faiss(threads=1)
    engine.create(vectors.shape[1], metric, index, OPTIONS[index])
    for part in numpy.array_split(vectors, parts):
        engine.ingest(part)
    engine.build()
    return engine


@pytest.mark.parametrize("index", ["flat", "ivf", "hnsw"])
def test_a_planted_neighbour_is_found_first(index, vectors):
    engine = built(index, vectors)
    answers = engine.search(vectors[[3, 1999, 0]] + numpy.float32(1e-4), 5)
    assert answers[:, 0].tolist() == [3, 1999, 0]
    engine.delete()


@pytest.mark.parametrize("index", OPTIONS)
def test_ids_follow_the_order_of_ingestion(index, vectors):
    whole, parts = built(index, vectors), built(index, vectors, parts=3)
    assert whole.stats()["vectors"] == parts.stats()["vectors"] == 2000
    assert (whole.search(vectors[:20], 3) == parts.search(vectors[:20], 3)).mean() > 0.95


def test_inner_product_prefers_the_long_vector():
    vectors = numpy.eye(4, dtype=numpy.float32) * numpy.float32([[1], [1], [1], [5]])
    query = numpy.ones((1, 4), dtype=numpy.float32)
    assert built("flat", vectors, "ip").search(query, 1)[0, 0] == 3


def test_the_stored_size_of_a_flat_index_is_that_of_its_vectors(vectors):
    assert built("flat", vectors).stats()["bytes"] == pytest.approx(vectors.nbytes, abs=200)


def test_product_quantisation_is_small(vectors):
    assert built("pq", vectors).stats()["bytes"] < vectors.nbytes / 3


def test_an_unknown_index_is_named():
    with pytest.raises(BenchError, match="diskann"):
        Faiss().create(4, "l2", "diskann", {})


def test_a_missing_library_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(BenchError, match=r"pip install 'benchhouse\[faiss\]'"):
        Faiss()
