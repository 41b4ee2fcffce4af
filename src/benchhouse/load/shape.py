"""The shape of a load: how much, when, and for how long; the part of a workload that all load experiments share."""

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, field_validator, model_validator

from benchhouse.documents.problems import ProblemsError
from benchhouse.load.arrivals import Arrivals, Kind, Poisson, TraceArrivals
from benchhouse.load.slo import Slo, parse_slo
from benchhouse.schema.model import Model
from benchhouse.schema.quantities import Seconds
from benchhouse.schema.service import is_mention

MAX_IN_FLIGHT = 4096
MOST = {"concurrency": 100_000, "rps": 1e6}
"""The largest loads that can be requested."""
ERROR_LIMIT_S, ERROR_SHARE = 0.001, 0.02
ErrorLimit = Annotated[
    Seconds,
    Field(
        gt=0,
        le=10,
        description="How far a time may be off as the client was late; beyond this and `error_share` it is INVALID.",
    ),
]
ErrorShare = Annotated[float, Field(gt=0, le=1, description="The same, as a share of the time.")]
MOST_PROCESSES = 256
PLACES = ("own", "others", "all")
CLIENT = "client://"
"""Prefix of the address of a load client."""
_DEFAULT_DURATION_S = 10.0


def _auto_or_a_number(given: Any) -> Any:
    """Validate with one clear message; a union would give one per member."""
    number = int(given) if isinstance(given, str) and given.isdecimal() else given
    if number == "auto" or (type(number) is int and 1 <= number <= MOST_PROCESSES):
        return number
    raise ValueError(f"expected auto or a number from 1 to {MOST_PROCESSES}, found {given!r}")


def _where(nodes: str) -> str:
    if nodes not in PLACES and not is_mention(nodes) and not nodes.startswith(CLIENT):
        raise ValueError(f"expected own, others, all or service:NAME of load clients, found {nodes!r}")
    return nodes


Processes = Annotated[
    Literal["auto"] | Annotated[int, Field(ge=1, le=MOST_PROCESSES)], BeforeValidator(_auto_or_a_number)
]


class Shape(Model):
    """Closed loop with `concurrency`, open loop with `rps` (or a trace); `duration` or `requests` sets the length."""

    concurrency: int | None = Field(
        None, ge=1, le=MOST["concurrency"], description="Closed loop: requests in flight at any time."
    )
    rps: float | None = Field(
        None, gt=0, le=MOST["rps"], description="Open loop: requests a second, whatever comes back."
    )
    arrivals: Arrivals | None = Field(
        None, description="Open loop: poisson (default), constant, gamma, ramp, steps, trace."
    )
    max_in_flight: int = Field(MAX_IN_FLIGHT, ge=1, le=100_000, description="Open loop: requests beyond that wait.")
    think_time: Seconds = Field(0.0, description="Closed loop: pause of a client before its next request.")
    duration: Seconds | None = Field(None, gt=0, description="Length of the measured window; 10 s by default.")
    requests: int | None = Field(None, ge=1, description="Exactly so many measured requests, instead of a duration.")
    warmup: Seconds = Field(1.0, description="Load before the measured window.")
    cooldown: Seconds = Field(0.0, description="Load kept on after it, so that the last ones end under the same load.")
    timeout: Seconds = Field(120.0, gt=0, description="Timeout of one request.")
    processes: Processes = Field(
        "auto", description="Load processes; auto: as many as the load and the free cores ask for."
    )
    nodes: Annotated[str, AfterValidator(_where)] = Field(
        "own",
        description="Nodes of the trial that run load processes: that of the experiment, the others, or all; or "
        "`service:NAME` of load clients, which `bench clients run` fills in.",
    )
    error_limit: ErrorLimit = ERROR_LIMIT_S
    error_share: ErrorShare = ERROR_SHARE
    records: bool = Field(False, description="Keep one row a request in artifacts/requests.parquet.")
    slo: str | None = Field(None, description="Objective such as `ttft.p99<300ms,error<0.1%`; gives goodput.")

    @field_validator("slo")
    @classmethod
    def _slo_is_one(cls, text: str | None) -> str | None:
        try:
            return str(parse_slo(text)) if text else None
        except ProblemsError as error:
            raise ValueError("; ".join(problem.message for problem in error.problems)) from error

    @model_validator(mode="after")
    def _one_kind_of_loop(self) -> "Shape":
        own_rate = self.arrivals is not None and self.arrivals.own_rate
        if self.concurrency and self.arrivals:
            raise ValueError("arrivals are of an open loop: give rps instead of concurrency")
        if self.concurrency and self.rps:
            raise ValueError("give concurrency (closed loop) or rps (open loop), not both")
        if self.rps and own_rate:
            raise ValueError(f"arrivals of the kind {self.law.kind} bring their own rate: leave rps out")
        if not self.concurrency and not self.rps and not own_rate:
            raise ValueError("give concurrency (closed loop) or rps (open loop)")
        if self.duration and self.requests:
            raise ValueError("give duration or requests, not both")
        if self.think_time and not self.concurrency:
            raise ValueError("think_time is of a closed loop: give concurrency instead of rps")
        if self.concurrency and self.max_in_flight != MAX_IN_FLIGHT:
            raise ValueError("max_in_flight is of an open loop: concurrency says how many are in flight")
        if self.shards > (self.concurrency or self.max_in_flight):
            raise ValueError(f"{self.shards} processes need at least as many requests in flight")
        if self.open_loop and not isinstance(self.law, TraceArrivals):
            self.law.course(self.rps, self.schedule_s)  # raises if something is missing, before anything runs
        return self

    @property
    def objectives(self) -> Slo | None:
        return parse_slo(self.slo) if self.slo else None

    @property
    def open_loop(self) -> bool:
        return self.concurrency is None

    @property
    def law(self) -> Kind:
        """The distribution of the due times of an open loop's requests."""
        return self.arrivals or Poisson()

    @property
    def shards(self) -> int:
        """Number of load processes; 1 until `auto` has been decided (`process_count.py`)."""
        return 1 if self.processes == "auto" else self.processes

    @property
    def window_s(self) -> float | None:
        """Length of the measured window; None if a number of requests ends it."""
        return None if self.requests else self.duration or _DEFAULT_DURATION_S

    @property
    def schedule_s(self) -> float | None:
        """Length of the whole load, including warm-up and cool-down; None if a number of requests ends it."""
        return None if self.window_s is None else self.warmup + self.window_s + self.cooldown

    @property
    def most_in_flight(self) -> int:
        return self.concurrency or self.max_in_flight
