"""MLPerf LoadGen: `mlperf_log_detail.txt`."""

import re
from typing import Any

from benchhouse.documents.foreign_file import ForeignFile, Importer
from benchhouse.documents.json_node import JsonNode
from benchhouse.schema.experiment import Metric, Role
from benchhouse.schema.imported import Imported, ImportedCase, their

TOOL = "loadgen"
_MARK = b":::MLLOG "
_LATENCY = re.compile(
    r"result_(?:(first_token|time_(?:per|to)_output_token)_)?(?:(min|mean|max)|([\d.]{1,9})_percentile)"
    r"(_(?:per_)?query)?(?:_latency)?(?:_ns)?"
)
_FROM_DUE = "from the time the query was scheduled (Server) or issued (SingleStream, MultiStream, Offline)"
_AT = "the value at n * p, counted from 0, as LoadGen says it"
_RATES = ("result_completed_samples_per_sec", "result_scheduled_samples_per_sec", "result_samples_per_second",
          "result_qps_with_loadgen_overhead", "result_qps_without_loadgen_overhead",
          "result_completed_tokens_per_second", "result_tokens_per_second",
          "result_token_throughput_with_loadgen_overhead")  # fmt: skip
_SETTINGS = {
    "effective_scenario": "scenario", "effective_target_qps": "target_qps",
    "effective_samples_per_query": "samples_per_query", "effective_test_mode": "mode",
}  # fmt: skip


def claims(head: bytes, name: str) -> bool:
    return head.startswith(_MARK) and b'"loadgen_' in head


def read(file: ForeignFile) -> Imported:
    said: dict[str, Any] = {}
    errors = 0
    for number, line in file.lines():
        if not line.startswith(_MARK):
            file.problem("not a line of LoadGen's detail log", number)
        content = file.decode(line.removeprefix(_MARK), number)
        node = JsonNode(content, "", lambda message, at=number: file.problem(message, at))  # type: ignore[misc]
        key, value = node["key"].text(), node.mapping().get("value")
        if key.startswith(("result_", "effective_", "loadgen_version", "power_begin")):
            said[key] = JsonNode(value, key, lambda message, at=number: file.problem(message, at))  # type: ignore[misc]
        errors += node.at("metadata", "is_error") is not None and node["metadata"]["is_error"].value is True
    if "result_validity" not in said:
        file.problem("there is no result in it: did the test end?")
    version = said["loadgen_version"].text().partition(" ")[0] if "loadgen_version" in said else None
    return Imported(TOOL, version, [_case(said, errors)])


def _case(said: dict[str, JsonNode], errors: int) -> ImportedCase:
    settings = {name: node.value for key, name in _SETTINGS.items() if (node := said.get(key)) is not None}
    case = ImportedCase(
        {"name": "MLPerf"}, {name: value for name, value in settings.items() if not isinstance(value, dict | list)}
    )
    for key in _RATES:
        if (node := said.get(key)) is not None:
            name = key.removeprefix("result_").replace("per_second", "per_s").replace("per_sec", "per_s")
            tokens = "token" in name
            role: Role | None = None if tokens or "scheduled" in name or "overhead" in name else "throughput"
            unit, formula = "tokens/s" if tokens else "1/s", f"{name} as LoadGen says it"
            case.add_figure(their(TOOL, name, unit, formula, "higher", role), node.number())
    for key, node in said.items():
        if found := _LATENCY.fullmatch(key):
            case.add_figure(_latency(*found.groups()), node.number() / 1e6)
    if (key := "result_token_throughput") in said:
        case.missing[key] = "LoadGen divides tokens by nanoseconds of all latencies together: no rate"
    case.missing["samples"] = "the detail log has none: LoadGen writes them to mlperf_log_trace.json where asked"
    case.facts |= {"validity": said["result_validity"].value}
    if said["result_validity"].value != "VALID":
        reason = said["result_invalid_reason"].value if "result_invalid_reason" in said else ""
        case.doubts.append(
            ("loadgen_invalid", f"LoadGen itself calls this result INVALID{f': {reason}' if reason else ''}")
        )
    if errors:
        case.doubts.append(("loadgen_errors", f"LoadGen noted {errors} errors"))
    return case


def _latency(of: str | None, extreme: str | None, percentile: str | None, of_query: str | None) -> Metric:
    """Return the metric for a key of LoadGen, in milliseconds."""
    stat = extreme or f"p{float(percentile or 0):g}"
    name = "ttft" if of == "first_token" else "tpot" if of else "query_latency" if of_query else "latency"
    formula = f"{stat} of the time of an output token after the first" if name == "tpot" else f"{stat} {_FROM_DUE}"
    role: Role | None = "latency" if (name, stat) == ("latency", "p50") else None
    return their(TOOL, f"{name}_{stat}_ms", "ms", f"{formula}; {_AT}", "lower", role)


LOADGEN = Importer("MLPerf LoadGen: mlperf_log_detail.txt", claims, read)
