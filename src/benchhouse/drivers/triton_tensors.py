"""Tensors of a Triton model: their declarations, generated and stored values, and their bytes in requests."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchhouse.documents.problems import did_you_mean
from benchhouse.schema.errors import BenchError

if TYPE_CHECKING:
    from numpy.typing import NDArray

# Triton's names of data types in numpy's notation. BF16 is made from float32; BYTES are objects of type bytes.
DTYPES = {
    "BOOL": "?", "UINT8": "<u1", "UINT16": "<u2", "UINT32": "<u4", "UINT64": "<u8", "INT8": "<i1", "INT16": "<i2",
    "INT32": "<i4", "INT64": "<i8", "FP16": "<f2", "BF16": "<f4", "FP32": "<f4", "FP64": "<f8", "BYTES": "O",
}  # fmt: skip
SIZES = {name: int(dtype[2:] or 1) for name, dtype in DTYPES.items() if name != "BYTES"} | {"BF16": 2}
_LETTERS = "abcdefghijklmnopqrstuvwxyz"


@dataclass(frozen=True)
class TensorSpec:
    """A tensor as the model declares it; `shape` excludes the batch, and -1 is a variable dimension."""

    name: str
    datatype: str
    shape: tuple[int, ...]
    optional: bool = False


@dataclass(frozen=True)
class Tensor:
    """A tensor of one request, with its batch dimension if the model has one."""

    name: str
    datatype: str
    array: "NDArray[Any]"

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.array.shape)

    def encode(self) -> bytes:
        return encode(self.array, self.datatype)

    def plain(self) -> Any:
        """Return JSON values: a single value as it is, several as a flat list, texts decoded from UTF-8."""
        flat: list[Any] = self.array.reshape(-1).tolist()
        values = [value.decode("utf-8", "replace") if isinstance(value, bytes) else value for value in flat]
        return values[0] if len(values) == 1 else values


def encode(array: "NDArray[Any]", datatype: str) -> bytes:
    """Return the elements in row-major order, little-endian; each element of BYTES follows its length."""
    if datatype == "BYTES":
        elements = array.reshape(-1).tolist()
        return b"".join(len(element).to_bytes(4, "little") + element for element in elements)
    if datatype == "BF16":
        bits = array.astype("<f4").view("<u4")
        # To the nearest, ties to even, as hardware rounds. A NaN would round to infinity, so it is truncated instead.
        rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
        rounded[array != array] = bits[array != array] >> 16 | 0x40
        return bytes(rounded.astype("<u2").tobytes())
    return bytes(array.astype(DTYPES[datatype], copy=False).tobytes())


def check_size(datatype: str, shape: Sequence[int], data: memoryview | bytes) -> str:
    """Return what is wrong with the bytes of an output, or an empty string."""
    elements = math.prod(shape)
    if datatype != "BYTES":
        takes = elements * SIZES[datatype] if datatype in SIZES else -1
        return "" if len(data) == takes else f"{len(data)} bytes for {datatype} {list(shape)}, which takes {takes}"
    at = count = 0
    while at + 4 <= len(data):
        at += 4 + int.from_bytes(data[at : at + 4], "little")
        count += 1
    if at != len(data) or count != elements:
        return f"{count} texts in {len(data)} bytes for BYTES {list(shape)}"
    return ""


@dataclass(frozen=True)
class Making:
    """How inputs are made if no file supplies them."""

    batch: int | None  # None: the model has no batch dimension
    shapes: Mapping[str, Sequence[Sequence[int]]]  # the shapes of each input, used in rotation
    values: Mapping[str, Any]
    seed: int
    distinct: int
    integer_max: int
    text_length: int


def synthesise(specs: Sequence[TensorSpec], making: Making) -> list[list[Tensor]]:
    """Return `distinct` different sets of inputs, determined by the seed."""
    import numpy

    _check_names(specs, making)
    wanted = [spec for spec in specs if not spec.optional or spec.name in making.values]
    shapes = {spec.name: _shapes(spec, making) for spec in wanted}
    sets = []
    for number in range(making.distinct):
        random = numpy.random.default_rng([making.seed, number])
        tensors = []
        for spec in wanted:
            shape = shapes[spec.name][number % len(shapes[spec.name])]
            if spec.name in making.values:
                array = _given(spec, shape, making.values[spec.name])
            else:
                array = _random(spec, shape, random, making)
            tensors.append(Tensor(spec.name, spec.datatype, array))
        sets.append(tensors)
    return sets


def load(path: Path, specs: Sequence[TensorSpec], batch: int | None) -> list[list[Tensor]]:
    """Return inputs from a .npy (one input) or .npz file (arrays by name), whose first dimension counts samples.

    Each request takes `batch` samples, wrapping around, until every sample has been used.
    """
    arrays = _read(path, specs)
    known = {spec.name: spec for spec in specs}
    missing = [spec.name for spec in specs if not spec.optional and spec.name not in arrays]
    if missing or set(arrays) - set(known):
        raise BenchError(
            f"{path} has the arrays {', '.join(sorted(arrays)) or 'none'}; the model takes {', '.join(known)}",
            hint="name each array of the .npz as the model names its input",
        )
    samples = {len(array) if array.ndim else 0 for array in arrays.values()}
    if len(samples) != 1 or 0 in samples:
        raise BenchError(f"{path}: every array needs the same number of samples, at least 1, in its first dimension")
    count = samples.pop()
    encoded = {name: _as_declared(array, known[name], path) for name, array in arrays.items()}
    sets = []
    for first in range(0, count, batch or 1):
        rows = [(first + step) % count for step in range(batch)] if batch else first
        sets.append([Tensor(name, known[name].datatype, array[rows]) for name, array in encoded.items()])
    return sets


def _read(path: Path, specs: Sequence[TensorSpec]) -> "dict[str, NDArray[Any]]":
    import numpy

    try:
        loaded = numpy.load(path, allow_pickle=False)
        if isinstance(loaded, numpy.ndarray):
            needed = [spec for spec in specs if not spec.optional] or list(specs)
            if len(needed) > 1:
                raise BenchError(
                    f"{path} holds one array; the model takes {', '.join(spec.name for spec in needed)}",
                    hint="numpy.savez(path, name=array, ...)",
                )
            return {needed[0].name: loaded}
        with loaded:
            return {name: loaded[name] for name in loaded.files}
    except (OSError, ValueError, EOFError) as error:
        raise BenchError(f"{path} can't be read as .npy or .npz: {error}") from error


def _as_declared(array: "NDArray[Any]", spec: TensorSpec, path: Path) -> "NDArray[Any]":
    """Return the samples of an input. A file with another type than the model's is refused, never converted."""
    import numpy

    if len(array.shape) - 1 != len(spec.shape) or not _fits(array.shape[1:], spec.shape):
        raise BenchError(
            f"{path}: a sample of {spec.name} is {list(array.shape[1:])}; the model takes {list(spec.shape)}",
            hint="the first dimension of the array counts samples",
        )
    if spec.datatype == "BYTES" and array.dtype.kind in "SU":
        texts = [text.encode() if isinstance(text, str) else text for text in array.reshape(-1).tolist()]
        return _texts(texts, array.shape)
    if array.dtype != numpy.dtype(DTYPES[spec.datatype]):
        wanted = "text (S or U)" if spec.datatype == "BYTES" else str(numpy.dtype(DTYPES[spec.datatype]))
        raise BenchError(f"{path}: {spec.name} is {array.dtype}; the model takes {spec.datatype}, which is {wanted}")
    return array


