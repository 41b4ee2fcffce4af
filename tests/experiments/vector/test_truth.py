"""Exact neighbours against plain loops, ties, awkward data, and recall as counted by hand."""

import numpy
import pytest

from benchhouse.experiments.vector import truth
from benchhouse.experiments.vector.data import VectorDataset
from benchhouse.experiments.vector.recall import labels, recall
from benchhouse.experiments.vector.truth import faiss_scan, nearest, numpy_scan
from benchhouse.experiments.vector.workload import VectorWorkload
from benchhouse.load.protocols.vector import LABELS

DISTANCES = ("l2", "ip", "cosine")


def made(count, dimensions, seed=0, offset=0.0):
    values = numpy.random.default_rng(seed).standard_normal((count, dimensions)) + offset
    return values.astype(numpy.float32)


def by_hand(vectors, queries, k, distance, among=None):
    """Nearest neighbours by plain loops: independent of the implementation under test."""
    found = []
    for query in queries.astype(float):
        scores = []
        for number in range(len(vectors)) if among is None else among:
            vector = vectors[number].astype(float)
            if distance == "l2":
                score = sum((a - b) ** 2 for a, b in zip(query, vector, strict=True))
            else:
                score = -sum(a * b for a, b in zip(query, vector, strict=True))
            if distance == "cosine":
                score /= sum(a * a for a in vector) ** 0.5
            scores.append((score, number))
        found.append([number for _, number in sorted(scores)[:k]])
    return found


@pytest.fixture
def small_blocks(monkeypatch):
    """So that a few hundred vectors pass through many blocks, and few candidates are proposed at first."""
    for name, value in {"_BLOCK_VALUES": 512, "_PRODUCTS": 500, "_SPARE": 2, "_EXACT_VALUES": 800}.items():
        monkeypatch.setattr(truth, name, value)


@pytest.fixture(params=[faiss_scan, numpy_scan])
def scan(request):
    return request.param


def test_faiss_proposes_the_candidates_where_it_is_installed():
    assert truth.best_scan() is faiss_scan


def test_the_truth_agrees_with_plain_loops(scan, small_blocks):
    for distance in DISTANCES:
        for offset in [0, 500]:
            vectors, queries = made(300, 8, offset=offset), made(20, 8, seed=1, offset=offset)
            result = nearest(vectors, queries, 7, distance, scan=scan)
            assert result.tolist() == by_hand(vectors, queries, 7, distance)


