"""Data of every kind and format, and what is said of those that are not as they should be."""

import numpy
import pyarrow
import pyarrow.parquet
import pytest
from pydantic import ValidationError

from benchhouse.experiments.vector.data import Synthetic, VectorFile
from benchhouse.experiments.vector.truth import nearest
from benchhouse.experiments.vector.workload import VectorWorkload
from benchhouse.schema.errors import BenchError


def made(count=50, dimensions=6, seed=0):
    return numpy.random.default_rng(seed).standard_normal((count, dimensions)).astype(numpy.float32)


def as_vecs(rows):
    """The format of TexMex, written by hand."""
    return b"".join(numpy.int32(len(row)).tobytes() + row.tobytes() for row in rows)


def write(path, rows, **more):
    """One file of any format; `more` are further arrays by name."""
    if path.suffix == ".npy":
        numpy.save(path, rows)
    elif path.suffix == ".npz":
        numpy.savez(path, vectors=rows, **more)
    elif path.suffix == ".parquet":
        pyarrow.parquet.write_table(pyarrow.table({"id": range(len(rows)), "embedding": rows.tolist()}), path)
    elif path.suffix == ".hdf5":
        h5py = pytest.importorskip("h5py")
        with h5py.File(path, "w") as file:
            for name, values in {"train": rows, **more}.items():
                file[name] = values
    else:
        path.write_bytes(as_vecs(rows))
    return path


def load(path, vectors=None, most=10_000, **fields):
    return VectorFile(path=str(path), **fields).load(vectors, most, None)


@pytest.mark.parametrize("ending", ["npy", "npz", "parquet", "hdf5", "fvecs"])
def test_a_file_gives_its_vectors_and_holds_queries_out(ending, tmp_path):
    rows = made()
    data = load(write(tmp_path / f"rows.{ending}", rows))
    assert numpy.allclose(data.vectors, rows[:45]) and numpy.allclose(data.queries, rows[45:])
    assert data.vectors.dtype == numpy.float32 and data.vectors.flags.c_contiguous
    assert data.truth is None


def test_bytes_are_taken_as_numbers(tmp_path):
    rows = numpy.random.default_rng(0).integers(0, 256, (30, 8)).astype(numpy.uint8)
    data = load(write(tmp_path / "rows.bvecs", rows), vectors=20, most=4)
    assert (data.vectors == rows[:20]).all() and (data.queries == rows[-4:]).all()


@pytest.mark.parametrize("ending", ["npz", "hdf5"])
def test_queries_and_neighbours_of_the_file_are_used(ending, tmp_path):
    rows, queries = made(), made(7, seed=1)
    neighbors = nearest(rows, queries, 10, "l2")
    data = load(write(tmp_path / f"rows.{ending}", rows, test=queries, neighbors=neighbors.astype(numpy.int32)))
    assert (data.queries == queries).all() and (data.truth == neighbors).all()
    part = load(tmp_path / f"rows.{ending}", vectors=30, most=5)
    assert part.truth is None, "they are of all vectors, not of the first thirty"
    assert len(part.vectors) == 30 and len(part.queries) == 5


def test_queries_and_neighbours_may_lie_in_other_files(tmp_path):
    rows, queries = made(), made(7, seed=1)
    truth = nearest(rows, queries, 10, "l2").astype(numpy.int32)
    files = {"queries": tmp_path / "q.fvecs", "truth": tmp_path / "t.ivecs"}
    write(files["queries"], queries)
    files["truth"].write_bytes(as_vecs(truth))
    fields = {name: str(path) for name, path in files.items()}
    data = load(write(tmp_path / "rows.npy", rows), **fields)
    assert len(data.vectors) == 50 and (data.queries == queries).all() and (data.truth == truth).all()


def test_a_mapped_file_is_not_read_into_memory(tmp_path):
    assert isinstance(load(write(tmp_path / "rows.npy", made())).vectors.base, numpy.memmap)


@pytest.mark.parametrize("ending", ["npy", "npz", "parquet", "hdf5", "fvecs"])
def test_what_is_no_number_is_refused_with_its_row(ending, tmp_path):
    rows = made()
    rows[37, 2] = numpy.nan
    with pytest.raises(BenchError, match="row 37 has a value that is NaN"):
        load(write(tmp_path / f"rows.{ending}", rows))


def test_impossible_vectors_are_refused(tmp_path):
    for rows, words in [
        (numpy.zeros((0, 4), dtype=numpy.float32), "empty"),
        (numpy.zeros((4, 0), dtype=numpy.float32), "empty"),
        (numpy.zeros(8, dtype=numpy.float32), "rows and columns"),
        (numpy.zeros((8, 2), dtype=numpy.complex64), "complex64"),
        (numpy.full((8, 2), "x"), "<U1"),
        (numpy.full((8, 2), 1e300), "too large for float32"),
    ]:
        with pytest.raises(BenchError, match=words):
            load(write(tmp_path / "rows.npy", rows))


