import pytest
from engines import KINDS, engine
from hypothesis import given
from hypothesis import strategies as st
from tables import check_rows

from benchhouse.load.answers_python import MARK, READ
from benchhouse.load.framing import IncomingResponse, Malformed, chunk_size, read_head

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
WHOLE = {
    "length": (HEAD + b"Content-Length: 11\r\n\r\nhello world", b"hello world"),
    "length nought": (HEAD + b"content-length:0\r\n\r\n", b""),
    "chunked": (HEAD + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n", b"hello world"),
    "extensions": (
        HEAD + b'Transfer-Encoding:Chunked\r\n\r\n00B;name="a;b" ; x\r\nhello\r\nworl\r\n0;last\r\n\r\n',
        b"hello\r\nworl",
    ),
    "trailers": (
        HEAD + b"Transfer-Encoding: chunked\r\n\r\nA\r\n0123456789\r\n0\r\nExpires: never\r\nX: 0\r\n\r\n",
        b"0123456789",
    ),
    "line ends inside": (
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n4\r\n\r\n\r\n\r\n2\r\n0\r\r\n0\r\n\r\n",
        b"\r\n\r\n0\r",
    ),
    "interim": (
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: <a>\r\n\r\n"
        + HEAD
        + b"Content-Length: 2\r\n\r\nok",
        b"ok",
    ),
    "no content": (b"HTTP/1.1 204 No Content\r\n\r\n", b""),
    "not modified": (b"HTTP/1.1 304 Not Modified\r\nContent-Length: 99\r\n\r\n", b""),
    "chunked beats length": (
        HEAD + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        b"hello",
    ),
}


def fed(data, *cuts):
    """The answer, and after how many bytes it said that it was complete."""
    answer, taken = IncomingResponse(), 0
    for start, end in zip((0, *cuts), (*cuts, len(data)), strict=True):
        taken = end
        if answer.feed(data[start:end]):
            return answer, taken
    return answer, None


@pytest.mark.usefixtures("each_engine")
@pytest.mark.parametrize("name", WHOLE)
def test_an_answer_cut_at_any_two_bytes_is_the_same_answer(name):
    data, body = WHOLE[name]
    for first in range(len(data)):
        for second in range(first, len(data), 7):
            answer, complete_at = fed(data, first, second)
            assert bytes(answer.body) == body, (first, second)
            assert complete_at == len(data), (first, second)
            assert not answer.closing


@pytest.mark.usefixtures("each_engine")
@pytest.mark.parametrize("name", WHOLE)
def test_an_answer_that_comes_byte_by_byte_is_complete_with_its_last_byte_and_not_before(name):
    data, body = WHOLE[name]
    answer, complete_at = fed(data, *range(1, len(data)))
    assert (bytes(answer.body), complete_at) == (body, len(data))


@given(st.lists(st.binary(min_size=1, max_size=40), max_size=8), st.data())
def test_any_chunks_come_out_as_they_went_in(chunks, data):
    raw = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
    raw += b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks) + b"0\r\n\r\n"
    cuts = sorted(data.draw(st.lists(st.integers(1, len(raw) - 1), max_size=10)))
    answer, complete_at = fed(raw, *cuts)
    assert (bytes(answer.body), complete_at) == (b"".join(chunks), len(raw))


def test_an_answer_without_length_goes_up_to_the_end_of_the_connection():
    answer, complete_at = fed(HEAD + b"\r\nall that comes")
    assert complete_at is None and answer.ends_with_connection and answer.closing
    assert bytes(answer.body) == b"all that comes"


def test_the_head_says_whether_the_connection_can_be_used_again():
    rows = [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 0", False),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close", True),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nCONNECTION:Close", True),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: upgrade, close", True),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nX-Connection: close", False),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nVia: connection: close", False),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 0", True),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 0\r\nConnection: keep-alive", False),
    ]

    def check(head, closing):
        assert read_head(head).closing is closing

    check_rows(check, rows)


