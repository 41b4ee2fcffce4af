"""MLPerf LoadGen: `mlperf_log_detail.txt`."""

import re
from typing import Any

from benchhouse.documents.foreign_file import ForeignFile
from benchhouse.documents.json_node import Node
from benchhouse.schema.experiment import Role
from benchhouse.schema.imported import Case, Imported, Importer, their

TOOL = "loadgen"
_MARK = b":::MLLOG "
_PERCENTILE = re.compile(r"result_([\d.]+)_percentile_(?:per_token_)?latency_ns")
_FROM_DUE = "from the time the query was scheduled (Server) or issued (SingleStream, MultiStream, Offline)"
_RATES = ("result_completed_samples_per_sec", "result_scheduled_samples_per_sec", "result_samples_per_second",
          "result_qps_with_loadgen_overhead", "result_qps_without_loadgen_overhead")  # fmt: skip
_LATENCIES = {"result_min_latency_ns": "min", "result_mean_latency_ns": "mean", "result_max_latency_ns": "max"}
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
        node = Node(content, "", lambda message, at=number: file.problem(message, at))  # type: ignore[misc]
        key, value = node["key"].text(), node.mapping().get("value")
        if key.startswith(("result_", "effective_", "loadgen_version", "power_begin")):
            said[key] = Node(value, key, lambda message, at=number: file.problem(message, at))  # type: ignore[misc]
        errors += node.at("metadata", "is_error") is not None and node["metadata"]["is_error"].value is True
    if "result_validity" not in said:
        file.problem("there is no result in it: did the test end?")
    version = said["loadgen_version"].text().partition(" ")[0] if "loadgen_version" in said else None
    return Imported(TOOL, version, [_case(said, errors)])


def _case(said: dict[str, Node], errors: int) -> Case:
    settings = {name: node.value for key, name in _SETTINGS.items() if (node := said.get(key)) is not None}
    case = Case(
        {"name": "MLPerf"}, {name: value for name, value in settings.items() if not isinstance(value, dict | list)}
    )
    for key in _RATES:
        if (node := said.get(key)) is not None:
            name = key.removeprefix("result_").replace("per_second", "per_s").replace("per_sec", "per_s")
            role: Role | None = "throughput" if "scheduled" not in name and "overhead" not in name else None
            case.add_figure(their(TOOL, name, "1/s", f"{name} as LoadGen says it", "higher", role), node.number())
    for key, node in said.items():
        found = _PERCENTILE.fullmatch(key)
        if stat := _LATENCIES.get(key) or (f"p{float(found[1]):g}" if found and "token" not in key else ""):
            formula = f"{stat} {_FROM_DUE}; the nearest rank, as LoadGen says it"
            metric = their(TOOL, f"latency_{stat}_ms", "ms", formula, "lower", "latency" if stat == "p50" else None)
            case.add_figure(metric, node.number() / 1e6)
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


LOADGEN = Importer("MLPerf LoadGen: mlperf_log_detail.txt", claims, read)