def test_the_truth_under_a_filter_agrees_with_plain_loops(scan, small_blocks):
    for distance in DISTANCES:
        vectors, queries = made(300, 8), made(12, 8, seed=1)
        among = numpy.flatnonzero(labels(300) < LABELS // 5)
        assert 30 < len(among) < 90
        result = nearest(vectors, queries, 5, distance, among, scan)
        assert result.tolist() == by_hand(vectors, queries, 5, distance, among)


@pytest.mark.parametrize("distance", DISTANCES)
def test_blocks_and_library_do_not_change_the_truth(distance, small_blocks, monkeypatch):
    vectors, queries = made(2000, 16), made(50, 16, seed=1)
    vectors[1000:1500] = vectors[:500]  # ties in plenty
    parts = nearest(vectors, queries, 100, distance, scan=numpy_scan)
    monkeypatch.undo()
    assert (nearest(vectors, queries, 100, distance, scan=faiss_scan) == parts).all()


def test_fewer_vectors_than_asked_for_leave_places_empty(scan):
    vectors = made(3, 4)
    result = nearest(vectors, vectors[:2], 5, "l2", scan=scan)
    assert result[:, 3:].tolist() == [[-1, -1]] * 2 and result[:, 0].tolist() == [0, 1]
    assert nearest(vectors, vectors[:1], 2, "l2", numpy.array([], dtype=numpy.int64)).tolist() == [[-1, -1]]


def test_of_equally_near_vectors_the_first_ones_count(scan, small_blocks):
    """Copies of one vector, more than candidates are ever proposed: no float32 search can tell which come first."""
    for distance in DISTANCES:
        vectors = numpy.tile(made(1, 6), (500, 1))
        vectors[[300, 400]] = made(1, 6) + numpy.float32(0.1)
        queries = vectors[300:301].copy()
        assert nearest(vectors, queries, 5, distance, scan=scan).tolist() == by_hand(vectors, queries, 5, distance)


def test_a_difference_that_float32_products_cannot_see_is_seen(scan, small_blocks):
    """Distances of 1 in a cloud 4,000 away from the origin: products of 16 million leave no digit for it."""
    vectors = numpy.full((400, 4), 4000, dtype=numpy.float32)
    vectors[:, 0] += numpy.random.default_rng(0).permutation(400).astype(numpy.float32) / 256
    queries = vectors[:5].copy()
    queries[:, 1] += 1
    assert nearest(vectors, queries, 3, "l2", scan=scan).tolist() == by_hand(vectors, queries, 3, "l2")


def test_a_scan_that_misses_by_the_rounding_of_float32_does_not_change_the_truth(small_blocks):
    """Inner products around 10 million that differ by less than a unit: float32 confuses them, float64 does not."""
    rng = numpy.random.default_rng(0)
    vectors = (3000 + rng.integers(0, 3, (400, 4)) / 64).astype(numpy.float32)
    queries = (3000 + rng.integers(0, 3, (6, 4)) / 64).astype(numpy.float32)
    first = by_hand(vectors, queries, 5, "ip")
    assert nearest(vectors, queries, 5, "ip", scan=faiss_scan).tolist() == first
    assert nearest(vectors, queries, 5, "ip", scan=numpy_scan).tolist() == first


def test_planted_neighbours_are_the_truth():
    vectors = made(500, 12, seed=1)
    queries = vectors[:4] * numpy.float32(1.0001)
    vectors[100:104] = queries
    assert nearest(vectors, queries, 2, "l2").tolist() == [[100, 0], [101, 1], [102, 2], [103, 3]]


def judged(answers, vectors, queries, k, best=None, known=None, asked=None, **workload):
    data = VectorDataset("", vectors, queries)
    best = nearest(vectors, queries, len(vectors), "l2") if best is None else numpy.array(best)
    asked = numpy.arange(len(answers)) if asked is None else numpy.array(asked)
    asked_for = VectorWorkload(vectors=len(vectors), k=k, **workload)
    known = None if known is None else numpy.array(known)
    return recall(numpy.array(answers), asked, best, data, asked_for, known)


def test_recall_counts_what_is_right_once():
    vectors, queries = made(100, 4), made(3, 4, seed=1)
    order = nearest(vectors, queries, 100, "l2")
    answers = order[:, :4].copy()
    assert judged(answers, vectors, queries, 4).mean == 1.0
    assert judged(answers[:, ::-1], vectors, queries, 4).mean == 1.0
    answers[0, 0] = order[0, -1]  # one wrong
    answers[1, 1] = answers[1, 0]  # one repeated
    answers[2, 3] = -1  # one missing
    assert judged(answers, vectors, queries, 4).mean == pytest.approx(9 / 12)


def test_equally_near_vectors_are_equally_right():
    vectors = numpy.zeros((4, 2), dtype=numpy.float32)
    queries = numpy.ones((1, 2), dtype=numpy.float32)
    assert judged([[2, 3]], vectors, queries, 2, best=[[0, 1]]).mean == 1.0


def test_recall_is_of_the_queries_that_were_asked():
    vectors, queries = made(50, 4), made(5, 4, seed=1)
    order = nearest(vectors, queries, 50, "l2")
    assert judged(order[[4, 2], :3], vectors, queries, 3, asked=[4, 2]).mean == 1.0
    assert judged(order[[2, 4], :3], vectors, queries, 3, asked=[4, 2]).mean < 1.0


def test_vectors_that_the_filter_forbids_are_wrong_and_told():
    vectors, queries = made(300, 4), made(2, 4, seed=1)
    among = numpy.flatnonzero(labels(300) < LABELS // 2)
    best = nearest(vectors, queries, 300, "l2", among)
    assert judged(best[:, :5], vectors, queries, 5, best=best, selectivity=0.5).mean == 1.0
    unfiltered = judged(nearest(vectors, queries, 5, "l2"), vectors, queries, 5, best=best, selectivity=0.5)
    assert unfiltered.strangers > 0
    assert unfiltered.mean < 1.0


def test_ids_that_do_not_exist_are_told():
    vectors, queries = made(10, 4), made(1, 4, seed=1)
    found = judged([[10, -7, -1]], vectors, queries, 3)
    assert (found.mean, found.strangers) == (0.0, 2)


def test_fewer_than_k_through_the_filter_are_all_there_is_to_find():
    vectors, queries = made(2000, 4), made(3, 4, seed=1)
    among = numpy.flatnonzero(labels(2000) < 1)
    assert 0 < len(among) < 10
    best = nearest(vectors, queries, 10, "l2", among)
    assert judged(best, vectors, queries, 10, best=best, selectivity=0.001).mean == 1.0


def test_while_vectors_come_in_only_those_acknowledged_must_be_found():
    for depth in [100, 12]:
        vectors, queries = made(400, 4), made(4, 4, seed=1)
        known = [100, 200, 300, 400]
        best = nearest(vectors, queries, depth, "l2")  # 12 are too few: some are computed again
        then = [by_hand(vectors[:count], query[None], 10, "l2")[0] for count, query in zip(known, queries, strict=True)]
        assert judged(then, vectors, queries, 10, best=best, known=known, ingest_during=0.8).mean == 1.0
        later = by_hand(vectors, queries, 10, "l2")  # nearer ones that came in meanwhile are right as well
        assert judged(later, vectors, queries, 10, best=best, known=known, ingest_during=0.8).mean == 1.0
        early = by_hand(vectors[:50], queries, 10, "l2")
        assert judged(early, vectors, queries, 10, best=best, known=known, ingest_during=0.8).mean < 0.8
