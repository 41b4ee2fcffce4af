"""Any table, CSV or Parquet, with a mapping file that says what its columns are."""

import csv
import math
import os
from array import array
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field, ValidationError, model_validator

from benchhouse.documents.foreign_file import ForeignFile
from benchhouse.documents.misfits import from_pydantic
from benchhouse.documents.problems import ProblemsError
from benchhouse.documents.yaml_reader import load_yaml
from benchhouse.schema.experiment import Metric
from benchhouse.schema.imported import OWN, Case, Imported, Importer, Setting
from benchhouse.schema.model import Model, empty_list
from benchhouse.schema.names import Name

_BLOCK_BYTES = 8 << 20
_MOST_ROWS_A_BYTE = 20  # of a Parquet file: more of them is no table of samples, but a bomb
_FREE_ROWS = 1 << 20
_MOST_DIGITS = 15  # that a float keeps


class Column(Model):
    """A column of numbers."""

    column: str = Field(description="Its heading.")
    unit: str = Field(description="Unit of the values, after `scale`.")
    direction: Literal["higher", "lower"] | None = Field(None, description="Which way is better.")
    role: Literal["throughput", "latency", "error_rate"] | None = Field(None, description="Its place in metrics.json.")
    scale: float = Field(1.0, gt=0, description="What a value is multiplied by: 1000 makes seconds ms.")
    means: str = Field("", description="How it is measured, in words.")


class Mapped(Model):
    """The mapping file: whose table it is, which columns are metrics, and which tell cases apart."""

    tool: Name = Field(description="What wrote the table; metrics are called NAME@TOOL.")
    version: str | None = Field(None, description="Its version.")
    measured_at: str | None = Field(None, description="When it was measured.")
    target: str = Field("table", description="What was measured, where no column says so.")
    target_column: str = Field("", description="Column that names what was measured.")
    settings: list[str] = Field(default_factory=empty_list, description="Columns that tell cases apart.")
    metrics: dict[str, Column] = Field(description="Metrics by name; each row is a sample.")

    @model_validator(mode="after")
    def _names_fit(self) -> "Mapped":
        if not self.metrics:
            raise ValueError("metrics: give at least one")
        for name in self.metrics:
            Metric(name=f"{name}{OWN}{self.tool}")
        return self


def claims(head: bytes, name: str) -> bool:
    return False  # any tool writes tables: it is asked for with --as table --mapping FILE


def read(file: ForeignFile) -> Imported:
    assert file.mapping is not None
    document = load_yaml(file.mapping)
    try:
        mapped = Mapped.model_validate(document.data)
    except ValidationError as error:
        raise ProblemsError(from_pydantic(error, document, Mapped)) from error
    cases: dict[str, Case] = {}
    values: dict[str, dict[str, array[float]]] = {}
    for rows in _tables(file, mapped):
        columns = {name: rows.column(name).to_pylist() for name in rows.column_names}
        for at in range(rows.num_rows):
            settings: dict[str, Setting] = {name: _setting(columns[name][at]) for name in mapped.settings}
            target = str(columns[mapped.target_column][at]) if mapped.target_column else mapped.target
            key = repr((target, settings))
            if key not in cases:
                cases[key] = Case({"name": target}, settings)
                values[key] = {name: array("d") for name in mapped.metrics}
            for name, column in mapped.metrics.items():
                value = columns[column.column][at]
                if value is None:  # an empty cell: no sample
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
    return Imported(mapped.tool, mapped.version, list(cases.values()), mapped.measured_at)


def _tables(file: ForeignFile, mapped: Mapped) -> Any:
    """Blocks of rows, with the columns that are asked for."""
    import pyarrow as pa

    numbers = [column.column for column in mapped.metrics.values()]
    texts = [*mapped.settings, *([mapped.target_column] if mapped.target_column else [])]
    try:
        with file.open() as stream:
            opened = _parquet if stream.read(4) == b"PAR1" else _csv
            stream.seek(0)
            if opened is _csv:
                _require_whole(file, [*numbers, *texts])
            yield from opened(stream, dict.fromkeys([*numbers, *texts]), numbers)
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


def _parquet(stream: Any, wanted: Mapping[str, None], numbers: list[str]) -> Any:
    import pyarrow as pa
    from pyarrow import parquet

    opened = parquet.ParquetFile(stream)
    most_rows = _FREE_ROWS + _MOST_ROWS_A_BYTE * stream.seek(0, os.SEEK_END)
    if opened.metadata.num_rows > most_rows:
        raise pa.ArrowInvalid(f"{opened.metadata.num_rows} rows in so small a file: not a table of samples")
    for batch in opened.iter_batches(columns=list(wanted)):
        missing = [name for name in wanted if name not in batch.schema.names]
        if missing:
            raise pa.ArrowKeyError(f"no column {missing[0]}")
        rows = pa.Table.from_batches([batch])
        for name in numbers:
            at = rows.schema.get_field_index(name)
            rows = rows.set_column(at, name, rows.column(name).cast(pa.float64()))
        yield rows


def _setting(value: Any) -> Setting:
    """What tells cases apart: equal only where it is the same in the table."""
    if isinstance(value, str):
        return _number_or_text(value)
    if isinstance(value, float):
        return str(value) if not math.isfinite(value) else int(value) if value.is_integer() else value
    return value if value is None or isinstance(value, int | bool) else str(value)


def _number_or_text(text: str) -> int | float | str:
    """A number where it can't be written otherwise: `007`, `7.0` and the version `1.10` are texts."""
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