def test_pickled_objects_are_not_loaded(tmp_path):
    numpy.save(tmp_path / "rows.npy", numpy.array([{}, []], dtype=object), allow_pickle=True)
    with pytest.raises(BenchError, match="can't be read"):
        load(tmp_path / "rows.npy")


@pytest.mark.parametrize("ending", ["npy", "npz", "parquet", "hdf5", "fvecs"])
@pytest.mark.parametrize("content", [b"", b"\x03\0\0\0 this is not what its name says"])
def test_files_without_or_with_broken_content_are_refused(ending, content, tmp_path):
    path = tmp_path / f"rows.{ending}"
    path.write_bytes(content)
    with pytest.raises(BenchError, match=str(path)):
        load(path)


def test_rows_of_different_lengths_are_refused(tmp_path):
    path = tmp_path / "rows.parquet"
    pyarrow.parquet.write_table(pyarrow.table({"v": [[1.0, 2.0], [1.0], [1.0, 2.0, 3.0]]}), path)
    with pytest.raises(BenchError, match="not all of one length"):
        load(path)
    uneven = as_vecs(made(2, 4)) + as_vecs(made(1, 3)) + as_vecs(made(1, 4))[:4]
    (tmp_path / "rows.fvecs").write_bytes(uneven)
    with pytest.raises(BenchError, match=r"multiple of a row|not all of length"):
        load(tmp_path / "rows.fvecs")


def test_several_arrays_without_a_known_name_must_be_chosen(tmp_path):
    numpy.savez(tmp_path / "rows.npz", one=made(), two=made(seed=1))
    with pytest.raises(BenchError, match="one, two"):
        load(tmp_path / "rows.npz")
    assert (load(tmp_path / "rows.npz", array="two").vectors == made(seed=1)[:45]).all()


def test_dimensions_of_queries_must_be_those_of_the_vectors(tmp_path):
    write(tmp_path / "q.npy", made(3, 5))
    with pytest.raises(BenchError, match="5 dimensions and the vectors 6"):
        load(write(tmp_path / "rows.npy", made()), queries=str(tmp_path / "q.npy"))


def test_more_vectors_than_there_are_is_refused(tmp_path):
    path = write(tmp_path / "rows.npy", made())
    with pytest.raises(BenchError, match="has 49 vectors and the workload asks for 50"):
        load(path, vectors=50)


def test_another_file_than_the_one_named_is_refused(tmp_path):
    with pytest.raises(BenchError, match="has sha256"):
        load(write(tmp_path / "rows.npy", made()), sha256="0" * 64)


def test_files_are_checked_before_anything_runs():
    for fields, words in [
        ({"path": "/nowhere/rows.npy"}, "there is no file"),
        ({"path": "/etc/hostname"}, "does not tell a format"),
    ]:
        with pytest.raises(ValidationError, match=words):
            VectorFile(**fields)


def test_the_digest_tells_data_apart(tmp_path):
    first, same, other = (
        load(write(tmp_path / f"{name}.npy", made(seed=seed))) for name, seed in [("a", 0), ("b", 0), ("c", 1)]
    )
    assert first.digest == same.digest != other.digest
    assert load(tmp_path / "a.npy", vectors=20).digest != first.digest
    assert Synthetic().load(100, 5, None).digest != Synthetic(seed=1).load(100, 5, None).digest


def test_synthetic_data_is_a_function_of_its_seed():
    one, same, other = (Synthetic(dimensions=16, seed=seed).load(2000, 50, None).vectors for seed in (0, 0, 1))
    assert (one == same).all() and not (one == other).all()
    assert one.dtype == numpy.float32 and one.shape == (2000, 16)


def test_a_kind_may_be_one_word_and_synthetic_needs_none():
    assert VectorWorkload(data="synthetic").data == Synthetic()
    assert VectorWorkload(data={"dimensions": 32}).data == Synthetic(dimensions=32)
    with pytest.raises(ValidationError, match="snythetic"):
        VectorWorkload(data="snythetic")


def test_a_mapping_that_speaks_of_a_file_is_one(tmp_path):
    write(tmp_path / "mine.npy", made())
    assert isinstance(VectorWorkload(data={"path": str(tmp_path / "mine.npy")}).data, VectorFile)
    with pytest.raises(ValidationError, match=r"data\.file\.path\n  Field required"):
        VectorWorkload(data={"file": str(tmp_path / "mine.npy")})
