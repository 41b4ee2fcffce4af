"""Any table, CSV or Parquet, with a mapping file that describes its columns."""

import csv
import math
import os
from array import array
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field, ValidationError, model_validator

from benchhouse.documents.foreign_file import ForeignFile, Importer
from benchhouse.documents.problems import ProblemsError
from benchhouse.documents.validation_errors import from_pydantic
from benchhouse.documents.yaml_reader import load_yaml
from benchhouse.schema.experiment import Metric
from benchhouse.schema.imported import OWN, Imported, ImportedCase, Setting
from benchhouse.schema.model import Model, empty_list
from benchhouse.schema.names import Name

_BLOCK_BYTES = 8 << 20
_MOST_ROWS_A_BYTE = 20  # of a Parquet file: more is a decompression bomb
_FREE_ROWS = 1 << 20
_BATCH_ROWS = 1 << 13
_MOST_UNPACKED = 200  # bytes of a column for each of the Parquet file
_FREE_BYTES = 16 << 20
_LONGEST_TEXT = 1 << 12
_MOST_CASES = 50_000
_MOST_DIGITS = 15  # that a float can hold


class NumberColumn(Model):
    """A column of numbers in the table."""

    column: str = Field(description="Its heading.")
    unit: str = Field(description="Unit of the values, after `scale`.")
    direction: Literal["higher", "lower"] | None = Field(None, description="Which way is better.")
    role: Literal["throughput", "latency", "error_rate"] | None = Field(None, description="Its place in metrics.json.")
    scale: float = Field(1.0, gt=0, description="What a value is multiplied by: 1000 makes seconds ms.")
    means: str = Field("", description="How it is measured, in words.")


class Mapped(Model):
    """The mapping file: the tool, the columns with metrics, and the columns that distinguish cases."""

    tool: Name = Field(description="What wrote the table; metrics are called NAME@TOOL.")
    version: str | None = Field(None, description="Its version.")
    measured_at: str | None = Field(None, description="When it was measured.")
    target: str = Field("table", description="What was measured, where no column says so.")
    target_column: str = Field("", description="Column that names what was measured.")
    settings: list[str] = Field(default_factory=empty_list, description="Columns that tell cases apart.")
    metrics: dict[str, NumberColumn] = Field(description="Metrics by name; each row is a sample.")

    @model_validator(mode="after")
    def _names_fit(self) -> "Mapped":
        if not self.metrics:
            raise ValueError("metrics: give at least one")
        for name in self.metrics:
            Metric(name=f"{name}{OWN}{self.tool}")
        return self


def claims(head: bytes, name: str) -> bool:
    return False  # any tool writes tables; requires --as table --mapping FILE


def read(file: ForeignFile) -> Imported:
    assert file.mapping is not None
    document = load_yaml(file.mapping)
    try:
        mapped = Mapped.model_validate(document.data)
    except ValidationError as error:
        raise ProblemsError(from_pydantic(error, document, Mapped)) from error
    cases: dict[str, ImportedCase] = {}
    values: dict[str, dict[str, array[float]]] = {}
    empty: dict[str, dict[str, int]] = {}
    for rows in _tables(file, mapped):
        columns = {name: rows.column(name).to_pylist() for name in rows.column_names}
        for at in range(rows.num_rows):
            settings: dict[str, Setting] = {name: _setting(columns[name][at]) for name in mapped.settings}
            target = str(columns[mapped.target_column][at]) if mapped.target_column else mapped.target
            key = repr((target, settings))
            if key not in cases:
                if len(cases) == _MOST_CASES:
                    names = ", ".join(mapped.settings) or mapped.target_column
                    file.problem(f"more than {_MOST_CASES:,} cases: does one of {names} differ in every row?")
                cases[key] = ImportedCase({"name": target}, settings)
                values[key] = {name: array("d") for name in mapped.metrics}
                empty[key] = dict.fromkeys(mapped.metrics, 0)
            for name, column in mapped.metrics.items():
                value = columns[column.column][at]
                if value is None:
                    empty[key][name] += 1
                    continue
                if not math.isfinite(value):
                    file.problem(f"{column.column}: not a finite number: {value}")
                values[key][name].append(value * column.scale)
    for key, case in cases.items():
        for name, column in mapped.metrics.items():
            metric = Metric(
                name=f"{name}{OWN}{mapped.tool}", unit=column.unit, direction=column.direction, role=column.role,
                formula=column.means or f"the column {column.column} of the table",
            )  # fmt: skip
            case.add(metric, values[key][name])
            if values[key][name] and empty[key][name]:
                case.missing[f"{metric.name} of some rows"] = "their cells are empty"
        if some := {name: count for name, count in empty[key].items() if count}:
            case.facts["empty_cells"] = some
    return Imported(mapped.tool, mapped.version, list(cases.values()), mapped.measured_at)


