"""hyperfine: the output of `--export-json`."""

from benchhouse.documents.foreign_file import ForeignFile, Importer
from benchhouse.documents.json_node import JsonNode
from benchhouse.schema.imported import Imported, ImportedCase, Setting, their

TOOL = "hyperfine"
WALL = their(
    TOOL, "wall_ms", "ms",
    "of one execution, failed ones too; hyperfine has taken off the time that a shell takes to start, unless it ran "
    "with --shell=none, which its file does not say",
    "lower", "latency",
)  # fmt: skip
USER = their(TOOL, "user_ms", "ms", "mean user CPU time of all executions, as hyperfine says it", "lower")
SYSTEM = their(TOOL, "system_ms", "ms", "mean system CPU time of all executions, as hyperfine says it", "lower")
MEMORY = their(TOOL, "peak_rss_mb", "MB", "largest resident set of one execution, 10^6 bytes", "lower")
ERRORS = their(TOOL, "error_rate", "1", "executions with an exit code other than 0 / all", "lower", "error_rate")


def claims(head: bytes, name: str) -> bool:
    return head.lstrip().startswith(b"{") and b'"results"' in head[:200] and b'"command"' in head and b'"times"' in head


def read(file: ForeignFile) -> Imported:
    return Imported(TOOL, None, [_case(result) for result in file.json()["results"].items()])


def _case(result: JsonNode) -> ImportedCase:
    settings: dict[str, Setting] = {}
    if parameters := result.get("parameters"):
        settings = {name: item.text() for name, item in parameters.members()}
    case = ImportedCase({"name": result["command"].text()}, settings)
    times = result.get("times")
    if times is None:
        case.add_figure(WALL, result["mean"].number() * 1e3)
        case.missing["samples"] = "the file has no times: only hyperfine's own mean is known"
    else:
        told = {"mean": "mean", "p50": "median", "min": "min", "max": "max", "stdev": "stddev"}
        figures = {stat: result.maybe_number(key) for stat, key in told.items()}
        milliseconds = {stat: None if value is None else value * 1e3 for stat, value in figures.items()}
        case.add(WALL, (value * 1e3 for value in times.numbers()), milliseconds)
    for metric, key in ((USER, "user"), (SYSTEM, "system")):
        seconds = result.maybe_number(key)
        case.add_figure(metric, None if seconds is None else seconds * 1e3)
    if codes := result.get("exit_codes"):
        every = [item.value for item in codes.items()]  # null: ended by a signal
        case.add_figure(ERRORS, sum(code != 0 for code in every) / len(every) if every else None)
    if memory := result.get("memory_usage_byte"):
        case.add(MEMORY, (value / 1e6 for value in memory.numbers()))
    return case


HYPERFINE = Importer("hyperfine --export-json", claims, read)
