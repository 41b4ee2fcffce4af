"""Which values a domain holds, and which stands for a region."""

import pytest

from benchhouse.catalog.domains import MISSING, apart, holds, listed, look_up, stand_in
from benchhouse.schema.ado import PropertyDomain as Domain

CONTINUOUS = "CONTINUOUS_VARIABLE_TYPE"


@pytest.mark.parametrize(
    ("domain", "inside", "outside"),
    [
        (Domain(values=["a", 1, True]), ["a", 1, 1.0, True], ["b", "1", False, 0]),
        (Domain(domain_range=(100, 1000)), [100, 999.9, 500], [99.9, 1000, "500", True]),
        (Domain(domain_range=(0, 1), interval=0.1), [0, 0.3, 0.7], [0.35, 1, 1.1]),
        (Domain(variable_type="BINARY_VARIABLE_TYPE"), [0, 1, True], [2, "yes"]),
        (Domain(variable_type=CONTINUOUS), [-1e9, 3], ["x"]),
        (None, ["anything", 7], []),
    ],
)
def test_a_domain_holds_what_it_says_and_a_range_not_its_upper_end(domain, inside, outside):
    assert all(holds(domain, value) for value in inside)
    assert not any(holds(domain, value) for value in outside)


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        (Domain(values=[1, 2]), Domain(values=[3]), True),
        (Domain(values=[1, 2]), Domain(domain_range=(2, 5)), False),
        (Domain(domain_range=(0, 10)), Domain(domain_range=(10, 20)), True),
        (Domain(domain_range=(0, 10)), Domain(domain_range=(9.5, 20)), False),
        (Domain(domain_range=(0, 9), interval=2), Domain(domain_range=(1, 9), interval=2), True),
        (Domain(variable_type=CONTINUOUS), Domain(domain_range=(0, 1)), False),
    ],
)
def test_domains_are_apart_where_no_value_is_in_both(a, b, expected):
    assert apart(a, b) is apart(b, a) is expected


@pytest.mark.parametrize(
    ("domains", "expected"),
    [
        ([Domain(values=["x", "y"])], "x"),
        ([Domain(domain_range=(100, 1000))], 100),
        ([Domain(domain_range=(100, 1000)), Domain(domain_range=(250, 2000))], 250),
        ([Domain(domain_range=(100, 1000)), Domain(values=[5, 300])], 300),
        ([Domain(domain_range=(0, 1)), Domain(values=[5])], MISSING),
        ([Domain(variable_type=CONTINUOUS)], MISSING),
    ],
)
def test_a_region_is_run_at_its_first_value_or_lower_end(domains, expected):
    assert stand_in(domains) == expected


def test_a_range_with_steps_is_listed_as_people_write_it_and_a_huge_one_is_not():
    assert listed(Domain(domain_range=(1, 4), interval=1)) == [1, 2, 3]
    assert listed(Domain(domain_range=(0, 1e12), interval=1)) is None


def test_inputs_are_found_by_the_names_that_scenarios_use():
    target, parameters = {"name": "m", "size": 1}, {"size": 2, "values": {"codec": "xz"}, "a.b": 3}
    names = {"size": 2, "target.size": 1, "workload.size": 2, "name": "m", "values.codec": "xz", "a.b": 3}
    assert {name: look_up(name, target, parameters) for name in names} == names
    assert look_up("values.codec.x", target, parameters) is look_up("nope", target, parameters) is MISSING