def _tables(file: ForeignFile, mapped: Mapped) -> Any:
    """Yield blocks of rows with the mapped columns."""
    import pyarrow as pa

    numbers = [column.column for column in mapped.metrics.values()]
    texts = [*mapped.settings, *([mapped.target_column] if mapped.target_column else [])]
    try:
        with file.open() as stream:
            is_parquet = stream.read(4) == b"PAR1"
            stream.seek(0)
            if is_parquet:
                yield from _parquet(stream, numbers, texts)
            else:
                _require_whole(file, [*numbers, *texts])
                yield from _csv(stream, dict.fromkeys([*numbers, *texts]), numbers)
    except (pa.ArrowException, OSError) as error:
        file.problem(f"no table with the columns of {file.mapping}: {str(error)[:300]}")


def _require_whole(file: ForeignFile, wanted: list[str]) -> None:
    with file.open() as stream:
        last = stream.readline(_BLOCK_BYTES)
        headings = next(csv.reader([last.decode("utf-8", "replace")]), [])
        while block := stream.read(_BLOCK_BYTES):
            last = block
    if doubled := [name for name in wanted if headings.count(name) > 1]:
        file.problem(f"two columns have the heading {doubled[0][:60]!r}", 1)
    if last[-1:] not in (b"\n", b"\r"):
        file.problem("the last line has no end: it looks cut off; if it is whole, end it with a line break")


def _csv(stream: Any, wanted: Mapping[str, None], numbers: list[str]) -> Any:
    import pyarrow as pa
    from pyarrow import csv as arrow_csv

    kinds = dict.fromkeys(wanted, pa.string()) | dict.fromkeys(numbers, pa.float64())
    convert = arrow_csv.ConvertOptions(column_types=kinds, include_columns=list(wanted), null_values=[""])
    yield from arrow_csv.open_csv(stream, arrow_csv.ReadOptions(block_size=_BLOCK_BYTES), convert_options=convert)


def _parquet(stream: Any, numbers: list[str], texts: list[str]) -> Any:
    import pyarrow as pa
    from pyarrow import parquet

    wanted = list(dict.fromkeys([*numbers, *texts]))
    opened = parquet.ParquetFile(stream, read_dictionary=texts)  # repeated text is stored once
    _refuse_bomb(opened.metadata, wanted, stream.seek(0, os.SEEK_END))
    for batch in opened.iter_batches(_BATCH_ROWS, columns=wanted):
        missing = [name for name in wanted if name not in batch.schema.names]
        if missing:
            raise pa.ArrowKeyError(f"no column {missing[0]}")
        rows = pa.Table.from_batches([batch])
        for name in texts:
            _refuse_long(rows.column(name), name)
        for name in numbers:
            at = rows.schema.get_field_index(name)
            rows = rows.set_column(at, name, rows.column(name).cast(pa.float64()))
        yield rows


def _refuse_bomb(about: Any, wanted: list[str], size: int) -> None:
    """Raise ArrowInvalid if, by its metadata, the file unpacks to too many rows or bytes."""
    import pyarrow as pa

    if about.num_rows > _FREE_ROWS + _MOST_ROWS_A_BYTE * size:
        raise pa.ArrowInvalid(f"{about.num_rows} rows in so small a file: not a table of samples")
    groups = [about.row_group(at) for at in range(about.num_row_groups)]
    parts = [group.column(at) for group in groups for at in range(group.num_columns)]
    unpacked = sum(part.total_uncompressed_size for part in parts if part.path_in_schema in wanted)
    if unpacked > _FREE_BYTES + _MOST_UNPACKED * size:
        raise pa.ArrowInvalid(f"unpacks to {unpacked:,} bytes, too many for so small a file: not a table of samples")


def _refuse_long(column: Any, name: str) -> None:
    import pyarrow as pa
    from pyarrow import compute

    for chunk in column.chunks if pa.types.is_dictionary(column.type) else ():
        if (compute.max(compute.binary_length(chunk.dictionary)).as_py() or 0) > _LONGEST_TEXT:
            raise pa.ArrowInvalid(f"{name}: a text of more than {_LONGEST_TEXT} bytes tells no cases apart")


def _setting(value: Any) -> Setting:
    """Return a setting that is equal only for cells that are equal in the table."""
    if isinstance(value, str):
        return _number_or_text(value)
    if isinstance(value, float):
        return str(value) if not math.isfinite(value) else int(value) if value.is_integer() else value
    return value if value is None or isinstance(value, int | bool) else str(value)


def _number_or_text(text: str) -> int | float | str:
    """Return a number only if the text is its canonical form: `007`, `7.0` and the version `1.10` stay text."""
    if len(text) <= _MOST_DIGITS:
        for kind in (int, float):
            try:
                number = kind(text)
            except ValueError:
                continue
            if str(number) == text and math.isfinite(number) and (kind is int or number != int(number)):
                return number
    return text


TABLE = Importer("any table (CSV or Parquet), with --mapping FILE", claims, read, with_mapping=True)
