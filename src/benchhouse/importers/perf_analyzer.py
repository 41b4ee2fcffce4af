"""perf_analyzer: the output of `--profile-export-file`."""

from benchhouse.documents.foreign_file import ForeignFile, Importer
from benchhouse.documents.json_node import JsonNode
from benchhouse.schema.imported import Imported, ImportedCase, their

TOOL = "perf_analyzer"
_SENT = (
    "from when the request was sent, all measurement windows of the experiment, also those thrown away as not stable"
)
E2E = their(TOOL, "e2e", "ms", f"to the last response, {_SENT}", "lower", "latency")
TTFT = their(TOOL, "ttft", "ms", f"to the first of several responses, {_SENT}", "lower")
RATE = their(TOOL, "requests_per_s", "1/s", "requests / seconds from the first send to the last response", "higher",
             "throughput")  # fmt: skip


def claims(head: bytes, name: str) -> bool:
    return b'"experiments"' in head[:500] and b'"experiment"' in head[:1000] and b'"response_timestamps"' in head


def read(file: ForeignFile) -> Imported:
    document = file.json()
    name = document.maybe_text("service_kind") or "server"
    cases = [_case(item, name) for item in document["experiments"].items()]
    return Imported(TOOL, document.maybe_text("version"), cases)


def _case(item: JsonNode, name: str) -> ImportedCase:
    mode, value = item["experiment"]["mode"].text(), item["experiment"]["value"].number()
    case = ImportedCase({"name": name}, {mode: value})
    starts, ends, first, last = list[float](), list[float](), list[float](), list[float]()
    for request in item["requests"].items():
        sent, answers = request["timestamp"].number(), request["response_timestamps"].numbers()
        if not answers or min(answers) < sent:
            request.refuse("no response after it was sent")
        starts.append(sent)
        ends.append(answers[-1])
        last.append((answers[-1] - sent) / 1e6)
        if len(answers) > 1:
            first.append((answers[0] - sent) / 1e6)
    case.add(E2E, last)
    case.add(TTFT, first) if first else case.missing.update({TTFT.name: "no request has several responses"})
    elapsed = max(ends, default=0.0) - min(starts, default=0.0)
    case.add_figure(RATE, len(starts) / elapsed * 1e9 if elapsed > 0 else None)
    case.missing["errors"] = "the export has answered requests alone"
    return case


PERF_ANALYZER = Importer("perf_analyzer --profile-export-file", claims, read)
