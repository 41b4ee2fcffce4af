"""Rows that the API returns, convertible to tables and data frames, and the conversion of every answer to JSON."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, overload

from benchhouse.schema.errors import BenchError
from benchhouse.schema.json_text import finite

if TYPE_CHECKING:
    import pyarrow as pa

    from benchhouse.results.run_points import PointValue, TriedPoint

T = TypeVar("T")


class Rows(Sequence[T], Generic[T]):
    """Typed rows, each a frozen dataclass or model, which can be converted to tables."""

    def __init__(self, rows: Sequence[T]) -> None:
        self._rows = list(rows)

    @overload
    def __getitem__(self, at: int) -> T: ...
    @overload
    def __getitem__(self, at: slice) -> list[T]: ...
    def __getitem__(self, at: int | slice) -> T | list[T]:
        return self._rows[at]

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[T]:
        return iter(self._rows)

    def to_dicts(self) -> list[dict[str, Any]]:
        """Return plain data, as `--json` prints it."""
        return [plain(row) for row in self._rows]

    def df(self, library: Literal["pandas", "polars"] = "pandas") -> Any:
        """Return a data frame of pandas or polars."""
        return frame(self.arrow(), library)

    def arrow(self) -> "pa.Table":
        """Return an Arrow table."""
        import pyarrow as pa

        return pa.Table.from_pylist(self.to_dicts())


def frame(table: "pa.Table", library: Literal["pandas", "polars"]) -> Any:
    """Return an Arrow table as a data frame of pandas or polars; the library is needed for nothing else."""
    try:
        if library == "polars":
            import polars

            return polars.from_arrow(table)
        return table.to_pandas()
    except ImportError as error:
        raise BenchError(f"{library} is not installed", f"pip install {library}; or use .arrow()") from error


def plain(value: Any) -> Any:
    """Return an answer of the API as data for JSON."""
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, list | tuple | Rows):
        return [plain(item) for item in value]
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    return value.model_dump(mode="json") if hasattr(value, "model_dump") else value


def as_json(value: Any) -> str:
    """Return an answer of the API as JSON. NaN, which JSON lacks, becomes null; without NaN, one pass is enough."""
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, default=_shallow)
    except ValueError:
        return json.dumps(finite(plain(value)), ensure_ascii=False)


def _shallow(value: Any) -> Any:
    """Return a value that JSON lacks as one that it has. json.dumps calls this again for the values inside it."""
    if isinstance(value, Rows):
        return list(value)
    if isinstance(value, Mapping):
        return dict(value)
    if is_dataclass(value) and not isinstance(value, type):
        return {name: getattr(value, name) for name in _names(type(value))}
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    raise TypeError(f"{type(value).__name__} has no form in JSON")


@cache
def _names(kind: Any) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind))


class Points(Rows["PointValue"]):
    """The values of runs: one row per point, metric, and statistic."""

    def __init__(self, rows: "Sequence[PointValue]", tried: "Sequence[TriedPoint]" = ()) -> None:
        super().__init__(rows)
        self.tried: list[TriedPoint] = list(tried)
        """Every point that was tried, including those without a value."""

    def show(self) -> None:
        """Print one row per point and one column per metric."""
        from benchhouse.report.terminal.points import points_table

        points_table(list(self), self.tried)

    def _repr_html_(self) -> str:
        from benchhouse.report.notebook import points_html

        return points_html(self, self.tried)
