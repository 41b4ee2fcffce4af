"""What is made of the bytes and the marks of an answer, by the compiled part and by Python alike."""

import json
from array import array
from collections import Counter
from itertools import accumulate, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tables import check_table

from benchhouse.load import answers, answers_python
from benchhouse.load.answers_python import MARK, READ
from benchhouse.schema.histogram import LARGEST, Histogram, PreparedValues

try:
    from benchhouse.load import _answers as compiled
except ImportError:
    compiled = None
is_compiled = pytest.mark.skipif(compiled is None, reason="nothing is compiled here")
both = pytest.mark.parametrize(
    "made", [pytest.param(answers_python, id="python"), pytest.param(compiled, id="compiled", marks=is_compiled)]
)

LOOKS_LIKE_FRAMING = (b"\r\n", b"\r\n\r\n", b"3\r\nabc\r\n", b"0\r\n\r\n")
CHUNKS = st.lists(st.binary(min_size=1, max_size=40) | st.sampled_from([*LOOKS_LIKE_FRAMING, b"x" * 5000]), max_size=8)
# The length of each event, how long after the one before it is sent, and whether a read comes after it.
EVENTS = st.lists(st.tuples(st.integers(6, 40), st.integers(0, 1000), st.booleans()), min_size=1, max_size=30)
TOP, BOTTOM = (1 << 63) - 1, -(1 << 63)
NUMBERS = st.lists(st.integers(-(10**12), 10**12), max_size=20)


def numbers(raw):
    return array("q", raw).tolist()


def flat(rows):
    return array("q", [number for row in rows for number in row])


# whole chunks


@both
@given(
    chunks=CHUNKS, rest=st.sampled_from([b"", b"0\r\n\r\n", b"5\r\nab", b"zz\r\n", b"3;x=y\r\nabc\r\n"]), data=st.data()
)
def test_the_whole_chunks_at_the_beginning_are_taken_and_each_read_has_its_share(made, chunks, rest, data):
    framed = [b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks]
    raw = b"".join(framed) + rest
    ends = sorted(data.draw(st.sets(st.integers(1, max(len(raw), 1)), max_size=6)))
    reads = b"".join(READ.pack(end, 10 * end, 9 * end, 11 * end) for end in ends)
    at, content, marks = made.whole_chunks(raw, reads, 1000)
    assert at == len(raw) - len(rest)
    assert content == b"".join(chunks)
    within = [end for end in ends if end <= at]
    edges = [0, *accumulate(map(len, framed))]
    for end, (size, stamp, floor) in zip(within, MARK.iter_unpack(marks), strict=True):
        parts = zip(edges, framed, chunks, strict=False)
        seen = sum(min(max(end - start - len(b"%x\r\n" % len(chunk)), 0), len(chunk)) for start, _, chunk in parts)
        assert (size, stamp, floor) == (1000 + seen, 10 * end, 9 * end)


@both
@pytest.mark.parametrize(
    "data",
    [b"", b"5", b"5\r\nhello", b"5\r\nhello\r", b"5\r\nhelloo\r\n", b"0\r\n\r\n", b"\r\nhello\r\n", b"-1\r\na\r\n",
     b"fffffffffffffffff\r\na\r\n", b"7fffffff\r\na\r\n", b"5\nhello\r\n"],
)  # fmt: skip
def test_what_is_no_whole_chunk_is_left_where_it_is(made, data):
    assert made.whole_chunks(data, READ.pack(len(data), 1, 1, 1) if data else b"", 0) == (0, b"", b"")


@both
@check_table("size", [b"05", b"00000A", b"0000005"])
def test_a_chunk_may_spell_its_size_in_any_way(made, size):
    content = b"x" * int(size, 16)
    assert made.whole_chunks(size + b"\r\n" + content + b"\r\n", b"", 0)[1] == content


@both
def test_a_read_that_ends_before_any_chunk_has_a_mark_of_its_own(made):
    reads = READ.pack(0, 7, 6, 8) + READ.pack(0, 9, 8, 10)
    assert made.whole_chunks(b"", reads, 5) == (0, b"", MARK.pack(5, 7, 6) + MARK.pack(5, 9, 8))
    assert made.whole_chunks(b"1\r\na\r\n", reads, 5)[2] == MARK.pack(5, 7, 6) + MARK.pack(5, 9, 8)


@both
@check_table(
    "reads, before, error",
    [
        (READ.pack(5, 1, 1, 1) + READ.pack(3, 1, 1, 1), 0, ValueError),
        (READ.pack(-1, 1, 1, 1), 0, ValueError),
        (READ.pack(5, 1, 1, 1)[:-1], 0, ValueError),
        (b"", (1 << 63) - 1, OverflowError),
    ],
)
def test_reads_out_of_order_or_too_far_are_refused(made, reads, before, error):
    with pytest.raises(error):
        made.whole_chunks(b"1\r\na\r\n", reads, before)


