"""Contents that are never kept as a whole, and sinks that know them."""

import hashlib

import pytest

from benchhouse.experiments.storage.s3_content import PIECE_BYTES, Compared, ContentBlock, Stretch, make_contents
from benchhouse.experiments.storage.s3_source import cycle


@pytest.fixture(scope="module")
def block():
    return ContentBlock(3, PIECE_BYTES + 12345)


def test_a_stretch_is_the_block_repeated(block):
    repeated = block.data[: block.size] * 6
    for start in (0, 1, PIECE_BYTES, PIECE_BYTES + 12344):
        for size in (1, 1000, PIECE_BYTES, 3 * PIECE_BYTES + 7):
            content = Stretch(block, start, size)
            assert content.whole == repeated[start : start + size], (start, size)
            assert content.md5 == hashlib.md5(content.whole).hexdigest()
            assert content.sha256 == hashlib.sha256(content.whole).hexdigest()
            assert max(map(len, content.pieces())) <= PIECE_BYTES


def test_parts_are_the_whole_in_order(block):
    content = Stretch(block, 77, 2_500_000)
    parts = content.parts(1_000_000)
    assert [part.size for part in parts] == [1_000_000, 1_000_000, 500_000]
    assert b"".join(part.whole for part in parts) == content.whole


@pytest.mark.parametrize("cut", [1, 100, PIECE_BYTES, 3 * PIECE_BYTES])
def test_the_right_content_is_found_right_however_it_is_cut(block, cut):
    content = Stretch(block, 1_000_000, 3 * PIECE_BYTES if cut > 1 else 5000)
    whole = content.whole
    assert content.problem(whole[at : at + cut] for at in range(0, len(whole), cut)) == ""
    assert content.problem([memoryview(whole)]) == ""


def test_one_wrong_bit_and_another_length_are_found(block):
    content = Stretch(block, 9, 10_000)
    for at in (0, 4999, 9999):
        spoiled = bytearray(content.whole)
        spoiled[at] ^= 1
        assert "differs" in content.problem([bytes(spoiled[:5000]), bytes(spoiled[5000:])]), at
    for other in (content.whole[:-1], content.whole + b"x", b""):
        assert "10000 were written" in content.problem([other])


def test_contents_of_a_file_are_stretches_of_it(tmp_path):
    path = tmp_path / "given"
    path.write_bytes(bytes(range(256)) * 8)
    for content in make_contents(1, 1000, 5, path):
        assert content.whole in bytes(range(256)) * 16
    assert len({content.md5 for content in make_contents(1, 1000, 5, path)}) == 5


def test_contents_differ_so_that_a_swapped_object_is_found():
    contents = make_contents(1, 1000, 100)
    assert len({content.md5 for content in contents}) == len(contents) == 64
    assert contents[0].problem([contents[1].whole])


def test_large_contents_are_few_and_take_no_memory():
    contents = make_contents(1, 10**9, 1000)
    assert len(contents) == 2
    assert len(contents[0].block.data) < 20 << 20
    assert sum(map(len, contents[0].pieces())) == 10**9


def test_the_same_seed_makes_the_same_contents():
    assert [c.md5 for c in make_contents(5, 99, 9)] == [c.md5 for c in make_contents(5, 99, 9)]
    assert make_contents(5, 99, 9)[0].md5 != make_contents(6, 99, 9)[0].md5


def test_a_sink_that_was_fed_nothing_tells():
    assert Compared(make_contents(1, 10, 2)[0]).problem() == "0 bytes came, 10 were written"


def test_a_cycle_holds_each_kind_by_its_weight():
    drawn = cycle({"get": 70, "put": 20, "list": 10}, 0)
    assert [drawn.count(kind) for kind in ("get", "put", "list")] == [700, 200, 100]
    assert drawn != sorted(drawn)
    assert len(cycle({"get": 1, "put": 1, "list": 1}, 0)) == 1000
