"""Functions that declare metrics in one line, and the metrics of every load experiment."""

from benchhouse.schema.experiment import Metric, Role

FROM_DUE = "from the time the request was due (open loop) or sent (closed loop)"


def higher(name: str, unit: str, formula: str, role: Role | None = None, *, primary: bool = False) -> Metric:
    """Declare a metric for which higher is better."""
    return Metric(name=name, unit=unit, direction="higher", formula=formula, role=role, primary=primary)


def lower(name: str, unit: str, formula: str, role: Role | None = None, *, primary: bool = False) -> Metric:
    """Declare a metric for which lower is better."""
    return Metric(name=name, unit=unit, direction="lower", formula=formula, role=role, primary=primary)


REQUESTS_PER_S = higher("requests_per_s", "1/s", "good answers / seconds of the window, each by its share of it")
GOODPUT = higher("goodput", "1/s", "requests_per_s x share of the good answers that met all clauses of workload.slo")
LATENCY_SENT = lower("latency_sent", "ms", "as latency, but from when it was really sent")
FAILURES = (
    lower("error_rate", "1", "measured requests that failed / all measured requests", "error_rate", primary=True),
    lower("errors", "1", "measured requests that failed, of any kind"),
    lower("timeouts", "1", "of these, without an answer in the time limit", "timeouts"),
)
