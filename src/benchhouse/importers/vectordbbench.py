"""VectorDBBench: `result_DATE_LABEL_DB.json` in its results folder."""

from benchhouse.documents.foreign_file import ForeignFile, Importer
from benchhouse.documents.json_node import JsonNode
from benchhouse.schema.imported import Imported, ImportedCase, Setting, their

TOOL = "vectordbbench"
_QPS = "the most of all tried concurrencies: searches / seconds, as VectorDBBench says it"
_SERIAL = "of searches one after the other, as VectorDBBench says it"
_FAILED = their(TOOL, "error_rate", "1", "1: the case failed, or its time was up", "lower", "error_rate")
_GOOD = ":)"
_METRICS = (
    (their(TOOL, "qps", "1/s", _QPS, "higher", "throughput"), "qps", 1.0),
    (their(TOOL, "latency_p99_ms", "ms", _SERIAL, "lower", "latency"),
     "serial_latency_p99", 1e3),
    (their(TOOL, "latency_p95_ms", "ms", _SERIAL, "lower"),
     "serial_latency_p95", 1e3),
    (their(TOOL, "recall", "1", "mean of all searches, against its ground truth", "higher"), "recall", 1.0),
    (their(TOOL, "ndcg", "1", "mean over all searches", "higher"), "ndcg", 1.0),
    (their(TOOL, "load_s", "s", "to insert and to optimise", "lower"), "load_duration", 1.0),
    (their(TOOL, "max_load_count", "1", "vectors inserted until it gave up", "higher"), "max_load_count", 1.0),
)  # fmt: skip


def claims(head: bytes, name: str) -> bool:
    return b'"task_label"' in head[:500] and b'"run_id"' in head[:500]


def read(file: ForeignFile) -> Imported:
    document = file.json()
    cases = [_case(item) for item in document["results"].items()]
    return Imported(TOOL, None, cases, document.maybe_text("timestamp"))


def _case(item: JsonNode) -> ImportedCase:
    config = item["task_config"]
    settings: dict[str, Setting] = {"case_id": int(config["case_config"]["case_id"].number())}
    settings["k"] = int(config.maybe_number("case_config", "k") or 0) or None
    for name, node in config["db_case_config"].members():
        if isinstance(node.value, str | int | float | bool):
            settings[name] = node.value
    place = config.maybe_text("db_config", "db_label") or ""
    case = ImportedCase({"name": f"{config['db'].text()} {place}".strip()}, settings)
    metrics, label = item["metrics"], item["label"].text()
    case.add_figure(_FAILED, float(label != _GOOD))
    if label != _GOOD:
        case.doubts.append(("case_failed", f"VectorDBBench marks this case {label!r}: it has no result"))
        case.missing["samples"] = "the case did not succeed"
        return case
    for metric, key, scale in _METRICS:
        value = metrics.maybe_number(key)
        if value:  # 0 means that it was not measured
            case.add_figure(metric, value * scale)
        else:
            case.missing[metric.name] = "it was not measured: VectorDBBench then writes 0"
    levels = metrics.get("conc_num_list")
    if levels is not None:
        case.facts["concurrency"] = {key: node.value for key, node in metrics.members() if key.startswith("conc_")}
    case.missing["samples"] = "the file has none: only its own percentiles, serial ones rounded to 0.1 ms"
    return case


VECTORDBBENCH = Importer("VectorDBBench: result_*.json", claims, read)
