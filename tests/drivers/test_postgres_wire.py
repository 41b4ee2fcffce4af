"""Messages of PostgreSQL's protocol: what is sent, and an answer in whatever pieces it comes."""

import struct

import pytest

from benchhouse.drivers.postgres_wire import Answer, ends_well, execute, message, query, refuse_copy
from benchhouse.load.protocols.calls import CallFailed

BOUND, READY, IN_TRANSACTION = message(b"2"), message(b"Z", b"I"), message(b"Z", b"T")
FAILED = message(b"E", b"SERROR\0VERROR\0C22012\0Mdivision by zero\0\0")
NOTICE, SETTING = message(b"N", b"SNOTICE\0C00000\0Mhello\0\0"), message(b"S", b"TimeZone\0UTC\0")


def row(*values: bytes) -> bytes:
    fields = b"".join(struct.pack("!i", len(value)) + value for value in values)
    return message(b"D", struct.pack("!H", len(values)) + fields)


def done(tag: bytes) -> bytes:
    return message(b"C", tag + b"\0")


def read(data: bytes, *, piece: int | None = None) -> tuple[int | str, Answer]:
    """What an answer comes to, read in pieces of so many bytes."""
    answer, size = Answer(), piece or len(data)
    for at in range(0, len(data), size):
        try:
            rows = answer.take(data[at : at + size])
        except CallFailed as failed:
            return failed.kind, answer
        if rows is not None:
            return rows, answer
    raise AssertionError("the answer never ended")


@pytest.mark.parametrize("piece", [None, 1, 2, 3, 5, 7, 11])
@pytest.mark.parametrize(
    ("data", "found"),
    [
        (BOUND + row(b"17") + done(b"SELECT 1") + READY, 1),
        (BOUND + row(b"Z\x05I", b"INDIA") * 3 + done(b"SELECT 3") + READY, 3),
        (BOUND + done(b"UPDATE 12") + READY, 12),
        (BOUND + done(b"INSERT 0 5") + READY, 5),
        (done(b"BEGIN") + IN_TRANSACTION, 0),
        (message(b"I") + READY, 0),
        (NOTICE + BOUND + SETTING + row(b"") + NOTICE + done(b"SELECT 1") + READY, 1),
        (BOUND + row(b"1") + FAILED + READY, "sqlstate_22012"),
    ],
)
def test_an_answer_is_the_same_in_whatever_pieces_it_comes(data, found, piece):
    assert read(data, piece=piece)[0] == found


def test_a_transaction_that_is_open_after_an_answer_is_known():
    assert read(FAILED + message(b"Z", b"E"))[1].in_transaction
    assert not read(FAILED + READY)[1].in_transaction


def test_what_is_said_behind_an_answer_does_not_belong_to_the_next():
    rows, answer = read(BOUND + done(b"SELECT 4") + READY + NOTICE[:7])
    assert (rows, answer.rest) == (4, NOTICE[:7])
    answer.skim(NOTICE[7:])
    assert (answer.rest, answer.take(BOUND + done(b"SELECT 2") + READY)) == (b"", 2)


def test_a_message_that_nobody_knows_breaks_the_connection_off():
    answer = Answer()
    with pytest.raises(CallFailed, match="malformed"):
        answer.take(message(b"?", b"x"))
    assert answer.broken


@pytest.mark.parametrize("length", [-1, 0, 3])
def test_a_message_shorter_than_its_own_length_breaks_the_connection_off(length):
    answer = Answer()
    with pytest.raises(CallFailed, match="malformed"):
        answer.take(b"D" + length.to_bytes(4, signed=True) + b"rest")
    assert answer.broken


@pytest.mark.parametrize(
    ("text", "rows", "tag"),
    [
        (b"SELECT x FROM t WHERE id = $1", 1, b"SELECT 1"),
        (b"  update t set x = 1", 1, b"UPDATE 1"),
        (b"INSERT INTO t VALUES ($1)", 3, b"INSERT 0 3"),
        (b"DELETE FROM t", 0, b"DELETE 0"),
    ],
)
def test_a_good_answer_is_told_by_its_end(text, rows, tag):
    ends = ends_well(text, rows)
    assert (BOUND + row(b"1") + done(tag) + READY).endswith(ends)
    assert (BOUND + row(b"1") + done(tag) + IN_TRANSACTION).endswith(ends)
    for other in (done(tag + b"0") + READY, done(tag) + message(b"Z", b"E"), FAILED + READY, done(tag), b""):
        assert not (BOUND + other).endswith(ends)


@pytest.mark.parametrize(("text", "rows"), [(b"SELECT 1", None), (b"WITH a AS (SELECT 1) SELECT", 1), (b"", 1)])
def test_where_the_end_is_not_known_every_answer_is_taken_apart(text, rows):
    assert ends_well(text, rows) == ()
    assert not (done(b"SELECT 1") + READY).endswith(())


def test_values_are_sent_as_values():
    sent = execute(b"q", [b"it's", None])
    assert sent.startswith(b"B" + struct.pack("!i", 4 + 3 + 2 + 2 + 4 + 4 + 4 + 2) + b"\0q\0")
    assert struct.pack("!i", 4) + b"it's" + struct.pack("!i", -1) in sent
    assert sent.endswith(message(b"S"))
    assert query(b"BEGIN") == b"Q\0\0\0\x0aBEGIN\0"
    assert refuse_copy(extended=True).endswith(message(b"S"))
