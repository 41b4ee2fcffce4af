import numpy
import pytest
from pydantic import ValidationError

from benchhouse.experiments.neighbours import nearest, recall, synthetic
from benchhouse.experiments.vector import VectorTarget, VectorWorkload, search
from benchhouse.schema.experiment import ExperimentFailed

SMALL = {"vectors": 2000, "dimensions": 16, "queries": 50, "passes": 2}


def by_hand(vectors, queries, k, metric):
    """Nearest neighbours by plain loops: independent of the implementation under test."""
    found = []
    for query in queries.astype(float):
        scores = []
        for number, vector in enumerate(vectors.astype(float)):
            score = sum((a - b) ** 2 for a, b in zip(query, vector, strict=True))
            if metric == "ip":
                score = -sum(a * b for a, b in zip(query, vector, strict=True))
            scores.append((score, number))
        found.append([number for _, number in sorted(scores)[:k]])
    return found


@pytest.mark.parametrize("metric", ["l2", "ip"])
def test_the_truth_agrees_with_plain_loops(metric):
    workload = VectorWorkload(vectors=300, dimensions=8, queries=10, k=7, metric=metric)
    vectors, queries = synthetic(workload)
    assert nearest(vectors, queries, 7, metric).tolist() == by_hand(vectors, queries, 7, metric)


def test_blocks_of_queries_do_not_change_the_truth(monkeypatch):
    workload = VectorWorkload(**SMALL)
    vectors, queries = synthetic(workload)
    whole = nearest(vectors, queries, 10, "l2")
    monkeypatch.setattr("benchhouse.experiments.neighbours._BLOCK_VALUES", 7 * len(vectors))
    assert (nearest(vectors, queries, 10, "l2") == whole).all()


def test_planted_neighbours_are_the_truth():
    vectors = numpy.random.default_rng(1).standard_normal((500, 12), dtype=numpy.float32)
    queries = vectors[:4] * numpy.float32(1.0001)
    vectors[100:104] = queries
    assert nearest(vectors, queries, 2, "l2").tolist() == [[100, 0], [101, 1], [102, 2], [103, 3]]


def test_recall_counts_what_is_right_once():
    workload = VectorWorkload(vectors=100, dimensions=4, queries=3, k=4)
    vectors, queries = synthetic(workload)
    truth = nearest(vectors, queries, 4, "l2")
    wrong = nearest(vectors, queries, 100, "l2")[:, -1]
    answers = truth.copy()
    assert recall(answers, truth, vectors, queries, workload) == 1.0
    assert recall(answers[:, ::-1], truth, vectors, queries, workload) == 1.0
    answers[0, 0] = wrong[0]  # one wrong
    answers[1, 1] = answers[1, 0]  # one repeated
    answers[2, 3] = -1  # one missing
    assert recall(answers, truth, vectors, queries, workload) == pytest.approx(9 / 12)


def test_equally_near_vectors_are_equally_right():
    vectors = numpy.zeros((4, 2), dtype=numpy.float32)
    queries = numpy.ones((1, 2), dtype=numpy.float32)
    workload = VectorWorkload(vectors=4, dimensions=2, queries=1, k=2)
    assert recall(numpy.array([[2, 3]]), numpy.array([[0, 1]]), vectors, queries, workload) == 1.0


@pytest.mark.parametrize("metric", ["l2", "ip"])
@pytest.mark.parametrize("batch", [1, 32])
@pytest.mark.parametrize("target", [{"index": "flat"}, {"index": "ivf", "nlist": 16, "nprobe": 16}])
def test_an_exhaustive_index_has_recall_one(play, target, batch, metric):
    ctx = play(search, target, {**SMALL, "batch": batch, "metric": metric})
    assert ctx.values["recall"] == [1.0]


