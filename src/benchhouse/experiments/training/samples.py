"""Samples of a known size for `training.dataloader`: incompressible, and the same bytes for the same seed."""

import random
from pathlib import Path

IN_FOLDER = 1000
"""Files per folder."""
GROUPS_IN_FILE = 64
"""Row groups per Parquet file."""
_BLOCK = 1 << 20


def make_files(folder: Path, samples: int, size: int, seed: int) -> None:
    """Write one file per sample, a thousand per folder."""
    noise = _noise(size, seed)
    for number in range(samples):
        if number % IN_FOLDER == 0:
            (folder / f"{number // IN_FOLDER:06d}").mkdir(parents=True)
        (folder / f"{number // IN_FOLDER:06d}" / f"{number:08d}.bin").write_bytes(_content(number, size, noise))


def make_parquet(folder: Path, samples: int, size: int, seed: int, row_group: int) -> None:
    """Write one column `content`, uncompressed, in files of several row groups."""
    import pyarrow as pa
    from pyarrow.parquet import ParquetWriter

    folder.mkdir(parents=True)
    noise, schema = _noise(size, seed), pa.schema([("content", pa.binary())])
    for file, begin in enumerate(range(0, samples, row_group * GROUPS_IN_FILE)):
        end = min(begin + row_group * GROUPS_IN_FILE, samples)
        path = folder / f"{file:06d}.parquet"
        with ParquetWriter(path, schema, compression="none", use_dictionary=False, write_statistics=False) as writer:
            for first in range(begin, end, row_group):
                rows = [_content(number, size, noise) for number in range(first, min(first + row_group, end))]
                writer.write_table(pa.table([rows], schema=schema), row_group_size=row_group)


def _noise(size: int, seed: int) -> bytes:
    return random.Random(seed).randbytes(size + _BLOCK)


def _content(number: int, size: int, noise: bytes) -> bytes:
    """Return the sample's number and a part of the noise that begins at another place for each number."""
    begin = number * 4099 % _BLOCK
    return number.to_bytes(8, "little") + noise[begin : begin + size - 8]
