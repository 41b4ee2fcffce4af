"""Vectors, queries and neighbours from files, and what is wrong with them."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchhouse.schema.errors import BenchError

if TYPE_CHECKING:
    from numpy import float32, int64
    from numpy.typing import NDArray

_VECTORS = ("vectors", "train", "base", "vector", "embedding", "embeddings")
_QUERIES = ("queries", "test", "query")
_TRUTH = ("neighbors", "neighbours", "truth")
_LOOK = 2**24  # values at a time


def check_name(path: Path) -> None:
    if path.suffix.lower() not in _READERS:
        raise ValueError(f"{path.name}: the ending does not tell a format; known are {', '.join(_READERS)}")


def vectors(path: Path, array: str = "") -> "NDArray[float32]":
    """The vectors of a file, checked; .npy of float32 stays on disk and is mapped."""
    found = _read(path, (array,) if array else _VECTORS, only=not array)
    if found is None:
        raise BenchError(f"{path} has {_names(path)}", f"name the vectors: data: {{array: ...}}; not {array!r}")
    return _checked(found, path)


def queries(path: Path) -> "NDArray[float32] | None":
    """What a file of vectors itself has as queries."""
    found = _read(path, _QUERIES)
    return None if found is None else _checked(found, path)


def own_truth(path: Path) -> "NDArray[int64] | None":
    found = _read(path, _TRUTH)
    return None if found is None else _whole_numbers(found, path)


def neighbours(path: Path) -> "NDArray[int64]":
    found = _read(path, _TRUTH, only=True)
    if found is None:
        raise BenchError(f"{path} has {_names(path)}; expected one of {', '.join(_TRUTH)}")
    return _whole_numbers(found, path)


def _whole_numbers(found: Any, path: Path) -> "NDArray[int64]":
    import numpy

    if found.ndim != 2 or found.dtype.kind not in "iu":
        raise BenchError(f"{path}: neighbours are rows of whole numbers; found {found.dtype}, shape {found.shape}")
    ids: NDArray[int64] = found.astype(numpy.int64)
    return ids


def _checked(found: Any, path: Path) -> "NDArray[float32]":
    import numpy

    if found.ndim != 2:
        raise BenchError(f"{path}: vectors are rows and columns; found an array of shape {found.shape}")
    if not found.shape[0] or not found.shape[1]:
        raise BenchError(f"{path} is empty: its array has shape {found.shape}")
    if found.dtype.kind not in "fiu":
        raise BenchError(f"{path}: vectors of type {found.dtype} can't be used", "store them as float32")
    with numpy.errstate(over="ignore"):
        whole = found if found.dtype == numpy.float32 else found.astype(numpy.float32)
    rows = max(1, _LOOK // whole.shape[1])
    for start in range(0, len(whole), rows):
        bad = ~numpy.isfinite(whole[start : start + rows]).all(axis=1)
        if bad.any():
            number = start + int(bad.argmax())
            raise BenchError(f"{path}: row {number} has a value that is NaN, infinite or too large for float32")
    return numpy.ascontiguousarray(whole) if not whole.flags.c_contiguous else whole


def _read(path: Path, names: Sequence[str], *, only: bool = False) -> Any:
    """The array of one of these names; the only array there is, where `only` allows; else None."""
    if not path.stat().st_size:
        raise BenchError(f"{path} is empty")
    try:
        return _READERS[path.suffix.lower()](path, names, only)
    except (OSError, ValueError, EOFError, KeyError) as error:
        raise BenchError(f"{path} can't be read: {type(error).__name__}: {error}") from error


def _choose(there: Sequence[str], names: Sequence[str], only: bool) -> str | None:
    chosen = next((name for name in names if name in there), None)
    return chosen or (there[0] if only and len(there) == 1 else None)


def _npy(path: Path, names: Sequence[str], only: bool) -> Any:
    import numpy

    return numpy.load(path, mmap_mode="r", allow_pickle=False) if only else None


def _npz(path: Path, names: Sequence[str], only: bool) -> Any:
    import numpy

    with numpy.load(path, allow_pickle=False) as archive:
        name = _choose(archive.files, names, only)
        return archive[name] if name else None


def _hdf5(path: Path, names: Sequence[str], only: bool) -> Any:
    try:
        import h5py
    except ImportError as error:
        raise BenchError(f"{path} needs the library h5py", hint="pip install 'benchhouse[hdf5]'") from error
    with h5py.File(path, "r") as file:
        name = _choose(list(file), names, only)
        return file[name][()] if name else None


def _parquet(path: Path, names: Sequence[str], only: bool) -> Any:
    import pyarrow
    import pyarrow.parquet

    lists = [field.name for field in pyarrow.parquet.read_schema(path) if _is_list(field.type)]
    name = _choose(lists, names, only)
    if name is None:
        return None
    column = pyarrow.parquet.read_table(path, columns=[name]).column(0).combine_chunks()
    if column.null_count:
        raise BenchError(f"{path}: {column.null_count} rows of column {name} are empty")
    values = column.flatten().to_numpy(zero_copy_only=False)
    rows = len(column)
    lengths = {len(column[number]) for number in (0, rows - 1)} if rows else {0}
    if rows and (len(lengths) > 1 or len(values) != rows * min(lengths) or _uneven(column)):
        raise BenchError(f"{path}: the rows of column {name} are not all of one length")
    return values.reshape(rows, -1) if rows else values.reshape(0, 0)


def _is_list(kind: Any) -> bool:
    import pyarrow

    return bool(
        pyarrow.types.is_list(kind) or pyarrow.types.is_large_list(kind) or pyarrow.types.is_fixed_size_list(kind)
    )


def _uneven(column: Any) -> bool:
    import pyarrow.compute

    ends = pyarrow.compute.min_max(pyarrow.compute.list_value_length(column)).as_py()
    return bool(ends["min"] != ends["max"])


def _vecs(value: str) -> Callable[[Path, Sequence[str], bool], Any]:
    """The format of TexMex: each row is its length as int32, then so many values."""

    def read(path: Path, names: Sequence[str], only: bool) -> Any:
        import numpy

        if not only:
            return None
        kind = numpy.dtype(value)
        width = int(numpy.fromfile(path, dtype="<i4", count=1)[0])
        row = 4 + width * kind.itemsize
        if width < 1 or path.stat().st_size % row:
            raise BenchError(f"{path}: its size is no multiple of a row of {width} values, the length of the first one")
        raw = numpy.memmap(path, dtype=numpy.uint8, mode="r").reshape(-1, row)
        if (numpy.ascontiguousarray(raw[:, :4]).view("<i4") != width).any():
            raise BenchError(f"{path}: its rows are not all of length {width}")
        return numpy.ascontiguousarray(raw[:, 4:]).view(kind)

    return read


def _names(path: Path) -> str:
    """What there is in a file, for a message."""
    if path.suffix.lower() == ".npz":
        import numpy

        with numpy.load(path, allow_pickle=False) as archive:
            there = list(archive.files)
    elif path.suffix.lower() in (".hdf5", ".h5"):
        import h5py

        with h5py.File(path, "r") as file:
            there = list(file)
    elif path.suffix.lower() == ".parquet":
        import pyarrow.parquet

        there = pyarrow.parquet.read_schema(path).names
    else:
        return "one array without a name"
    return f"the arrays {', '.join(there)}" if there else "no array"


_READERS: dict[str, Callable[[Path, Sequence[str], bool], Any]] = {
    ".npy": _npy,
    ".npz": _npz,
    ".parquet": _parquet,
    ".hdf5": _hdf5,
    ".h5": _hdf5,
    ".fvecs": _vecs("<f4"),
    ".bvecs": _vecs("u1"),
    ".ivecs": _vecs("<i4"),
}
