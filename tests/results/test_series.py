import pytest
from members import member
from tables import check_table

from benchhouse.results.series import case_names, sweeps
from benchhouse.schema.errors import BenchError


def told(found):
    return {one.name: (one.along, [one.place(item) for item in one.members]) for one in found}


def test_names_that_tell_points_apart_are_no_reason_to_tear_a_curve():
    targets = [
        {"name": "flat", "index": "flat", "ef": 64, "nprobe": 8},
        *({"name": f"hnsw-{ef}", "index": "hnsw", "ef": ef, "nprobe": 8} for ef in (16, 128, 48)),
        *({"name": f"ivf-{n}", "index": "ivf", "ef": 64, "nprobe": n} for n in (4, 16)),
    ]
    assert told(sweeps([member(at, target, k=10) for at, target in enumerate(targets)])) == {
        "flat": ("", [0.0]),
        "hnsw": ("target.ef", [16.0, 48.0, 128.0]),
        "ivf": ("target.nprobe", [4.0, 16.0]),
    }


def test_names_that_tell_targets_apart_keep_their_curves_apart():
    grid = [(name, ef) for name in ("x", "y") for ef in (1, 2, 3)]
    points = [member(at, {"name": name, "ef": ef}) for at, (name, ef) in enumerate(grid)]
    assert told(sweeps(points)) == {name: ("target.ef", [1.0, 2.0, 3.0]) for name in ("x", "y")}


def test_a_workload_that_differs_makes_another_curve_and_is_named():
    grid = [(ef, load) for load in (1, 8) for ef in (16, 32)]
    points = [member(at, {"name": "a", "ef": ef}, concurrency=load) for at, (ef, load) in enumerate(grid)]
    found = sweeps(points)
    assert told(found) == {f"a concurrency={load}": ("target.ef", [16.0, 32.0]) for load in (1, 8)}
    assert len({one.case for one in found}) == 2


def test_of_several_numbers_the_one_with_most_values_is_followed():
    grid = [(m, ef) for m in (8, 32) for ef in (16, 32, 64)]
    points = [member(at, {"name": f"m{m}", "m": m, "ef": ef}) for at, (m, ef) in enumerate(grid)]
    assert told(sweeps(points)) == {name: ("target.ef", [16.0, 32.0, 64.0]) for name in ("m8", "m32")}
    assert told(sweeps(points, "m")) == {f"ef={ef}": ("target.m", [8.0, 32.0]) for ef in (16, 32, 64)}


def test_without_a_number_of_the_target_one_of_the_workload_is_followed():
    points = [member(at, {"name": "gzip"}, level=level) for at, level in enumerate((1, 6, 9))]
    assert told(sweeps(points)) == {"gzip": ("level", [1.0, 6.0, 9.0])}


def test_runs_are_never_mixed():
    points = [
        member(at, {"name": "a", "ef": ef}, run=run)
        for at, (run, ef) in enumerate([("r1", 1), ("r1", 2), ("r2", 1), ("r2", 2)])
    ]
    assert list(told(sweeps(points))) == ["a (r1)", "a (r2)"]


@check_table("key, why", [("nothing", "it is not there"), ("index", "it is no number")])
def test_an_unknown_axis_is_refused_with_the_known_ones(key, why):
    points = [member(at, {"name": "a", "index": "hnsw", "ef": ef}) for at, ef in enumerate((1, 2))]
    with pytest.raises(BenchError, match=f"{why}; numbers that vary: target.ef"):
        sweeps(points, key)


def test_a_truth_is_no_number():
    points = [member(at, {"name": "a", "fsync": fsync}) for at, fsync in enumerate((True, False))]
    assert [one.along for one in sweeps(points)] == ["", ""]


def test_cases_are_the_same_test_for_several_targets():
    grid = [(name, load) for load in (1, 8) for name in ("a", "b")]
    points = [member(at, {"name": name}, concurrency=load, k=10) for at, (name, load) in enumerate(grid)]
    assert [(name, [one.at for one in group]) for name, group in case_names(points)] == [
        ("concurrency=1", [0, 1]),
        ("concurrency=8", [2, 3]),
    ]


def test_only_trials_that_have_both_metrics_are_paired():
    point = member(0, {"name": "a"}, qps=100.0, recall=0.9)
    sample = point.samples["recall", "value"]
    point.samples["recall", "value"] = type(sample)("1", "higher", [0.7, 0.8], list(sample.trials[1:3]))
    x, y = point.together(("recall", "value"), ("qps", "value"))
    assert (x, y) == ([0.7, 0.8], pytest.approx([101.0, 99.0]))
