import numpy
import pytest

from benchhouse.drivers.triton_tensors import DTYPES, SIZES, Making, TensorSpec, check_size, encode, load, synthesise
from benchhouse.schema.errors import BenchError


def making(**changes) -> Making:
    plain = {"batch": None, "shapes": {}, "values": {}, "seed": 0, "distinct": 3, "integer_max": 127, "text_length": 5}
    return Making(**plain | changes)


def texts(*elements: bytes):
    array = numpy.empty(len(elements), dtype=object)
    array[:] = elements
    return array


def test_numbers_are_little_endian_and_row_by_row():
    assert encode(numpy.array([[1, 2], [3, -1]], dtype=">i2"), "INT16") == b"\x01\0\x02\0\x03\0\xff\xff"
    assert encode(numpy.array([True, False]), "BOOL") == b"\x01\0"


def test_each_text_follows_its_length_and_keeps_its_zero_bytes():
    assert encode(texts(b"ab", b"", b"c\0"), "BYTES") == b"\x02\0\0\0ab\0\0\0\0\x02\0\0\0c\0"


def test_bf16_rounds_to_the_nearest_and_ties_to_even():
    values = [1.0, 1.00390625, 1.01171875, -2.0, numpy.inf, numpy.nan]
    found = numpy.frombuffer(encode(numpy.array(values, dtype=numpy.float32), "BF16"), "<u2").tolist()
    assert found[:5] == [0x3F80, 0x3F80, 0x3F82, 0xC000, 0x7F80]
    assert found[5] & 0x7FFF > 0x7F80  # still not a number


def test_bytes_that_do_not_fill_the_shape_are_found():
    for datatype, shape, data, wrong in [
        ("FP32", [2, 2], bytes(16), ""),
        ("FP32", [2, 2], bytes(12), "12 bytes"),
        ("FP16", [3], bytes(6), ""),
        ("NEW8", [3], bytes(3), "NEW8"),
        ("BYTES", [2], b"\x01\0\0\0a\0\0\0\0", ""),
        ("BYTES", [1], b"\x01\0\0\0a\0\0\0\0", "2 texts"),
        ("BYTES", [1], b"\x09\0\0\0a", "1 texts"),
        ("INT8", [0, 4], b"", ""),
    ]:
        assert wrong in check_size(datatype, shape, data)
        assert bool(wrong) == bool(check_size(datatype, shape, data))


def test_every_type_can_be_made_up():
    for datatype in DTYPES:
        sets = synthesise([TensorSpec("x", datatype, (2, 3))], making(batch=4))
        for (tensor,) in sets:
            assert tensor.shape == (4, 2, 3)
            assert check_size(datatype, tensor.shape, tensor.encode()) == ""
        assert len({tensors[0].encode() for tensors in sets}) == len(sets)
        if datatype in SIZES and DTYPES[datatype][1:2] == "i":
            assert all(0 <= value <= 127 for tensors in sets for value in tensors[0].array.flat)


def test_the_same_seed_makes_the_same_inputs():
    spec = [TensorSpec("x", "FP32", (8,)), TensorSpec("t", "BYTES", (2,))]

    def data(seed: int) -> list[bytes]:
        return [tensor.encode() for tensors in synthesise(spec, making(seed=seed)) for tensor in tensors]

    assert data(1) == data(1) != data(2)


def test_several_shapes_are_used_in_turn():
    sets = synthesise([TensorSpec("x", "FP32", (-1, 2))], making(shapes={"x": [[1, 2], [5, 2]]}, distinct=4))
    assert [tensors[0].shape for tensors in sets] == [(1, 2), (5, 2), (1, 2), (5, 2)]


def test_optional_inputs_are_left_out_unless_given():
    specs = [TensorSpec("x", "FP32", (1,)), TensorSpec("y", "INT32", (1,), optional=True)]
    assert [tensor.name for tensor in synthesise(specs, making())[0]] == ["x"]
    assert [tensor.name for tensor in synthesise(specs, making(values={"y": 7}))[0]] == ["x", "y"]


def test_a_given_value_fills_the_tensor_or_lists_its_elements():
    spec = [TensorSpec("x", "INT32", (2, 2))]
    assert synthesise(spec, making(values={"x": 7}))[0][0].array.tolist() == [[7, 7], [7, 7]]
    assert synthesise(spec, making(values={"x": [[1, 2], [3, 4]]}))[0][0].array.tolist() == [[1, 2], [3, 4]]