# events that are alike


def event(text, more=""):
    return b'data: {"choices":[{"text":%s%s}]}' % (json.dumps(text).encode(), more.encode())


BEGIN, END = b'data: {"choices":[{"text":"', b'"}]}\n\n'
TEXTS = st.lists(
    st.text(st.characters(codec="utf-8"), max_size=6) | st.sampled_from(["", '"', "\\", "\n", "}]}", BEGIN.decode()])
)


@both
@given(
    texts=TEXTS,
    behind=st.sampled_from([b"", b"data: [DONE]\n\n", b"data: {", BEGIN + b"cut off", event("a", ',"x":1') + b"\n\n"]),
)
def test_events_that_differ_in_their_text_are_passed_over_up_to_the_first_that_is_not_plain(made, texts, behind):
    body = b"before" + b"".join(event(text) + b"\n\n" for text in texts) + behind
    at, places = made.alike(body, len(b"before"), BEGIN, END)
    start, expected = len(b"before"), []
    for text in texts:
        if not text or (json.dumps(text) != f'"{text}"' and "\\" in json.dumps(text)):
            break
        start += len(event(text))
        expected.append(start)
        start += 2
    assert (at, numbers(places)) == (start, expected)


@both
def test_line_ends_of_two_bytes_are_passed_over_too(made):
    body = 2 * (BEGIN + b'a"}]}\r\n\r\n')
    line = len(BEGIN + b'a"}]}\r')
    assert made.alike(body, 0, BEGIN, b'"}]}\r\n\r\n')[0] == len(body)
    assert numbers(made.alike(body, 0, BEGIN, b'"}]}\r\n\r\n')[1]) == [line, line + 3 + line]


@both
def test_a_row_of_events_longer_than_one_look_is_passed_over_to_its_end(made):
    body = 1000 * (BEGIN + b"word" + END)
    at, places = made.alike(body, 0, BEGIN, END)
    assert at == len(body) and len(numbers(places)) == 1000


@both
def test_the_last_event_before_one_of_another_kind_is_passed_over_too(made):
    body = BEGIN + b"a" + END + b"data: [DONE]\n\n" + 2 * (BEGIN + b"b" + END)
    assert made.alike(body, 0, BEGIN, END)[0] == len(BEGIN + b"a" + END)


@both
@check_table("at, end", [(-1, END), (0, b"}\n"), (0, b'"}'), (0, b"")])
def test_an_end_that_closes_no_text_or_line_is_refused(made, at, end):
    with pytest.raises(ValueError):
        made.alike(BEGIN + b"a" + END, at, BEGIN, end)


# arrivals


@both
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
        ([10, 11], [(12, 100, 90), (12, 200, 190)], [100, 100], []),  # the second read brought no content
        ([], [(12, 100, 90)], [], []),
    ],
)
def test_an_event_has_the_stamp_of_its_read_and_a_doubt_where_others_follow_in_it(made, ends, marks, stamps, unsure):
    found = made.arrivals(array("q", ends), flat(marks))
    assert [*map(numbers, found)] == [stamps, unsure]


@both
@given(events=EVENTS, data=st.data())
def test_every_event_came_between_its_stamp_and_what_it_may_be_earlier_by(made, events, data):
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
    stamps, unsure = map(numbers, made.arrivals(array("q", ends), flat(marks)))
    assert len(stamps) == len(ends) and len(unsure) in (0, len(ends))
    for true, stamp, earlier in zip(came, stamps, unsure or [0] * len(ends), strict=True):
        assert stamp - earlier <= true <= stamp


@both
@given(events=EVENTS, data=st.data())
def test_cut_anywhere_an_event_has_the_stamp_of_the_read_that_completed_it(made, events, data):
    ends = list(accumulate(length for length, _, _ in events))
    cuts = sorted(data.draw(st.sets(st.integers(1, ends[-1]), max_size=20)) | {ends[-1]})
    marks = [(cut, 100 * number, 100 * number - 50) for number, cut in enumerate(cuts, 1)]
    stamps, unsure = map(numbers, made.arrivals(array("q", ends), flat(marks)))
    assert stamps == [next(stamp for size, stamp, _ in marks if size >= end) for end in ends]
    for end, stamp, earlier in zip(ends, stamps, unsure or [0] * len(ends), strict=True):
        behind = next(size for size, its_stamp, _ in marks if its_stamp == stamp) - end
        assert earlier == (50 if behind > 3 else 0)


