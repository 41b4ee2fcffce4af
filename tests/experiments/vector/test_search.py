"""`vector.search` from its inputs to its numbers, on FAISS and on FAISS with planted faults."""

import gc
import threading
import time

import numpy
import pytest
from pydantic import ValidationError

from benchhouse.drivers.faiss import Faiss
from benchhouse.experiments.vector.data import Synthetic
from benchhouse.experiments.vector.search import search
from benchhouse.experiments.vector.target import VectorTarget
from benchhouse.experiments.vector.workload import VectorWorkload
from benchhouse.load.protocols.calls import CallFailed
from benchhouse.load.protocols.vector import VectorStats
from benchhouse.schema.errors import BenchError
from benchhouse.schema.experiment import ExperimentFailed

SMALL = {"vectors": 2000, "data": {"dimensions": 16}, "queries": 50, "requests": 100, "warmup": 0}
FLAT = {"index": "flat"}
_SEARCH, _INGEST = Faiss.search, Faiss.ingest


def exact(vectors, queries, k):
    """Independent of the implementation under test."""
    far = ((queries[:, None, :].astype(float) - vectors[None].astype(float)) ** 2).sum(axis=2)
    return numpy.argsort(far, axis=1)[:, :k]


def spoil(monkeypatch, change):
    """Every answer of FAISS passes through `change(ids, k)`."""
    monkeypatch.setattr(
        Faiss, "search", lambda self, queries, k, below=None: change(_SEARCH(self, queries, k, below), k)
    )


def test_an_exhaustive_index_has_recall_one(play):
    for distance in ["l2", "ip", "cosine"]:
        for batch, target in [(1, FLAT), (32, {"index": "ivf", "nlist": 16, "nprobe": 16})]:
            ctx = play(search, target, {**SMALL, "batch": batch, "distance": distance})
            assert ctx.values["recall"] == [1.0], (distance, target)
            assert ctx.facts["recall"]["queries"] == 50


def test_measured_recall_is_that_of_an_independent_count(play):
    faiss = pytest.importorskip("faiss")
    workload = {"vectors": 400, "data": {"dimensions": 12}, "queries": 20, "k": 5, "requests": 40, "warmup": 0}
    ctx = play(search, {"index": "ivf", "nlist": 20, "nprobe": 2}, workload)
    data = Synthetic(dimensions=12).load(400, 20, None)
    index = faiss.index_factory(12, "IVF20,Flat")
    index.train(data.vectors)
    index.add(data.vectors)
    index.nprobe = 2
    answers, truth = index.search(data.queries, 5)[1], exact(data.vectors, data.queries, 5)
    expected = numpy.mean([len(set(a) & set(b)) / 5 for a, b in zip(answers.tolist(), truth.tolist(), strict=True)])
    assert 0.2 < expected < 1
    assert ctx.values["recall"] == [pytest.approx(expected)]


def test_an_index_that_drops_a_tenth_of_the_neighbours_has_recall_0_9(play, monkeypatch):
    dropped = numpy.random.default_rng(5)
    spoil(monkeypatch, lambda ids, k: numpy.where(dropped.random(ids.shape) < 0.1, -1, ids))
    ctx = play(search, FLAT, {**SMALL, "queries": 2000, "requests": 2000, "batch": 1})
    # 2,000 queries x 10 neighbours, each kept with p = 0.9: four standard errors
    assert ctx.values["recall"][0] == pytest.approx(0.9, abs=4 * (0.9 * 0.1 / 20_000) ** 0.5)
    assert ctx.facts["recall"]["standard_error"] == pytest.approx((0.9 * 0.1 / 20_000) ** 0.5, rel=0.1)


def test_a_filtered_search_finds_the_nearest_of_what_is_let_through(play):
    ctx = play(search, FLAT, {**SMALL, "selectivity": 0.1})
    assert ctx.values["recall"] == [1.0] and not ctx.invalidities


def test_a_search_that_ignores_the_filter_is_found_out(play, monkeypatch):
    monkeypatch.setattr(Faiss, "search", lambda self, queries, k, below=None: _SEARCH(self, queries, k))
    ctx = play(search, FLAT, {**SMALL, "selectivity": 0.1})
    assert ctx.values["recall"][0] < 0.3
    assert "filter" in ctx.invalidities["wrong_vectors"]