@pytest.mark.parametrize("name", ["length", "chunked", "trailers"])
def test_bytes_behind_the_end_are_not_body_and_spoil_the_connection(name):
    data, body = WHOLE[name]
    answer, _ = fed(data + b"HTTP/1.1 500 what\r\n")
    assert bytes(answer.body) == body
    assert answer.closing


def test_what_is_not_http_is_refused_with_the_reason():
    rows = [
        (b"SSH-2.0-OpenSSH_9.2", "not an HTTP answer"),
        (b"HTTP/2 200\r\n\r\n", "not an HTTP answer"),
        (b"HTTP/1.1 2xx OK\r\n\r\n", "not an HTTP answer"),
        (b"HTTP/1.1 2000 OK\r\n\r\n", "not an HTTP answer"),
        (b"HTTP/1.1 101 Switching Protocols\r\n\r\n", "not an HTTP answer"),
        (HEAD + b"Content-Length: -1\r\n\r\n", "content-length is b'-1'"),
        (HEAD + b"Content-Length: 5, 5\r\n\r\n", "content-length"),
        (HEAD + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\n", "and something else"),
        (HEAD + b"Transfer-Encoding: gzip, chunked\r\n\r\n", "transfer-encoding is b'gzip, chunked'"),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\nxyz\r\n", "no size: b'xyz'"),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n-5\r\nhello\r\n", "no size: b'-5'"),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n0x5\r\nhello\r\n", "no size"),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n1_0\r\n", "no size"),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n\r\n", "no size"),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + b"f" * 16 + b"\r\n", "no size"),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n3\r\nhello\r\n", "does not end where its size says: b'lo"),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + b"5;" + b"x" * 70_000, "a line between the chunks"),
        (b"HTTP/1.1 200 OK\r\nX: " + b"y" * (1 << 18), "the header of the answer does not end"),
    ]

    def check(data, said):
        with pytest.raises(Malformed, match=said.replace("'", ".")):
            fed(data)
        with pytest.raises(Malformed, match=said.replace("'", ".")):
            fed(data, *range(1, len(data), max(1, len(data) // 200)))

    check_rows(check, rows)


def test_a_size_in_upper_or_lower_case_with_leading_noughts_is_read():
    assert [chunk_size(line) for line in (b"a", b"A", b"0000ff", b"1F ;x")] == [10, 10, 255, 31]


def reads(ends):
    return b"".join(READ.pack(end, 2, 1, 3) for end in ends)


def fed_at_once(data, cuts, handovers):
    """Reads that end at these cuts, handed over a few at a time: what each hand-over said, and the answer."""
    answer, told, start = IncomingResponse(), [], 0
    ends = [*cuts, len(data)]
    while start < len(ends):
        count = handovers[len(told) % len(handovers)] if handovers else 1
        batch, begin = ends[start : start + count], ends[start - 1] if start else 0
        complete, marks = answer.feed_reads(data[begin : batch[-1]], reads(end - begin for end in batch))
        assert all((stamp, floor) == (2, 1) for _, stamp, floor in MARK.iter_unpack(marks))
        told += [size for size, _, _ in MARK.iter_unpack(marks)]
        if complete:
            return answer, told, True
        start += count
    return answer, told, False


LOOKS_LIKE_FRAMING = (b"\r\n", b"\r\n\r\n", b"3\r\nabc\r\n", b"0\r\n\r\n")
CHUNKS = st.lists(st.binary(min_size=1, max_size=40) | st.sampled_from([*LOOKS_LIKE_FRAMING, b"x" * 5000]), max_size=8)


@pytest.mark.parametrize("kind", KINDS)
@given(
    chunks=CHUNKS,
    size=st.sampled_from([b"%x", b"%X", b"0%x", b"%x;name=value"]),
    behind=st.binary(max_size=6),
    data=st.data(),
)
def test_many_reads_at_once_are_the_same_as_one_after_the_other(kind, chunks, size, behind, data):
    raw = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
    places = [len(raw)]  # where chunks end: reads mostly end there
    for chunk in chunks:
        raw += size % len(chunk) + b"\r\n" + chunk + b"\r\n"
        places.append(len(raw))
    raw += b"0\r\n\r\n"
    whole = len(raw)
    raw += behind
    cuts = data.draw(st.sets(st.sampled_from(places) | st.integers(1, len(raw) - 1), max_size=12))
    cuts = sorted(cuts - {len(raw)})
    handovers = data.draw(st.lists(st.integers(1, 13), max_size=5))

    singly, sizes, complete = IncomingResponse(), [], False
    for start, end in zip((0, *cuts), (*cuts, len(raw)), strict=True):
        if complete:
            break
        complete = singly.feed(raw[start:end])
        sizes.append(singly.size)
    with engine(kind):
        answer, told, complete_at_once = fed_at_once(raw, cuts, handovers)

    assert complete and complete_at_once
    assert told == sizes
    assert answer.body == singly.body == b"".join(chunks)
    last_read = [*cuts, len(raw)][len(told) - 1]
    assert answer.closing or last_read == whole
    assert behind or not answer.closing


@given(st.binary(max_size=60), st.data())
def test_many_reads_of_a_body_with_a_length_are_the_same_as_one_after_the_other(body, data):
    raw = HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body
    cuts = sorted(data.draw(st.sets(st.integers(1, len(raw) - 1), max_size=12)))
    answer, told, complete = fed_at_once(raw, cuts, data.draw(st.lists(st.integers(1, 13), max_size=5)))
    begin = len(raw) - len(body)
    assert told == [max(end - begin, 0) for end in (*cuts, len(raw))]
    assert (complete, bytes(answer.body), answer.closing) == (True, body, False)


def test_a_malformed_read_among_many_is_told():
    answer = IncomingResponse()
    answer.feed(HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
    with pytest.raises(Malformed, match="no size"):
        answer.feed_reads(b"1\r\na\r\nxyz\r\n", reads([6, 11]))


def give(answer, data):
    """As a connection feeds it: in one read."""
    return answer.feed_reads(data, READ.pack(len(data), 0, 0, 0))


EVENTS = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n"


def test_a_line_of_a_stream_that_does_not_end_is_the_servers_fault():
    answer = IncomingResponse()
    give(answer, EVENTS + b"Transfer-Encoding: chunked\r\n\r\n")
    piece = b"%x\r\n" % (1 << 20) + b"x" * (1 << 20) + b"\r\n"
    for _ in range(8):
        give(answer, piece)
    with pytest.raises(Malformed, match="a line of the stream has more than 8 MiB"):
        give(answer, piece)
    assert answer.size < 10 << 20


def test_many_lines_of_a_stream_may_be_longer_together():
    answer = IncomingResponse()
    give(answer, EVENTS + b"Transfer-Encoding: chunked\r\n\r\n")
    for _ in range(20):
        give(answer, b"%x\r\n" % (1 << 20) + b"x" * ((1 << 20) - 1) + b"\n\r\n")
    assert answer.size == 20 << 20


@pytest.mark.parametrize(
    "framing", [b"Content-Length: 200000000\r\n\r\nx", b"Transfer-Encoding: chunked\r\n\r\nbebc200\r\nx"]
)
def test_a_body_that_no_memory_is_for_is_refused_when_it_is_announced(framing):
    with pytest.raises(Malformed, match="more than 128 MiB"):
        give(IncomingResponse(), b"HTTP/1.1 200 OK\r\n" + framing)


def test_what_a_sink_takes_has_no_bound():
    assert (
        give(IncomingResponse(lambda piece: None), b"HTTP/1.1 200 OK\r\nContent-Length: 200000000\r\n\r\nx")[0] is False
    )
