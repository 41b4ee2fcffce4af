"""Metrics that every load experiment has, and how they are given."""

from benchhouse.load.book import Book
from benchhouse.load.shape import Shape
from benchhouse.schema.experiment import Context, Metric

FROM_DUE = "from the time the request was due (open loop) or sent (closed loop)"
REQUESTS_PER_S = Metric(
    name="requests_per_s",
    unit="1/s",
    direction="higher",
    formula="good answers / seconds of the window, each by the share of its time that lies in the window",
)
GOODPUT = Metric(
    name="goodput",
    unit="1/s",
    direction="higher",
    formula="requests_per_s x share of the good answers that met every clause of workload.slo",
)
FAILURES = (
    Metric(
        name="error_rate",
        unit="1",
        direction="lower",
        primary=True,
        role="error_rate",
        formula="measured requests that failed / all measured requests",
    ),
    Metric(name="errors", unit="1", direction="lower", formula="measured requests that failed, of any kind"),
    Metric(
        name="timeouts",
        unit="1",
        direction="lower",
        role="timeouts",
        formula="of these, without an answer in the time limit",
    ),
)


def emit_rates(book: Book, shape: Shape, ctx: Context) -> float:
    """Emit all of the above; the requests a second, for what an experiment makes of them."""
    requests_per_s = book.answers_per_s(open_loop=shape.open_loop)
    ctx.emit("requests_per_s", requests_per_s)
    ctx.emit("error_rate", book.failed / (book.failed + book.succeeded))
    ctx.emit("errors", book.failed)
    ctx.emit("timeouts", book.errors["timeout"])
    if shape.slo:
        ctx.emit("goodput", requests_per_s * book.good_share())
    return requests_per_s
