"""vLLM: the output of `vllm bench serve --save-result`; with `--save-detailed` it has samples."""

from benchhouse.documents.foreign_file import ForeignFile, Importer
from benchhouse.documents.json_node import JsonNode
from benchhouse.schema.imported import Imported, ImportedCase, Setting, their

TOOL = "vllm-bench"
_SENT = "counted from when the request was really sent; good requests only"
METRICS = {
    "ttft": their(TOOL, "ttft", "ms", f"to the first chunk of the stream, {_SENT}", "lower"),
    "tpot": their(TOOL, "tpot", "ms", "of a request: (end - first chunk) / (output tokens - 1)", "lower"),
    "itl": their(TOOL, "itl", "ms", "gaps between chunks, of all good requests", "lower"),
    "e2el": their(TOOL, "e2e", "ms", f"to the end of the answer, {_SENT}", "lower", "latency"),
}
_RATES = {
    "request_throughput": their(TOOL, "requests_per_s", "1/s", "good requests / seconds of the test",
                                "higher"),
    "output_throughput": their(TOOL, "output_tokens_per_s", "tokens/s", "output tokens of good requests / seconds",
                               "higher", "throughput"),
    "total_token_throughput": their(TOOL, "tokens_per_s", "tokens/s", "input and output tokens / seconds", "higher"),
}  # fmt: skip
_ERRORS = their(TOOL, "error_rate", "1", "requests that failed / all", "lower", "error_rate")
_STDEV = "numpy's deviation of the population (n), ours is that of a sample (n - 1)"
_SETTINGS = ("backend", "num_prompts", "request_rate", "burstiness", "max_concurrency")


def claims(head: bytes, name: str) -> bool:
    return head.lstrip().startswith(b"{") and b'"tokenizer_id"' in head[:4000] and b'"num_prompts"' in head[:4000]


def read(file: ForeignFile) -> Imported:
    document = file.json()
    settings: dict[str, Setting] = {name: document.maybe_text(name) for name in _SETTINGS}
    case = ImportedCase({"name": document["model_id"].text()}, settings)
    completed, planned = document["completed"].number(), document["num_prompts"].number()
    failed = document.maybe_number("failed")
    case.add_figure(_ERRORS, (planned - completed if failed is None else failed) / planned if planned else None)
    for key, metric in _RATES.items():
        case.add_figure(metric, document.maybe_number(key))
    samples = _samples(document)
    if samples and len(samples["e2el"]) != completed:
        lists = f"its lists have {len(samples['e2el'])} good requests, and it says that {completed:g} were completed"
        case.doubts.append(("vllm_bench_counts", lists))
    for key, metric in METRICS.items():
        told = {"mean": f"mean_{key}_ms", "p50": f"median_{key}_ms", "stdev": f"std_{key}_ms"}
        told |= {f"p{q}": f"p{q}_{key}_ms" for q in ("90", "95", "99", "99.9")}
        figures = {stat: document.maybe_number(theirs) for stat, theirs in told.items()}
        if samples:
            case.add(metric, samples[key], figures, {"stdev": _STDEV})
            continue
        for stat, value in figures.items():
            if value is not None:
                role = metric.role if stat == "p50" else None
                own = their(
                    TOOL, f"{metric.name.partition('@')[0]}_{stat}", "ms", f"{stat} of: {metric.formula}", "lower", role
                )
                case.add_figure(own, value)
    if not samples:
        case.missing["samples"] = "the file has none: vllm bench serve needs --save-detailed to keep them"
    return Imported(TOOL, None, [case], document.maybe_text("date"))


def _samples(document: JsonNode) -> dict[str, list[float]]:
    """Return milliseconds of the successful requests, by vLLM's metric name; empty if the file has no lists."""
    if document.get("ttfts") is None or document.get("itls") is None:
        return {}
    ttfts, lengths = document["ttfts"].numbers(), document["output_lens"].numbers()
    gaps = [node.numbers() for node in document["itls"].items()]
    errors = [bool(item.value) for item in document["errors"].items()]  # empty for a refusal without a message
    latencies = document["latencies"].numbers() if document.get("latencies") else None
    ends = latencies or [ttft + sum(own) for ttft, own in zip(ttfts, gaps, strict=False)]
    if len({len(ttfts), len(lengths), len(gaps), len(errors), len(ends)}) > 1:
        document.refuse("its lists of requests are not equally long")
    good = [at for at, failed in enumerate(errors) if not failed and ends[at] > 0]
    return {
        "ttft": [ttfts[at] * 1e3 for at in good],
        "tpot": [(ends[at] - ttfts[at]) / (lengths[at] - 1) * 1e3 for at in good if lengths[at] > 1],
        "itl": [gap * 1e3 for at in good for gap in gaps[at]],
        "e2el": [ends[at] * 1e3 for at in good],
    }


VLLM = Importer("vllm bench serve --save-result [--save-detailed]", claims, read)
