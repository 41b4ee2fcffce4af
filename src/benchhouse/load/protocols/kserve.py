"""What `serving.infer` and the drivers of KServe v2 (Triton) share: the address of the model, and the request
contents."""

import re
from collections.abc import Mapping
from typing import Any, ClassVar, Literal, NamedTuple, Protocol
from urllib.parse import SplitResult, urlsplit

from pydantic import Field, model_validator

from benchhouse.schema.errors import BenchError
from benchhouse.schema.input_paths import InputPath
from benchhouse.schema.model import Model
from benchhouse.schema.quantities import Seconds
from benchhouse.schema.service import is_mention, split_endpoints

Scalar = bool | int | float | str
_SCHEMES = {"http": ("http", "https"), "grpc": ("grpc", "grpcs")}


class KServeTarget(Model):
    """A model on a server, and how to reach it."""

    driver: str = Field("triton", description="Driver of the protocol; NAME_grpc is its driver over gRPC.")
    url: str = Field(
        description="http://host:port or https://..., for gRPC grpc://host:port or grpcs://... Several replicas over "
        "HTTP with commas: connections are spread over them."
    )
    model: str = Field(min_length=1, description="Name of the model.")
    version: str = Field("", description="Version of the model; empty: the one that the server chooses.")
    protocol: Literal["http", "grpc"] = Field("http", description="http, or grpc (needs the extra `triton`).")
    call: Literal["infer", "generate", "stream"] = Field(
        "infer",
        description="infer: tensors in, tensors out. generate: JSON in and out. stream: many answers a request "
        "(generate_stream, or a gRPC stream), for decoupled models.",
    )
    outputs: tuple[str, ...] = Field((), description="Outputs to ask for; none: all of them.")
    parameters: dict[str, Scalar] = Field({}, description="Parameters that every request carries.")
    shared_memory: bool = Field(False, description="Tensors lie in shared memory; the server is on this machine.")
    headers: dict[str, str] = Field({}, description="Headers of every request, such as an Authorization.")
    verify_tls: bool = Field(True, description="Whether the server's certificate is checked.")
    timeout: Seconds = Field(10.0, gt=0, description="Timeout of queries to the server before and after the load.")
    framework: str = Field("", description="What serves; by default what the server calls itself.")
    deployment: str = Field("", description="How it is deployed: single, replicated, behind a gateway, ...")
    name: str = Field("", description="Name in reports.")

    @model_validator(mode="after")
    def _the_protocol_can_do_it(self) -> "KServeTarget":
        schemes = _SCHEMES[self.protocol]
        urls = (f"{schemes[0]}://service:1",) if is_mention(self.url) else split_endpoints(self.url)
        for url in urls:
            parts = urlsplit(url.replace("{port}", "1"))  # {port}: an experiment starts the server on a free one
            if parts.scheme not in schemes or not parts.hostname or not _has_good_port(parts):
                raise ValueError(f"url: with protocol {self.protocol}, write {schemes[0]}://host:port, not {url!r}")
        if len(urls) > 1 and (self.protocol == "grpc" or self.shared_memory):
            raise ValueError("url: several addresses are for protocol http, and not for shared memory")
        if self.protocol == "grpc" and (self.call == "generate" or self.shared_memory):
            raise ValueError("generate and shared_memory are for protocol http")
        if parts.scheme == "grpcs" and not self.verify_tls:
            raise ValueError("verify_tls: gRPC always checks the server's certificate")
        if self.call != "infer" and self.shared_memory:
            raise ValueError("shared_memory is for call: infer")
        for name, value in self.headers.items():
            if not re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", name) or re.search(r"[\r\n\0]", value):
                raise ValueError(f"headers: {name!r} can't be sent")
        return self


def _has_good_port(parts: SplitResult) -> bool:
    try:
        return parts.port != 0
    except ValueError:
        return False


class TensorInputs(Model):
    """The contents of each request, for any server: generated, given, or from a file."""

    batch: int = Field(1, ge=1, description="Samples a request.")
    shapes: dict[str, list[int] | list[list[int]]] = Field(
        {}, description="Shape of an input whose dimensions vary, without the batch; several shapes are used in turn."
    )
    values: dict[str, Scalar | list[Any]] = Field(
        {}, description="Value of an input: one for all of its elements, or a list of them; a text is a prompt."
    )
    inputs: InputPath = Field("", description="A .npy or .npz file with inputs; samples are its first dimension.")
    seed: int = Field(0, ge=0, description="Seed of made-up inputs.")
    distinct: int = Field(16, ge=1, le=100_000, description="Different made-up requests, used in turn.")
    integer_max: int = Field(127, ge=0, description="Largest made-up integer; the smallest is 0.")
    text_length: int = Field(16, ge=0, description="Letters of a made-up text.")
    sequence_length: int = Field(0, ge=0, description="Requests of a sequence, for models that keep state; 0: none.")

    @model_validator(mode="after")
    def _values_come_from_one_place(self) -> "TensorInputs":
        if self.inputs and (self.shapes or self.values):
            raise ValueError("inputs brings the values: leave out shapes and values")
        return self


class InferItem(NamedTuple):
    """One request: the `number` selects its inputs. A `sequence` of 0 means none; ids are those of `sequence()`."""

    number: int
    sequence: int = 0
    start: bool = False
    end: bool = False


def sequence(number: int, length: int, first_id: int) -> list[InferItem]:
    """Return the requests of sequence `number`, each to be sent after the answer to the previous one. `first_id` is the
    id of sequence 0, drawn at random so that another client's sequences are not continued."""
    return [
        InferItem(number * length + step, first_id + number, start=step == 0, end=step == length - 1)
        for step in range(length)
    ]


class Survey(NamedTuple):
    """What a server reports before the load."""

    model: dict[str, Any]  # its tensors, versions, backend: for the evidence
    server: str  # its name and version
    distinct: int  # number of different requests
    counters: dict[str, float]  # of the model so far; empty if the server keeps none


class NoServer(BenchError):  # noqa: N818 - what happened, in two words
    """No server answers at the address of the target."""


class KServeDriver(Protocol):
    """What `serving.infer` needs from a driver, in addition to the load engine's interface.

    Items are numbers or `InferItem`s. Everything but the load's own calls raises BenchError: NoServer, or a description
    of what is wrong with the target or inputs.
    """

    transport: ClassVar[Literal["http", "call"]]

    @classmethod
    def for_load(cls, target: KServeTarget, inputs: TensorInputs, timeout_s: float) -> "KServeDriver":
        """Return a driver whose calls take at most `timeout_s`."""

    def survey(self) -> Survey:
        """Make one request to check that it succeeds, and read the server's own description."""

    def since(self, before: Mapping[str, float], answered: int) -> dict[str, float]:
        """Return what the server did since the counters `before`, which must include `answered` more requests.

        The keys are `requests`, `failures`, `inferences`, `executions`, `cache_hits`; mean times of a request in ms,
        such as `queue_ms` and `compute_ms`; `batch_mean`. Values that the server does not report are missing.
        """

    def close(self) -> None: ...
