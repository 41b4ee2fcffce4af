from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchhouse.load.protocols.marks import arrivals

# The length of each event, how long after the one before it is sent, and whether a read comes after it.
EVENTS = st.lists(st.tuples(st.integers(6, 40), st.integers(0, 1000), st.booleans()), min_size=1, max_size=30)


@pytest.mark.parametrize(
    ("ends", "marks", "stamps", "unsure"),
    [
        ([10, 20], [(10, 100, 90), (20, 200, 190)], [100, 200], []),
        ([10, 20], [(11, 100, 90), (22, 200, 190)], [100, 200], []),  # line ends behind an event
        ([10, 20], [(20, 200, 50)], [200, 200], [150, 0]),
        ([10, 20], [(0, 50, 40), (15, 100, 90), (20, 200, 120)], [100, 200], [10, 0]),
        ([10], [(5, 100, 90), (30, 200, 120)], [200], [80]),  # more came behind it
        ([10], [(0, 50, 50), (10, 100, 90), (30, 200, 120)], [100], []),
        ([10, 20, 30], [(20, 100, 100), (30, 200, 150)], [100, 100, 200], []),  # together, and known to be
    ],
)
def test_an_event_has_the_stamp_of_its_read_and_a_doubt_where_others_follow_in_it(ends, marks, stamps, unsure):
    found = arrivals(ends, marks)
    assert [list(numbers) for numbers in found] == [stamps, unsure]


@given(EVENTS, st.data())
def test_every_event_came_between_its_stamp_and_what_it_may_be_earlier_by(events, data):
    """Events arrive whole; a read takes all that has arrived, and bears the stamp of the last of it."""
    ends = list(accumulate(length for length, _, _ in events))
    came = list(accumulate(after for _, after, _ in events))
    marks, floor, first = [(0, 0, 0)], 0, True
    for number, (_, _, read) in enumerate(events):
        if first:
            floor, first = data.draw(st.integers(floor, came[number])), False
        if read or number == len(events) - 1:
            marks.append((ends[number], came[number], floor))
            floor, first = came[number], True
    stamps, unsure = arrivals(ends, marks)
    assert len(stamps) == len(ends) and len(unsure) in (0, len(ends))
    for true, stamp, earlier in zip(came, stamps, unsure or [0] * len(ends), strict=True):
        assert stamp - earlier <= true <= stamp


@given(EVENTS, st.data())
def test_cut_anywhere_an_event_has_the_stamp_of_the_read_that_completed_it(events, data):
    ends = list(accumulate(length for length, _, _ in events))
    cuts = sorted(data.draw(st.sets(st.integers(1, ends[-1]), max_size=20)) | {ends[-1]})
    marks = [(cut, 100 * number, 100 * number - 50) for number, cut in enumerate(cuts, 1)]
    stamps, unsure = arrivals(ends, marks)
    expected = [next(stamp for size, stamp, _ in marks if size >= end) for end in ends]
    assert list(stamps) == expected
    for end, stamp, earlier in zip(ends, stamps, unsure or [0] * len(ends), strict=True):
        behind = next(size for size, its_stamp, _ in marks if its_stamp == stamp) - end
        assert earlier == (50 if behind > 3 else 0)