def test_what_does_not_fit_the_model_is_named():
    for changes, message in [
        ({"shapes": {"y": [[1]]}}, "no input 'y'; it takes x"),
        ({"values": {"y": 1}}, "no input 'y'; it takes x"),
        ({"shapes": {"x": [[3, 3]]}}, r"x takes \[-1, 2\], and \[3, 3\] does not fit"),
        ({"shapes": {"x": [[2]]}}, "does not fit"),
        ({"shapes": {"x": [[-5, 2]]}}, "does not fit"),
        ({}, r"shape \[-1, 2\], where -1 may be anything"),
        ({"shapes": {"x": [[1, 2]]}, "values": {"x": 1.5}}, "x is INT8, and 1.5 is not"),
        ({"shapes": {"x": [[1, 2]]}, "values": {"x": 300}}, "x is INT8, and 300 is not"),
        ({"shapes": {"x": [[1, 2]]}, "values": {"x": "many"}}, "x is INT8, and 'many' is not"),
        ({"shapes": {"x": [[1, 2]]}, "values": {"x": [1, 2, 3]}}, "has 2 elements, and 3 are given"),
    ]:
        with pytest.raises(BenchError, match=message):
            synthesise([TensorSpec("x", "INT8", (-1, 2))], making(**changes))


def test_a_file_brings_its_samples_in_batches_going_round(tmp_path):
    numpy.save(tmp_path / "x.npy", numpy.arange(6, dtype=numpy.float32).reshape(3, 2))
    sets = load(tmp_path / "x.npy", [TensorSpec("x", "FP32", (2,))], 2)
    assert [tensors[0].array.tolist() for tensors in sets] == [[[0, 1], [2, 3]], [[4, 5], [0, 1]]]


def test_a_model_without_batches_takes_one_sample_a_request(tmp_path):
    numpy.savez(tmp_path / "x.npz", x=numpy.arange(6, dtype=numpy.float32).reshape(3, 2), t=numpy.array([["é"]] * 3))
    specs = [TensorSpec("x", "FP32", (2,)), TensorSpec("t", "BYTES", (1,))]
    sets = load(tmp_path / "x.npz", specs, None)
    assert [tensors[0].array.tolist() for tensors in sets] == [[0, 1], [2, 3], [4, 5]]
    assert sets[0][1].array.tolist() == ["é".encode()]


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (numpy.zeros((3, 2)), "x is float64; the model takes FP32, which is float32"),
        (numpy.zeros((3, 4), dtype=numpy.float32), r"a sample of x is \[4\]; the model takes \[2\]"),
        (numpy.zeros(2, dtype=numpy.float32), r"a sample of x is \[\]"),
        (numpy.zeros((0, 2), dtype=numpy.float32), "at least 1"),
    ],
)
def test_a_file_of_other_tensors_is_refused_not_converted(tmp_path, array, message):
    numpy.save(tmp_path / "x.npy", array)
    with pytest.raises(BenchError, match=message):
        load(tmp_path / "x.npy", [TensorSpec("x", "FP32", (2,))], 1)


def test_a_file_with_other_names_or_none_is_refused(tmp_path):
    specs = [TensorSpec("x", "FP32", (2,)), TensorSpec("y", "FP32", (2,))]
    numpy.savez(tmp_path / "z.npz", z=numpy.zeros((1, 2), dtype=numpy.float32))
    with pytest.raises(BenchError, match="has the arrays z; the model takes x, y"):
        load(tmp_path / "z.npz", specs, None)
    numpy.save(tmp_path / "x.npy", numpy.zeros((1, 2), dtype=numpy.float32))
    with pytest.raises(BenchError, match="holds one array; the model takes x, y"):
        load(tmp_path / "x.npy", specs, None)
    (tmp_path / "text.npy").write_text("1,2,3")
    with pytest.raises(BenchError, match=r"text.npy can't be read"):
        load(tmp_path / "text.npy", specs, None)
    with pytest.raises(BenchError, match=r"none.npy can't be read"):
        load(tmp_path / "none.npy", specs, None)