def test_counts_and_rates_agree(play):
    ctx = play(search, FLAT, {**SMALL, "batch": 20, "requests": 30})
    latency = ctx.histograms["latency"]
    assert latency.n == ctx.facts["measured"] == 30
    seconds = ctx.facts["window_s"]
    rate = ctx.values["requests_per_s"][0]
    assert rate == pytest.approx(30 / seconds, rel=0.3), "it counts up to the last send"
    assert ctx.values["qps"] == [pytest.approx(rate * (20 + 20 + 10) / 3)]
    assert latency.mean * latency.n / 1e9 <= seconds
    assert ctx.values["index_mb"] == [pytest.approx(2000 * 16 * 4 / 1e6, rel=0.01)]
    assert ctx.values["ingest_rate"][0] <= 2000 / ctx.values["build_s"][0]
    assert ctx.values["error_rate"] == [0]


def test_memory_is_what_the_index_took(play):
    gc.collect()
    ctx = play(
        search, FLAT, {**SMALL, "vectors": 50_000, "data": {"dimensions": 128}, "ingest_batch": 5000, "queries": 5}
    )
    assert ctx.values["memory_mb"][0] == pytest.approx(50_000 * 128 * 4 / 1e6, rel=0.15)


def test_vectors_come_in_batches(play, monkeypatch):
    sizes = []
    monkeypatch.setattr(
        Faiss, "ingest", lambda self, first, part, marks: sizes.append(len(part)) or _INGEST(self, first, part, marks)
    )
    play(search, FLAT, {**SMALL, "ingest_batch": 300})
    assert sizes == [300] * 6 + [200]


def test_eight_threads_are_in_flight(play, monkeypatch):
    busy, most, lock = [0], [0], threading.Lock()

    def slow(ids, k):
        with lock:
            busy[0] += 1
            most[0] = max(most[0], busy[0])
        time.sleep(0.01)
        with lock:
            busy[0] -= 1
        return ids

    spoil(monkeypatch, slow)
    ctx = play(search, FLAT, {**SMALL, "concurrency": 8})
    assert most[0] == 8 == ctx.facts["certificate"]["in_flight"]
    assert ctx.histograms["latency"].quantile(0.5) >= 10e6


def test_an_open_loop_counts_from_the_due_time(play):
    ctx = play(search, FLAT, {**SMALL, "requests": 40, "rps": 200})
    assert set(ctx.histograms) == {"latency", "latency_sent"}
    assert ctx.facts["certificate"]["loop"] == "open"


def test_goodput_is_of_the_answers_that_met_the_objective(play, monkeypatch):
    number = iter(range(10_000))
    spoil(monkeypatch, lambda ids, k: time.sleep(0.3 if next(number) % 5 == 4 else 0) or ids)
    ctx = play(search, FLAT, {**SMALL, "requests": 20, "slo": "latency.p50<150ms"})
    assert ctx.values["goodput"][0] == pytest.approx(0.8 * ctx.values["requests_per_s"][0])


def test_a_short_window_is_followed_by_more_queries_for_recall(play, monkeypatch):
    monkeypatch.setattr("benchhouse.experiments.vector.search.ENOUGH_QUERIES", 30)
    ctx = play(search, FLAT, {**SMALL, "requests": 7})
    assert (ctx.facts["recall"]["calls_after_the_window"], ctx.facts["recall"]["queries"]) == (23, 30)
    assert ctx.facts["measured"] == 7 and not ctx.warnings


def test_recall_of_few_queries_is_said_to_be(play, monkeypatch):
    spoil(monkeypatch, lambda ids, k: time.sleep(0.05) or ids)
    ctx = play(search, FLAT, {**SMALL, "requests": None, "duration": 0.2, "queries": 1000})
    assert "recall is of" in ctx.warnings["recall_of_few"]


def test_vectors_that_come_in_meanwhile_are_searched_for_once_acknowledged(play):
    ctx = play(
        search,
        FLAT,
        {**SMALL, "requests": None, "duration": 0.6, "ingest_during": 0.5, "ingest_batch": 50, "concurrency": 2},
    )
    assert ctx.values["recall"] == [1.0]
    assert ctx.values["ingest_during_rate"][0] == pytest.approx(1000 / 0.6, rel=0.3)


