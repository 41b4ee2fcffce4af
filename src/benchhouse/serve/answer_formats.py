"""The formats of an answer: JSON, and CSV or Arrow for a table; the Accept header selects one."""

import csv
import io
import json
from typing import Any

from benchhouse.schema.csv_text import csv_cells
from benchhouse.serve.verbs import Verb

JSON = "application/json"
CSV = "text/csv"
ARROW = "application/vnd.apache.arrow.stream"


def choose(accept: str, verb: Verb) -> str | None:
    """Return the available format with the highest `q`, the first of equals; JSON without an Accept header, None if
    none fits.

    The format of a document is a parameter of its verb.
    """
    if verb.texts:
        return verb.texts[0]
    offered, best, chosen = verb.forms, 0.0, None
    for part in accept.split(",") if accept.strip() else ["*/*"]:
        media_type, *parameters = (item.strip().lower() for item in part.split(";"))
        quality = _quality(parameters)
        match = next((form for form in offered if _fits(form, media_type)), None)
        if match and quality > best:
            best, chosen = quality, match
    return chosen


def _quality(parameters: list[str]) -> float:
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip() == "q":
            try:
                return min(1.0, float(value))
            except ValueError:
                return 0.0
    return 1.0


def _fits(form: str, media_type: str) -> bool:
    main, _, rest = media_type.partition("/")
    return media_type == form or media_type == "*/*" or (rest == "*" and form.startswith(f"{main}/"))


def encode(rows: list[dict[str, Any]], form: str) -> bytes:
    """Return the rows of a table as CSV or Arrow; nested values are JSON in CSV cells."""
    return _csv(rows) if form == CSV else _arrow(rows)


def _columns(rows: list[dict[str, Any]]) -> list[str]:
    return list(dict.fromkeys(name for row in rows for name in row))


def _csv(rows: list[dict[str, Any]]) -> bytes:
    text = io.StringIO()
    writer, columns = csv.writer(text, lineterminator="\n"), _columns(rows)
    writer.writerow(csv_cells(columns))
    writer.writerows(csv_cells([_cell(row.get(name)) for name in columns]) for row in rows)
    return text.getvalue().encode("utf-8", "replace")


def _cell(value: Any) -> Any:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list | bool) else value


def _arrow(rows: list[dict[str, Any]]) -> bytes:
    """Return a stream of Arrow IPC. A column whose values have no common type is JSON text."""
    import pyarrow as pa

    columns = {}
    for name in _columns(rows):
        values = [row.get(name) for row in rows]
        try:
            columns[name] = pa.array(values)
        except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError):
            columns[name] = pa.array([None if value is None else json.dumps(value) for value in values])
    table = pa.table(columns)
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()