def test_measured_recall_is_that_of_an_independent_count(play):
    faiss = pytest.importorskip("faiss")
    workload = {"vectors": 400, "dimensions": 12, "queries": 20, "k": 5, "passes": 1}
    ctx = play(search, {"index": "ivf", "nlist": 20, "nprobe": 2}, workload)
    vectors, queries = synthetic(VectorWorkload(**workload))
    index = faiss.index_factory(12, "IVF20,Flat")
    index.train(vectors)
    index.add(vectors)
    index.nprobe = 2
    answers, truth = index.search(queries, 5)[1], by_hand(vectors, queries, 5, "l2")
    expected = numpy.mean([len(set(a) & set(b)) / 5 for a, b in zip(answers.tolist(), truth, strict=True)])
    assert 0.2 < expected < 1
    assert ctx.values["recall"] == [pytest.approx(expected)]


def test_counts_and_rates_agree(play):
    ctx = play(search, {"index": "flat"}, {**SMALL, "batch": 20, "passes": 3})
    assert ctx.facts["queries_measured"] == 150
    assert len(ctx.values["latency"]) == 3 * 3
    assert ctx.values["qps"] == [pytest.approx(150 / ctx.facts["seconds"])]
    assert sum(ctx.values["latency"]) / 1e3 <= ctx.facts["seconds"]
    assert ctx.values["index_mb"] == [pytest.approx(2000 * 16 * 4 / 1e6, rel=0.01)]
    assert ctx.values["ingest_rate"][0] <= 2000 / ctx.values["build_s"][0]


def test_a_duration_makes_whole_passes(play):
    ctx = play(search, {"index": "flat"}, {**SMALL, "passes": None, "duration": "200ms"})
    assert ctx.facts["seconds"] >= 0.2 and ctx.facts["queries_measured"] % 50 == 0


def test_the_truth_is_computed_once_for_all_targets_and_trials(play):
    first = play(search, {"index": "flat"}, SMALL)
    again = play(search, {"index": "hnsw"}, {**SMALL, "threads": 2}, first.cache)
    assert len(again.cache.built) == 1
    other = play(search, {"index": "flat"}, {**SMALL, "data_seed": 1}, first.cache)
    assert len(other.cache.built) == 2 and other.values["recall"] == [1.0]


def test_the_data_is_a_function_of_its_seed():
    one, same, other = (synthetic(VectorWorkload(**SMALL, data_seed=seed))[0] for seed in (0, 0, 1))
    assert (one == same).all() and not (one == other).all()
    assert one.dtype == numpy.float32 and one.shape == (2000, 16)


def test_recall_tells_indexes_apart_at_the_default_size(play):
    quick = {"passes": 1, "warmup": 0}
    first = play(search, {"index": "hnsw", "ef_search": 16}, quick)
    found = {"hnsw 16": first.values["recall"][0]}
    for name, target in {
        "hnsw 128": {"index": "hnsw", "ef_search": 128},
        "ivf 1": {"index": "ivf", "nprobe": 1},
        "ivf 16": {"index": "ivf", "nprobe": 16},
    }.items():
        found[name] = play(search, target, quick, first.cache).values["recall"][0]
    assert found["hnsw 16"] < 0.85 < 0.95 < found["hnsw 128"] < 1
    assert found["ivf 1"] < 0.4 < 0.8 < found["ivf 16"] < 1


@pytest.mark.parametrize(
    ("target", "workload"),
    [
        ({"index": "ivf", "nlist": 3000}, SMALL),
        ({"index": "pq", "pq_m": 5}, SMALL),
        ({"index": "pq"}, {**SMALL, "vectors": 100}),
    ],
)
def test_an_index_that_does_not_fit_the_data_is_a_named_failure(play, target, workload):
    with pytest.raises(ExperimentFailed, match="index_does_not_fit"):
        play(search, target, workload)


@pytest.mark.parametrize(
    "target", [{"index": "flat", "nprobe": 2}, {"index": "hnsw", "nlist": 4}, {"index": "ivf", "nlist": 4}]
)
def test_options_of_another_index_are_refused(target):
    with pytest.raises(ValidationError):
        VectorTarget.model_validate(target)


def test_a_target_with_all_defaults_written_out_is_accepted():
    target = VectorTarget(index="flat")
    assert VectorTarget.model_validate(target.model_dump()) == target


def test_more_neighbours_than_vectors_are_refused():
    with pytest.raises(ValidationError, match="more than"):
        VectorWorkload(vectors=5, k=6)
