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
    rows = _read(path, (array,) if array else _VECTORS, only=not array)
    if rows is None:
        raise BenchError(f"{path} has {_names(path)}", f"name the vectors: data: {{array: ...}}; not {array!r}")
    return _checked(rows, path)


def queries(path: Path) -> "NDArray[float32] | None":
    """What a file of vectors itself has as queries."""
    rows = _read(path, _QUERIES)
    return None if rows is None else _checked(rows, path)


def neighbours(path: Path, *, own: bool) -> "NDArray[int64] | None":
    """Ids of the nearest from a file of them, or what a file of vectors itself (`own`) has of them, if any."""
    ids = _read(path, _TRUTH, only=not own)
    if ids is None and not own:
        raise BenchError(f"{path} has {_names(path)}; expected one of {', '.join(_TRUTH)}")
    if ids is not None and (ids.ndim != 2 or ids.dtype.kind not in "iu"):
        raise BenchError(f"{path}: neighbours are rows of whole numbers; found {ids.dtype}, shape {ids.shape}")
    return None if ids is None else ids.astype("int64")


def _checked(rows: Any, path: Path) -> "NDArray[float32]":
    import numpy

    if rows.ndim != 2:
        raise BenchError(f"{path}: vectors are rows and columns; found an array of shape {rows.shape}")
    if not rows.size:
        raise BenchError(f"{path} is empty: its array has shape {rows.shape}")
    if rows.dtype.kind not in "fiu":
        raise BenchError(f"{path}: vectors of type {rows.dtype} can't be used", "store them as float32")
    with numpy.errstate(over="ignore"):
        vectors: NDArray[float32] = numpy.require(rows, numpy.float32, "C")
    step = max(1, _LOOK // vectors.shape[1])
    for start in range(0, len(vectors), step):
        bad = ~numpy.isfinite(vectors[start : start + step]).all(axis=1)
        if bad.any():
            number = start + int(bad.argmax())
            raise BenchError(f"{path}: row {number} has a value that is NaN, infinite or too large for float32")
    return vectors


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
    import pyarrow.compute
    import pyarrow.parquet

    lists = [field.name for field in pyarrow.parquet.read_schema(path) if "list<" in str(field.type)]
    name = _choose(lists, names, only)
    if name is None:
        return None
    column = pyarrow.parquet.read_table(path, columns=[name]).column(0).combine_chunks()
    if column.null_count:
        raise BenchError(f"{path}: {column.null_count} rows of column {name} are empty")
    lengths = pyarrow.compute.list_value_length(column).unique().to_pylist() or [0]
    if len(lengths) > 1:
        raise BenchError(f"{path}: the rows of column {name} are not all of one length")
    return column.flatten().to_numpy(zero_copy_only=False).reshape(len(column), lengths[0])


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
