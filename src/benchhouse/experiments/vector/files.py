"""Vectors, queries, and neighbors from files, and the checks of their content."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
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
_UNNAMED = ""  # name of the only array in formats without names
_TEXMEX = {".fvecs": "<f4", ".bvecs": "u1", ".ivecs": "<i4"}
_FORMATS = (".npy", ".npz", ".parquet", ".hdf5", ".h5", *_TEXMEX)


def check_name(path: Path) -> None:
    if path.suffix.lower() not in _FORMATS:
        raise ValueError(f"{path.name}: the ending does not tell a format; known are {', '.join(_FORMATS)}")


def vectors(path: Path, array: str = "") -> "NDArray[float32]":
    """Return the checked vectors of a file; .npy of float32 stays on disk and is mapped."""
    rows = _read(path, (array,) if array else _VECTORS, only=not array)
    if rows is None:
        raise BenchError(f"{path} has {_names(path)}", f"name the vectors: data: {{array: ...}}; not {array!r}")
    return _checked(rows, path)


def queries(path: Path) -> "NDArray[float32] | None":
    """Return the queries in a file of vectors; None if it has none."""
    rows = _read(path, _QUERIES)
    return None if rows is None else _checked(rows, path)


def neighbours(path: Path, *, own: bool) -> "NDArray[int64] | None":
    """Return the ids of the nearest from their own file, or from that of the vectors (`own`); None if it has none."""
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
    """Return the array with one of these names, or the only array if `only` is set; otherwise None."""
    if not path.stat().st_size:
        raise BenchError(f"{path} is empty")
    try:
        with _arrays(path) as (there, load):
            chosen = [name for name in names if name in there] or (there if only and len(there) == 1 else [])
            return load(chosen[0]) if chosen else None
    except (OSError, ValueError, EOFError, KeyError) as error:
        raise BenchError(f"{path} can't be read: {type(error).__name__}: {error}") from error


def _names(path: Path) -> str:
    """Describe the arrays of a file, for a message."""
    with _arrays(path) as (there, _):
        if there == [_UNNAMED]:
            return "one array without a name"
        return f"the arrays {', '.join(there)}" if there else "no array"


@contextmanager
def _arrays(path: Path) -> Iterator[tuple[list[str], Callable[[str], Any]]]:
    """Yield the names of a file's arrays, and a function that reads one of them."""
    kind = path.suffix.lower()
    if kind == ".npz":
        import numpy

        with numpy.load(path, allow_pickle=False) as archive:
            yield list(archive.files), archive.__getitem__
    elif kind in (".hdf5", ".h5"):
        try:
            import h5py
        except ImportError as error:
            raise BenchError(f"{path} needs the library h5py", hint="pip install 'benchhouse[hdf5]'") from error
        with h5py.File(path, "r") as file:
            yield list(file), lambda name: file[name][()]
    elif kind == ".parquet":
        import pyarrow.parquet

        columns = pyarrow.parquet.read_schema(path)
        yield [column.name for column in columns if "list<" in str(column.type)], lambda name: _column(path, name)
    else:
        yield [_UNNAMED], lambda _: _unnamed(path)


def _column(path: Path, name: str) -> Any:
    import pyarrow.compute
    import pyarrow.parquet

    column = pyarrow.parquet.read_table(path, columns=[name]).column(0).combine_chunks()
    if column.null_count:
        raise BenchError(f"{path}: {column.null_count} rows of column {name} are empty")
    lengths = pyarrow.compute.list_value_length(column).unique().to_pylist() or [0]
    if len(lengths) > 1:
        raise BenchError(f"{path}: the rows of column {name} are not all of one length")
    return column.flatten().to_numpy(zero_copy_only=False).reshape(len(column), lengths[0])


def _unnamed(path: Path) -> Any:
    """Read .npy, mapped, or the TexMex format: each row is its length as int32, then that number of values."""
    import numpy

    if path.suffix.lower() == ".npy":
        return numpy.load(path, mmap_mode="r", allow_pickle=False)
    kind = numpy.dtype(_TEXMEX[path.suffix.lower()])
    width = int(numpy.fromfile(path, dtype="<i4", count=1)[0])
    row = 4 + width * kind.itemsize
    if width < 1 or path.stat().st_size % row:
        raise BenchError(f"{path}: its size is no multiple of a row of {width} values, the length of the first one")
    raw = numpy.memmap(path, dtype=numpy.uint8, mode="r").reshape(-1, row)
    if (numpy.ascontiguousarray(raw[:, :4]).view("<i4") != width).any():
        raise BenchError(f"{path}: its rows are not all of length {width}")
    return numpy.ascontiguousarray(raw[:, 4:]).view(kind)
