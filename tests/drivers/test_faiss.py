"""FAISS through the suite of all vector drivers, and what is its own."""

import sys
import threading

import numpy
import pytest
from drivers.vector_conformance import Place, VectorConformance

from benchhouse.drivers.faiss import Faiss
from benchhouse.load.protocols.vector import Collection
from benchhouse.schema.errors import BenchError

OPTIONS = {
    "flat": {},
    "ivf": {"nlist": 8, "nprobe": 8},
    "hnsw": {"m": 16, "ef_construction": 100, "ef_search": 200},
    "pq": {"pq_m": 8, "pq_bits": 6},
}


class TestFaiss(VectorConformance):
    driver = Faiss

    @pytest.fixture
    def place(self):
        return Place("", list, on_disk=False)


@pytest.fixture
def vectors():
    return numpy.random.default_rng(0).standard_normal((2000, 16), dtype=numpy.float32)


def built(index: str, vectors, distance="l2", parts: int = 1) -> Faiss:
    engine = Faiss("", Collection("mine", vectors.shape[1], distance, index, OPTIONS[index]))
    engine.open()
    engine.create()
    first = 0
    for part in numpy.array_split(vectors, parts):
        engine.ingest(first, part, None)
        first += len(part)
    engine.build()
    return engine


@pytest.mark.parametrize("index", OPTIONS)
def test_batches_make_the_same_index_as_the_whole_and_a_planted_neighbour_is_found_first(index, vectors):
    whole, parts = built(index, vectors), built(index, vectors, parts=3)
    assert whole.stats().vectors == parts.stats().vectors == 2000
    assert (whole.search(vectors[:20], 3) == parts.search(vectors[:20], 3)).mean() > 0.95
    if index == "pq":
        assert whole.stats().bytes < vectors.nbytes / 3, "product quantisation is small"
    else:
        answers = whole.search(vectors[[3, 1999, 0]] + numpy.float32(1e-4), 5)
        assert answers[:, 0].tolist() == [3, 1999, 0]


def test_inner_product_prefers_the_long_vector():
    vectors = numpy.eye(4, dtype=numpy.float32) * numpy.float32([[1], [1], [1], [5]])
    query = numpy.ones((1, 4), dtype=numpy.float32)
    assert built("flat", vectors, "ip").search(query, 1)[0, 0] == 3


def test_cosine_does_not_care_for_length():
    vectors = numpy.float32([[1, 0], [0, 100], [3, 4]])
    assert built("flat", vectors, "cosine").search(numpy.float32([[2, 2]]), 3)[0].tolist()[0] == 2


@pytest.mark.parametrize("index", OPTIONS)
def test_a_single_query_that_is_no_number_is_refused_by_every_index(index, vectors):
    for distance in ("l2", "ip", "cosine"):
        vectors[5] = 0 if distance != "cosine" else 1  # infinity times zero is NaN
        engine = built(index, vectors[:500], distance)
        for bad in (numpy.nan, numpy.inf, -numpy.inf):
            for place in range(vectors.shape[1]):
                query = vectors[:1].copy()
                query[0, place] = bad
                for k in (1, 10):
                    with pytest.raises(BenchError, match="NaN"):
                        engine.search(query, k)


def test_a_query_of_huge_numbers_is_a_good_one(vectors):
    query = numpy.full((1, 16), 3e38, dtype=numpy.float32)  # its distances are infinite
    assert built("flat", vectors).search(query, 1).shape == (1, 1)


def test_the_stored_size_of_a_flat_index_is_that_of_its_vectors(vectors):
    assert built("flat", vectors).stats().bytes == pytest.approx(vectors.nbytes, abs=200)


@pytest.mark.parametrize("index", ["flat", "ivf", "hnsw"])
def test_it_may_be_filled_while_others_search(index, vectors):
    engine = built(index, vectors[:1000])
    over, wrong, count = threading.Event(), [], [0]

    def search_on():
        while not over.is_set():
            found = engine.search(vectors[:1], 1)
            count[0] += 1
            if found[0, 0] != 0:
                wrong.append(found)

    crew = [threading.Thread(target=search_on) for _ in range(3)]
    for thread in crew:
        thread.start()
    for first in range(1000, 2000, 50):
        engine.ingest(first, vectors[first : first + 50], None)
        assert engine.search(vectors[first : first + 1], 1)[0, 0] == first, "acknowledged, so it is found"
    over.set()
    for thread in crew:
        thread.join()
    assert engine.stats().vectors == 2000
    assert count[0] and not wrong


@pytest.mark.parametrize("index", OPTIONS)
def test_prepared_searches_find_what_search_finds(index, vectors):
    for distance in ("l2", "cosine"):
        engine, calls = built(index, vectors[:1000], distance), [vectors[at : at + 1] for at in range(100)]
        search = engine.prepare(calls, 7)
        answers = [search(at) for at in range(100)]
        assert [each.tolist() for each in answers] == [engine.search(call, 7).tolist() for call in calls]
        assert answers[0].shape == (1, 7)


def test_prepared_searches_tell_the_ids_that_were_given(vectors):
    engine = Faiss("", Collection("mine", 16, "l2", "flat"))
    engine.create()
    engine.ingest(5000, vectors, None)
    engine.build()
    assert engine.prepare([vectors[3:4]], 1)(0).tolist() == [[5003]]


def test_prepared_searches_wait_while_vectors_come_in(vectors):
    engine, calls = built("hnsw", vectors), [vectors[at : at + 1] for at in range(100)]
    over, found = threading.Event(), []

    def ask() -> None:
        search, at = engine.prepare(calls, 1), 0
        while not over.is_set() or at < 100:
            found.append((at % 100, int(search(at % 100)[0, 0])))
            at += 1

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    for batch in range(20):
        engine.ingest(2000 + batch * 50, vectors[:50] + 100, None)
    over.set()
    for thread in threads:
        thread.join()
    assert engine.stats().vectors == 3000
    assert all(asked == answer for asked, answer in found)


def test_queries_that_are_no_numbers_are_refused_when_searches_are_prepared(vectors):
    bad = vectors[:1].copy()
    bad[0, 3] = numpy.nan
    with pytest.raises(BenchError, match="NaN or infinity"):
        built("flat", vectors).prepare([vectors[:1], bad], 3)


def test_only_single_queries_as_the_library_wants_them_are_prepared(vectors):
    for calls in [
        lambda rows: [rows[:2]],
        lambda rows: [rows[:1].astype("f8")],
        lambda rows: [numpy.repeat(rows[:1], 2, axis=1)[:, ::2]],
        lambda rows: [rows[:1, :8]],
    ]:
        assert built("flat", vectors).prepare(calls(vectors), 3) is None


def test_whoever_searches_in_another_way_is_asked(vectors):
    class FindsNothing(Faiss):
        def search(self, queries, k, below=None):
            return numpy.full((len(queries), k), -1)

    engine = FindsNothing("", Collection("mine", 16, "l2", "flat"))
    engine.create()
    assert engine.prepare([vectors[:1]], 3) is None


def test_a_missing_library_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(BenchError, match=r"pip install 'benchhouse\[faiss\]'"):
        Faiss("", Collection("mine", 4, "l2", "flat"))
