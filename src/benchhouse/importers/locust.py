"""locust: `PREFIX_stats.csv`, an output of `--csv PREFIX`."""

from benchhouse.documents.csv_rows import csv_rows
from benchhouse.documents.foreign_file import ForeignFile, Importer
from benchhouse.schema.experiment import Role
from benchhouse.schema.imported import Imported, ImportedCase, their

TOOL = "locust"
_KEPT = "as locust says it: of all requests, failed ones too; above 100 ms it knows two digits"
_LATENCIES = {
    "Median Response Time": "p50", "Average Response Time": "mean", "Min Response Time": "min",
    "Max Response Time": "max", "90%": "p90", "95%": "p95", "99%": "p99", "99.9%": "p99.9",
}  # fmt: skip
_HEADER = b"Type,Name,Request Count,Failure Count,"


def claims(head: bytes, name: str) -> bool:
    return head.startswith(_HEADER)


def read(file: ForeignFile) -> Imported:
    cases = [_case(file, row, number) for number, row in csv_rows(file)]
    return Imported(TOOL, None, [case for case in cases if case.samples])


def _case(file: ForeignFile, row: dict[str, str], line: int) -> ImportedCase:
    def number(name: str) -> float | None:
        text = row.get(name, "N/A")
        return None if text == "N/A" else file.number(text, name, line)

    case = ImportedCase({"name": f"{row.get('Type', '')} {row.get('Name', '')}".strip()})
    requests, failures = number("Request Count"), number("Failure Count")
    if not requests:
        return case
    case.add_figure(
        their(TOOL, "requests_per_s", "1/s", "requests, failed ones too / seconds of the test", "higher", "throughput"),
        number("Requests/s"),
    )
    case.add_figure(
        their(TOOL, "error_rate", "1", "failures / requests", "lower", "error_rate"),
        None if failures is None else failures / requests,
    )
    for heading, stat in _LATENCIES.items():
        role: Role | None = "latency" if stat == "p50" else None
        metric = their(TOOL, f"response_time_{stat}_ms", "ms", f"{stat} {_KEPT}", "lower", role)
        case.add_figure(metric, number(heading))
    case.missing["samples"] = "locust's CSV has none: its percentiles are those of rounded response times"
    return case


LOCUST = Importer("locust --csv: PREFIX_stats.csv", claims, read)
