"""The seconds of a load as a small CSV file: for charts, and for whoever asks when something happened."""

import csv
from pathlib import Path

from benchhouse.load.book import Book
from benchhouse.load.slo import Slo


def write_intervals(path: Path, book: Book, slo: Slo | None) -> None:
    """One row a second of the measured window, quiet seconds included; the last one may be a part of a second.

    `sent`, `completed`, `errors` are what happened in it, `in_flight` holds at its end; `due`, `good` and
    `over:...` tell what became of the requests that were due in it.
    """
    clauses = [str(clause) for clause in slo.clauses] if slo else []
    last = int(book.window_s) if book.window_s % 1 else int(book.window_s) - 1
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(
            ["second", "sent", "completed", "errors", "in_flight", "due", "good", *(f"over:{c}" for c in clauses)]
        )
        for number in range(max(last, 0) + 1):
            row = book.seconds.get(number)
            counts = [row.sent, row.completed, row.errors, row.in_flight, row.due, row.good] if row else [0] * 6
            writer.writerow([number, *counts, *(row.missed if row else [0] * len(clauses))])