def test_vectors_that_are_acknowledged_and_not_found_cost_recall(play, monkeypatch):
    """An index that shows new vectors only after the load."""
    spoil(monkeypatch, lambda ids, k: numpy.where(ids < 1000, ids, -1))
    ctx = play(search, FLAT, {**SMALL, "requests": None, "duration": 0.6, "ingest_during": 0.5, "ingest_batch": 50})
    assert 0.4 < ctx.values["recall"][0] < 0.95


def test_the_truth_is_computed_once_for_all_targets_and_k(play):
    first = play(search, FLAT, SMALL)
    again = play(search, {"index": "hnsw", "threads": 2}, {**SMALL, "k": 100, "requests": 10}, first.cache)
    assert len(again.cache.built) == 1
    for number, other in enumerate(
        ({"data": {"dimensions": 16, "seed": 1}}, {"distance": "cosine"}, {"selectivity": 0.5})
    ):
        ctx = play(search, FLAT, {**SMALL, **other}, first.cache)
        assert len(ctx.cache.built) == number + 2 and ctx.values["recall"] == [1.0]


def test_recall_tells_indexes_apart(play):
    workload = {"vectors": 10_000, "queries": 200, "requests": 200, "warmup": 0}
    hnsw = {"index": "hnsw", "m": 8, "ef_construction": 40}
    first = play(search, {**hnsw, "ef_search": 16}, workload)
    found = {"hnsw 16": first.values["recall"][0]}
    for name, target in {
        "hnsw 128": {**hnsw, "ef_search": 128},
        "ivf 1": {"index": "ivf", "nprobe": 1},
        "ivf 16": {"index": "ivf", "nprobe": 16},
    }.items():
        found[name] = play(search, target, workload, first.cache).values["recall"][0]
    assert found["hnsw 16"] < 0.8 < 0.92 < found["hnsw 128"] < 1
    assert found["ivf 1"] < 0.4 < 0.8 < found["ivf 16"] < 1


def test_what_does_not_fit_is_a_named_failure(play):
    for target, workload, code in [
        ({"index": "ivf", "nlist": 3000}, SMALL, "index_does_not_fit"),
        ({"index": "pq", "pq_m": 5}, SMALL, "index_does_not_fit"),
        ({"index": "pq"}, {**SMALL, "vectors": 100}, "index_does_not_fit"),
        (FLAT, {**SMALL, "concurrency": 2, "processes": 2}, "one_process"),
    ]:
        with pytest.raises(ExperimentFailed, match=code):
            play(search, target, workload)


def test_a_file_with_bad_data_is_a_named_failure(play, tmp_path):
    rows = numpy.random.default_rng(0).standard_normal((40, 4)).astype(numpy.float32)
    numpy.save(tmp_path / "rows.npy", rows)
    asked = {"data": {"kind": "file", "path": str(tmp_path / "rows.npy")}, "requests": 10, "warmup": 0}
    assert play(search, FLAT, {**asked, "k": 3}).values["recall"] == [1.0]
    with pytest.raises(ExperimentFailed, match="bad_data: k 37 is more than the 36 vectors"):
        play(search, FLAT, {**asked, "k": 37})
    rows[3] = 0
    numpy.save(tmp_path / "rows.npy", rows)
    with pytest.raises(ExperimentFailed, match="bad_data: vector 3 is all zeros"):
        play(search, FLAT, {**asked, "k": 3, "distance": "cosine"})
    rows[3, 1] = numpy.inf
    numpy.save(tmp_path / "rows.npy", rows)
    with pytest.raises(ExperimentFailed, match=r"bad_data: .*row 3 has a value that is NaN, infinite"):
        play(search, FLAT, {**asked, "k": 3})


def test_neighbours_of_another_distance_in_the_file_are_refused(play, tmp_path):
    rows = numpy.random.default_rng(0).standard_normal((400, 8)).astype(numpy.float32) * numpy.arange(1, 401)[:, None]
    rows, queries = rows.astype(numpy.float32), rows[::20].astype(numpy.float32) * numpy.float32(1.3)
    numpy.savez(tmp_path / "rows.npz", train=rows, test=queries, neighbors=exact(rows, queries, 10))
    asked = {"data": {"kind": "file", "path": str(tmp_path / "rows.npz")}, "requests": 20, "warmup": 0}
    ctx = play(search, FLAT, asked)
    assert ctx.values["recall"] == [1.0] and not ctx.cache.built
    with pytest.raises(ExperimentFailed, match="not the nearest by ip"):
        play(search, FLAT, {**asked, "distance": "ip"})


