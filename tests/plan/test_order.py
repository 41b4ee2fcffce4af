"""In which order trials run, and with which seeds."""

from collections import Counter

from tables import check_table

from benchhouse.plan.space import PointSpace, Shuffle, VaryingKeys

TWO = "workload: {size: [1, 2]}\nrepetitions: 2\nwarmup: 1\nseed: 7\n"


def sequence(plan):
    kinds = {True: "w", False: "t"}
    return [f"{kinds[trial.warmup]}{trial.repetition}:{trial.parameters['size']}" for trial in plan.trials()]


def test_interleaved_is_the_default_and_goes_round_the_points(plan_of):
    assert sequence(plan_of(TWO)) == ["w0:1", "w0:2", "t0:1", "t0:2", "t1:1", "t1:2"]


def test_sequential_finishes_a_point_before_the_next(plan_of):
    assert sequence(plan_of(TWO + "order: sequential")) == ["w0:1", "t0:1", "t1:1", "w0:2", "t0:2", "t1:2"]


def test_random_order_is_pinned_by_its_seed(plan_of):
    assert sequence(plan_of(TWO + "order: random")) == ["w0:1", "w0:2", "t1:2", "t0:1", "t0:2", "t1:1"]


def test_random_order_is_a_permutation_equal_for_equal_seeds_and_different_for_others(plan_of):
    text = "workload: {{size: {{range: {{from: 1, to: 50, step: 1}}}}}}\nrepetitions: 3\norder: {}\nseed: {}\n"
    ordered = sequence(plan_of(text.format("interleaved", 1)))
    one, again, other = (sequence(plan_of(text.format("random", seed))) for seed in (1, 1, 2))
    assert one == again
    assert len({tuple(ordered), tuple(one), tuple(other)}) == 3
    assert Counter(one) == Counter(other) == Counter(ordered)


def test_random_order_leaves_out_what_is_excluded(plan_of):
    text = "workload: {size: [1, 2, 3], both: [true, false]}\nexclude: [{size: 2, both: true}]\norder: random\n"
    plan = plan_of(text + "repetitions: 4")
    assert len(list(plan.trials())) == plan.trial_count == 20


def test_each_repetition_has_its_seed_and_points_share_it(plan_of):
    seeds = {(trial.warmup, trial.repetition): trial.seed for trial in plan_of(TWO).trials()}
    assert seeds == {(True, 0): 7, (False, 0): 7, (False, 1): 8}


@check_table("size", [1, 2, 3, 5, 16, 17, 1000])
def test_a_shuffle_visits_everything_once(size):
    assert sorted(Shuffle(size, 3)[index] for index in range(size)) == list(range(size))


def test_a_shuffle_has_no_favourite_place():
    """First places over 4,000 seeds: each of 8 values about 500 times (six standard deviations are 125)."""
    firsts = Counter(Shuffle(8, seed)[0] for seed in range(4000))
    assert len(firsts) == 8
    assert all(abs(count - 500) < 125 for count in firsts.values()), firsts


def test_any_point_is_found_by_its_number():
    blocks = (VaryingKeys(("a", "b"), ((1, 2), (3, 4))), VaryingKeys(("c",), ((5,), (6,), (7,))))
    space = PointSpace(blocks, ({0: frozenset({1}), 1: frozenset({0, 2})},))
    assert (space.raw_size, space.keys) == (6, ("a", "b", "c"))
    first = [{"a": 1, "b": 2, "c": c} for c in (5, 6, 7)]
    assert [space.point(index) for index in range(6)] == [*first, None, {"a": 3, "b": 4, "c": 6}, None]
    assert list(space.points()) == [*first, {"a": 3, "b": 4, "c": 6}]
    assert list(PointSpace(()).points()) == [{}] and PointSpace(()).raw_size == 1
    assert list(PointSpace(blocks).rows()) == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)]
