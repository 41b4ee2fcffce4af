"""What `serving.load` measures."""

from benchhouse.load.metrics import FAILURES, FROM_DUE, GOODPUT, REQUESTS_PER_S
from benchhouse.schema.experiment import Metric

METRICS = (
    Metric(
        name="output_tokens_per_s",
        unit="tokens/s",
        direction="higher",
        primary=True,
        role="throughput",
        formula="output tokens that arrived in the window / its seconds, counted by the server or target.tokenizer",
    ),
    GOODPUT,
    Metric(
        name="ttft", unit="ms", direction="lower", primary=True, formula=f"to the first event with output, {FROM_DUE}"
    ),
    Metric(
        name="tpot",
        unit="ms",
        direction="lower",
        formula="of a request: (last - first event with output) / (output tokens - 1)",
    ),
    Metric(
        name="e2e",
        unit="ms",
        direction="lower",
        primary=True,
        role="latency",
        formula=f"to the end of the answer, {FROM_DUE}",
    ),
    Metric(name="itl", unit="ms", direction="lower", formula="gaps between events with output, of all requests"),
    REQUESTS_PER_S,
    Metric(name="prompts_per_s", unit="1/s", direction="higher", formula="requests_per_s x workload.batch, of a batch"),
    Metric(
        name="input_tokens_per_s", unit="tokens/s", direction="higher", formula="mean input tokens x requests_per_s"
    ),
    Metric(
        name="jitter",
        unit="ms",
        direction="lower",
        formula="of a request: mean absolute difference between one gap and the next",
    ),
    Metric(
        name="ttft_sent", unit="ms", direction="lower", formula="as ttft, but from when the request was really sent"
    ),
    Metric(name="e2e_sent", unit="ms", direction="lower", formula="as e2e, but from when the request was really sent"),
    Metric(
        name="queue_delay",
        unit="ms",
        direction="lower",
        formula="mean time in the server's queue during the load, by the server's own metrics",
    ),
    *FAILURES,
    Metric(name="output_tokens", unit="tokens", formula="mean output tokens of a good answer, by the server's count"),
    Metric(name="input_tokens", unit="tokens", formula="mean input tokens of a good answer, by the server's count"),
    Metric(name="cost_per_request", unit="$", direction="lower", formula="by the prices of the target"),
    Metric(
        name="cost_per_million_output_tokens",
        unit="$",
        direction="lower",
        formula="everything that the load cost by the prices of the target / output tokens x 10^6",
    ),
)