@pytest.mark.parametrize("phase", ["create", "ingest", "build", "search", "stats"])
def test_what_was_created_is_deleted_when_a_phase_fails(play, monkeypatch, phase):
    deleted = []

    def fails(self, *_):
        raise CallFailed("reset", f"gone in {phase}")

    delete = Faiss.delete
    monkeypatch.setattr(Faiss, phase, fails)
    monkeypatch.setattr(Faiss, "delete", lambda self: deleted.append(delete(self)))
    with pytest.raises(ExperimentFailed, match=f"reset: gone in {phase}"):
        play(search, FLAT, SMALL)
    assert deleted


def test_searches_that_fail_in_the_load_are_errors_and_no_latencies(play, monkeypatch):
    number = iter(range(1000))

    def every_fourth(ids, k):
        if next(number) % 4 == 3:
            raise CallFailed("server_error", "planted")
        return ids

    spoil(monkeypatch, every_fourth)
    ctx = play(search, FLAT, {**SMALL, "requests": 40, "queries": 30})
    assert ctx.values["errors"] == [10]
    assert ctx.values["error_rate"] == [0.25]
    assert ctx.histograms["latency"].n == 30
    assert ctx.facts["first_errors"] == {"server_error": "planted"}
    assert ctx.values["recall"] == [1.0]


def test_what_a_driver_cannot_do_is_a_named_failure(play, monkeypatch):
    def refuses(self):
        raise BenchError("this database has no such index", "choose flat")

    monkeypatch.setattr(Faiss, "create", refuses)
    with pytest.raises(ExperimentFailed, match=r"driver_failed: this database has no such index \(choose flat\)"):
        play(search, FLAT, SMALL)
    monkeypatch.setattr(Faiss, "filters", False)
    with pytest.raises(ExperimentFailed, match="not_supported: the driver faiss can't filter"):
        play(search, FLAT, {**SMALL, "selectivity": 0.5})
    monkeypatch.setattr(Faiss, "distances", ("ip",))
    with pytest.raises(ExperimentFailed, match="not_supported: faiss has no distance l2; it has ip"):
        play(search, FLAT, SMALL)


def test_an_index_that_lost_vectors_is_found_out(play, monkeypatch):
    monkeypatch.setattr(Faiss, "stats", lambda self: VectorStats(1999, 1))
    with pytest.raises(ExperimentFailed, match="vectors_missing: the index holds 1999 of 2000"):
        play(search, FLAT, SMALL)


@pytest.mark.parametrize("change", [lambda ids, k: ids[:, :-1], lambda ids, k: ids.astype(float), lambda ids, k: None])
def test_an_answer_of_the_wrong_form_is_not_a_fast_answer(play, monkeypatch, change):
    spoil(monkeypatch, change)
    with pytest.raises(ExperimentFailed, match="bad_answer"):
        play(search, FLAT, SMALL)


def test_options_of_another_index_are_refused():
    for target in [{"index": "flat", "nprobe": 2}, {"index": "hnsw", "nlist": 4}, {"index": "ivf", "nlist": 4}]:
        with pytest.raises(ValidationError):
            VectorTarget.model_validate(target)


def test_inputs_with_all_defaults_written_out_are_accepted():
    for model in (
        VectorTarget(index="flat"),
        VectorWorkload(),
        VectorWorkload(rps=5),
        VectorWorkload(data="synthetic"),
    ):
        assert type(model).model_validate(model.model_dump(mode="json", round_trip=True)) == model


def test_impossible_workloads_are_refused():
    for workload, words in [
        ({"vectors": 5, "k": 6}, "more than"),
        ({"k": 20_001}, "more than"),
        ({"ingest_during": 0.5, "requests": 10}, "duration"),
        ({"ingest_during": 0.5, "concurrency": 2, "processes": 2}, "one process"),
        ({"ingest_during": 0.5, "selectivity": 0.5}, "not both"),
        ({"selectivity": 0}, "selectivity"),
        ({"rps": 5, "concurrency": 1}, "not both"),
    ]:
        with pytest.raises(ValidationError, match=words):
            VectorWorkload(**workload)