def _check_names(specs: Sequence[TensorSpec], making: Making) -> None:
    names = [spec.name for spec in specs]
    for option, given in (("shapes", making.shapes), ("values", making.values)):
        for name in given:
            if name not in names:
                guess = did_you_mean(name, names)
                raise BenchError(
                    f"{option}: the model has no input {name!r}; it takes {', '.join(names)}",
                    hint=f"did you mean {guess!r}?" if guess else "",
                )


def _shapes(spec: TensorSpec, making: Making) -> list[tuple[int, ...]]:
    given = making.shapes.get(spec.name)
    if given is None and -1 in spec.shape:
        raise BenchError(
            f"input {spec.name} has the shape {list(spec.shape)}, where -1 may be anything: say what it is",
            hint=f"shapes: {{{spec.name}: {[16 if size == -1 else size for size in spec.shape]}}}",
        )
    shapes = [tuple(shape) for shape in given] if given is not None else [spec.shape]
    for shape in shapes:
        if not _fits(shape, spec.shape):
            batch = "; leave the batch out" if making.batch is not None else ""
            raise BenchError(
                f"shapes: {spec.name} takes {list(spec.shape)}, and {list(shape)} does not fit",
                hint=f"-1 may be any number, the others are fixed{batch}",
            )
    return [(making.batch, *shape) if making.batch is not None else shape for shape in shapes]


def _fits(shape: Sequence[int], declared: Sequence[int]) -> bool:
    return len(shape) == len(declared) and all(
        size == fixed or (fixed == -1 and size >= 0) for size, fixed in zip(shape, declared, strict=True)
    )


def _given(spec: TensorSpec, shape: tuple[int, ...], value: Any) -> "NDArray[Any]":
    """Return the user's value as an array: one value for all elements, or a list of all values."""
    import numpy

    elements = _leaves(value)
    if len(elements) == 1:
        elements *= math.prod(shape)
    if len(elements) != math.prod(shape):
        raise BenchError(f"values: {spec.name} has {math.prod(shape)} elements, and {len(elements)} are given")
    if spec.datatype == "BYTES":
        return _texts([str(element).encode() for element in elements], shape)
    try:
        given = numpy.array(elements)
        array = given.astype(DTYPES[spec.datatype])
    except (ValueError, OverflowError, TypeError) as error:
        raise BenchError(f"values: {spec.name} is {spec.datatype}, and {value!r} is not: {error}") from error
    if given.dtype.kind not in "biuf" or (array.dtype.kind in "iu" and not (array == given).all()):
        raise BenchError(f"values: {spec.name} is {spec.datatype}, and {value!r} is not")
    return array.reshape(shape)


def _leaves(value: Any) -> list[Any]:
    return [leaf for item in value for leaf in _leaves(item)] if isinstance(value, list | tuple) else [value]


def _random(spec: TensorSpec, shape: tuple[int, ...], random: Any, making: Making) -> "NDArray[Any]":
    import numpy

    dtype = numpy.dtype(DTYPES[spec.datatype])
    if spec.datatype == "BYTES":
        letters = random.integers(0, len(_LETTERS), (math.prod(shape), making.text_length))
        return _texts(["".join(_LETTERS[at] for at in row).encode() for row in letters], shape)
    if dtype.kind == "f":
        values: NDArray[Any] = random.random(shape, dtype=numpy.float32).astype(dtype)
        return values
    most = 1 if dtype.kind == "b" else min(making.integer_max, int(numpy.iinfo(dtype).max))
    integers: NDArray[Any] = random.integers(0, most, shape, dtype=numpy.int64, endpoint=True).astype(dtype)
    return integers


def _texts(texts: list[bytes], shape: Sequence[int]) -> "NDArray[Any]":
    import numpy

    array = numpy.empty(len(texts), dtype=object)  # numpy.array(list) would cut trailing zero bytes
    array[:] = texts
    return array.reshape(tuple(shape))
