"""fio: the output of `--output-format=json`."""

from collections.abc import Iterator

from benchhouse.documents.foreign_file import ForeignFile, Importer
from benchhouse.documents.json_node import JsonNode
from benchhouse.schema.experiment import Role
from benchhouse.schema.imported import Imported, ImportedCase, Setting, their

TOOL = "fio"
_SETTINGS = ("rw", "bs", "iodepth", "ioengine", "numjobs", "direct", "size", "rwmixread")
_DIRECTIONS = ("read", "write", "trim", "mixed")
BANDWIDTH = their(TOOL, "bandwidth_mb_per_s", "MB/s", "bytes of the job / its runtime, 10^6 bytes", "higher")
IOPS = their(TOOL, "iops", "1/s", "operations of the job / its runtime", "higher", "throughput")
ERROR = their(TOOL, "error_code", "1", "errno of the first error of the job; 0: none", "lower")
_MEANS = {
    "lat": "latency of an operation from its creation to its end",
    "clat": "latency of an operation from its submission to the kernel to its end",
    "slat": "time to submit an operation",
}
_PERCENTILES = {"50.000000": "p50", "90.000000": "p90", "95.000000": "p95", "99.000000": "p99", "99.900000": "p99.9",
                "99.990000": "p99.99"}  # fmt: skip


def claims(head: bytes, name: str) -> bool:
    return b'"fio version"' in head[:2000]


def read(file: ForeignFile) -> Imported:
    document = file.json()
    version = document["fio version"].text()
    if not version.startswith(("fio-2.", "fio-3.")):
        file.problem(f"written by {version}; fio 2 and 3 are known")
    cases = [case for job in document["jobs"].items() for case in _cases(job, document.at("global options"))]
    return Imported(TOOL, version.removeprefix("fio-"), cases, document.maybe_text("time"))


def _cases(job: JsonNode, shared: JsonNode | None) -> Iterator[ImportedCase]:
    """Yield a case for each direction in which the job moved data, or one case if it moved none."""
    settings: dict[str, Setting] = {}
    for options in (shared, job.get("job options")):
        for name in _SETTINGS:
            if options is not None and (text := options.maybe_text(name)) is not None:
                settings[name] = text
    directions = [(direction, moved) for direction in _DIRECTIONS if (moved := job.get(direction)) is not None]
    moving = [(direction, moved) for direction, moved in directions if moved["total_ios"].number()]
    if not moving:
        idle = ImportedCase({"name": job["jobname"].text()}, settings)
        idle.add_figure(ERROR, job["error"].number())
        idle.doubts.append(("fio_moved_nothing", f"the job {idle.target['name']} neither read nor wrote anything"))
        yield idle
    for direction, moved in moving:
        case = ImportedCase({"name": job["jobname"].text()}, settings | {"direction": direction})
        case.add_figure(BANDWIDTH, moved["bw_bytes"].number() / 1e6 if moved.get("bw_bytes") else None)
        case.add_figure(IOPS, moved["iops"].number())
        case.add_figure(ERROR, job["error"].number())
        for kind, means in _MEANS.items():
            _latency(case, moved, kind, means)
        if error := job["error"].number():
            case.doubts.append(("fio_error", f"the job {case.target['name']} ended with the error {error:g} (errno)"))
        case.missing["samples"] = "the JSON of fio has no samples: its percentiles are those of its own histogram"
        yield case


def _latency(case: ImportedCase, moved: JsonNode, kind: str, means: str) -> None:
    scale = 1e6 if moved.get(f"{kind}_ns") else 1e3  # fio 2 has microseconds
    found = moved.get(f"{kind}_ns") or moved.get(kind)
    if found is None or not (found.maybe_number("N") or found.maybe_number("max")):
        return
    figures = {stat: found.maybe_number(stat) for stat in ("mean", "min", "max")}
    figures["stdev"] = found.maybe_number("stddev")
    figures |= {name: found.maybe_number("percentile", key) for key, name in _PERCENTILES.items()}
    for stat, value in figures.items():
        if value is not None:
            role: Role | None = "latency" if (kind, stat) == ("clat", "p50") else None
            formula = f"{stat}: {means}, as fio says it"
            case.add_figure(their(TOOL, f"{kind}_{stat}_ms", "ms", formula, "lower", role), value / scale)


FIO = Importer("fio --output-format=json", claims, read)
