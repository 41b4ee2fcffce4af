"""asv: a result file, `results/MACHINE/COMMIT-ENVIRONMENT.json`, with samples if asv ran with `--record-samples`."""

import itertools
import math
from collections.abc import Iterator

from benchhouse.documents.foreign_file import ForeignFile, Importer
from benchhouse.documents.json_node import JsonNode
from benchhouse.schema.experiment import Metric
from benchhouse.schema.imported import Imported, ImportedCase, Setting, their

TOOL, _KNOWN, _MOST_POINTS = "asv", 2, 100_000
_TIME = their(TOOL, "time_s", "s", "one call: a sample is the mean of as many calls as asv chose", "lower", "latency")
_MEMORY = their(TOOL, "memory_bytes", "B", "size of an object (mem), or most memory of the process (peakmem)", "lower")
_TRACKED = their(TOOL, "tracked", "1", "what the benchmark returned, in a unit that this file does not have")
_METRICS = {"time": _TIME, "timeraw": _TIME, "mem": _MEMORY, "peakmem": _MEMORY}
_FAILED = their(TOOL, "error_rate", "1", "1: asv has no result", "lower", "error_rate")


def claims(head: bytes, name: str) -> bool:
    return b'"commit_hash"' in head and b'"result_columns"' in head


def read(file: ForeignFile) -> Imported:
    document = file.json()
    if (version := document["version"].number()) != _KNOWN:
        file.problem(f"its format has version {version:g}; {_KNOWN} is known")
    columns = [item.text() for item in document["result_columns"].items()]
    cases = list[ImportedCase]()
    for name, row in document["results"].members():
        if len(cells := list(row.items())) > len(columns):
            row.refuse(f"{len(cells)} cells under {len(columns)} columns")
        cases += _cases(name, row, dict(zip(columns, cells, strict=False)))
    return Imported(TOOL, None, cases, None, document.maybe_text("params", "machine"))


def _cases(name: str, row: JsonNode, cells: dict[str, JsonNode]) -> Iterator[ImportedCase]:
    """Yield a case for each combination of the parameters, in asv's order: the last varies fastest."""
    values = [[item.text() for item in axis.items()] for axis in cells["params"].items()] if "params" in cells else []
    if math.prod(map(len, values)) > _MOST_POINTS:
        row.refuse(f"more than {_MOST_POINTS} combinations of parameters")
    points = list(itertools.product(*values))
    results = list(cells["result"].items()) if cells["result"].value is not None else [None] * len(points)
    samples = list(cells["samples"].items()) if "samples" in cells and cells["samples"].value else [None] * len(points)
    if not len(points) == len(results) == len(samples):
        row.refuse(f"{len(results)} results and {len(samples)} lists of samples for {len(points)} points")
    metric: Metric = _METRICS.get(name.rpartition(".")[2].partition("_")[0], _TRACKED)
    for point, result, own in zip(points, results, samples, strict=True):
        settings: dict[str, Setting] = {f"param{at}": value for at, value in enumerate(point, 1)}
        case = ImportedCase({"name": name}, settings)
        measured = own.numbers() if own is not None and own.value else []
        skipped = result is None or result.value is None or (_is_nan(result) and not measured)
        value = None if skipped or result is None else result.number()
        case.add_figure(_FAILED, float(value is None))
        if measured:
            case.add(metric, measured, {"p50": value})
        else:
            case.add_figure(metric, value, "asv has no result: it failed, or it was skipped (NaN)")
        yield case


def _is_nan(node: JsonNode) -> bool:
    return isinstance(node.value, float) and math.isnan(node.value)


ASV = Importer("asv run [--record-samples]: results/MACHINE/COMMIT-ENVIRONMENT.json", claims, read)
