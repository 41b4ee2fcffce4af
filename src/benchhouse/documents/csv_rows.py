"""Rows of another tool's CSV file, by heading."""

import csv
from collections.abc import Iterator

from benchhouse.documents.foreign_file import ForeignFile


def csv_rows(file: ForeignFile) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield each row with the number of its last line; a quoted cell may span several lines."""
    reader = csv.reader((line.decode("utf-8", "replace") + "\n" for _, line in file.lines()), strict=True)
    try:
        header = next(reader, [])
        if len(set(header)) < len(header):
            file.problem("two columns have one heading", 1)
        for cells in reader:
            if len(cells) != len(header):
                found = f"{len(cells)} cells under {len(header)} headings"
                file.problem(f"{found}; it looks cut off", reader.line_num)
            yield reader.line_num, dict(zip(header, cells, strict=True))
    except csv.Error as error:
        file.problem(f"not CSV: {error}", reader.line_num)