@both
def test_an_event_behind_the_last_read_is_an_error(made):
    with pytest.raises(IndexError):
        made.arrivals(array("q", [30]), flat([(20, 1, 1)]))


@both
@check_table(
    "ends, marks, error",
    [
        ([20, 10], [20, 1, 1], ValueError),
        ([10], [20, 1, 1, 10, 1, 1], ValueError),
        ([10], [20, 1, 1, 30], ValueError),
        ([10], [20, TOP, BOTTOM], OverflowError),
    ],
)
def test_events_and_reads_out_of_order_or_too_far_apart_are_refused(made, ends, marks, error):
    with pytest.raises(error):
        made.arrivals(array("q", ends), array("q", marks))


# times


@both
@check_table(
    "name, arguments",
    [
        ("gaps", [[BOTTOM, TOP]]),
        ("sides", [[TOP], [0], [1], -1]),
        ("sides", [[1], [BOTTOM], [], BOTTOM]),
        ("bins", [[TOP], -1, 1]),
    ],
)
def test_a_result_of_more_than_64_bits_is_refused(made, name, arguments):
    with pytest.raises(OverflowError):
        getattr(made, name)(*(array("q", value) if isinstance(value, list) else value for value in arguments))


@both
def test_changes_of_gaps_may_add_up_to_more_than_64_bits(made):
    stamps = array("q", [0, TOP, 0, TOP])
    assert made.gaps(stamps)[1:] == (TOP, 4 * TOP)


@both
def test_every_time_can_be_unsure(made):
    found = [*map(numbers, made.sides(array("q", [5, 6]), array("q", [-3, 2]), array("q"), -1))]
    assert found == [[], [5, 6], [8, 4], [5, 6]]


@both
@given(stamps=NUMBERS)
def test_gaps_their_longest_and_how_much_they_change(made, stamps):
    raw, longest, changes = made.gaps(array("q", stamps))
    between = [after - before for before, after in pairwise(stamps)]
    assert numbers(raw) == between
    assert longest == max(between, default=0)
    assert changes == sum(abs(after - before) for before, after in pairwise(between))


@both
@given(stamps=NUMBERS, start=st.integers(-(10**6), 10**6), width=st.integers(1, 10**7))
def test_bins_are_those_of_the_stamps_in_their_order(made, stamps, start, width):
    found, expected = made.bins(array("q", stamps), start, width), [(stamp - start) // width for stamp in stamps]
    assert set(found) == set(expected)
    assert all(before != after for before, after in pairwise(found))


@both
def test_a_bin_without_width_is_an_error(made):
    with pytest.raises(ValueError, match="width"):
        made.bins(array("q", [1]), 0, 0)


@both
@given(
    rows=st.lists(st.tuples(*3 * [st.integers(0, 1000)]), max_size=20), fine=st.integers(0, 1000), sure=st.booleans()
)
def test_a_time_is_sure_or_has_two_sides(made, rows, fine, sure):
    values, earlier, later = (array("q", [row[part] for row in rows]) for part in range(3))
    if sure:
        later = array("q")
    found = [*map(numbers, made.sides(values, earlier, later, fine))]
    expected = [[], [], [], []]
    for value, less, more in zip(values, earlier, later or [0] * len(values), strict=True):
        if max(less, more) <= fine:
            expected[0].append(value)
        else:
            for side, number in zip(expected[1:], (value, max(value - less, 0), value + more), strict=True):
                side.append(number)
    assert found == expected


@both
def test_a_time_without_its_doubt_is_an_error(made):
    with pytest.raises(ValueError, match="how far"):
        made.sides(array("q", [1, 2]), array("q", [1]), array("q"), 0)


@given(st.lists(st.integers(0, LARGEST) | st.integers(0, 10**9), max_size=40))
def test_what_a_histogram_wants_to_know_is_the_same(values):
    fast, plain = answers.measured(array("q", values)), PreparedValues(values)
    for name in ("n", "low", "high", "total", "squares"):
        assert getattr(fast, name) == getattr(plain, name), name
    assert Counter(fast.buckets) == Counter(plain.buckets)
    counted = Histogram()
    counted.count(fast)
    assert counted == Histogram(values)


@is_compiled
def test_squares_that_need_more_than_128_bits_are_left_to_python():
    largest = array("q", [(1 << 53) - 1])
    assert compiled.measured(largest * (1 << 22)) is not None
    assert compiled.measured(largest * ((1 << 22) + 4)) is None


def test_a_time_below_nought_is_refused_by_name():
    with pytest.raises(ValueError, match="found -5"):
        answers.measured(array("q", [3, -5, 7]))
