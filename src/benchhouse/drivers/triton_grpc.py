"""Driver `triton_grpc`: KServe v2 inference over gRPC, with requests serialized before the load.

It needs grpcio and protobuf (the extra `triton`). The messages of `kserve.proto` are generated. Calls of the load pass
bytes, so that a request is serialized once and not for each call. gRPC does not promise to survive a fork, so the
driver connects only in `open`, which the engine calls in its load processes.
"""

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from time import monotonic_ns
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar
from urllib.parse import urlsplit

from benchhouse.drivers.triton_model import TritonModel, counters, described, since, unknown_model
from benchhouse.drivers.triton_target import TritonTarget, refuse_bad_reply, sequence_parameters, together
from benchhouse.drivers.triton_tensors import Tensor, check_size
from benchhouse.load.protocols.calls import CallResult
from benchhouse.load.protocols.kserve import InferItem, KServeTarget, NoServer, Survey, TensorInputs
from benchhouse.schema.errors import BenchError

if TYPE_CHECKING:
    from google.protobuf.message import Message

    from benchhouse.drivers import kserve_pb2

Answer = TypeVar("Answer", bound="Message")
_SERVICE = "/inference.GRPCInferenceService/"
# The HTTP status for each code, so that errors of both protocols are counted under one name.
_AS_HTTP = {
    "INVALID_ARGUMENT": 400, "FAILED_PRECONDITION": 400, "OUT_OF_RANGE": 400, "UNAUTHENTICATED": 401,
    "PERMISSION_DENIED": 403, "NOT_FOUND": 404, "ABORTED": 409, "ALREADY_EXISTS": 409, "RESOURCE_EXHAUSTED": 429,
    "CANCELLED": 499, "UNKNOWN": 500, "INTERNAL": 500, "DATA_LOSS": 500, "UNIMPLEMENTED": 501,
}  # fmt: skip
_OPTIONS = [
    ("grpc.max_send_message_length", -1),
    ("grpc.max_receive_message_length", -1),
    ("grpc.use_local_subchannel_pool", 1),  # one connection per driver, as over HTTP
]


@dataclass(frozen=True)
class PreparedModel:
    """What all drivers of one process share: the model and its serialized requests without sequence parameters."""

    model: TritonModel
    requests: Sequence[bytes]


class TritonGrpc:
    """A `CallDriver`: open, call any number of times, close. Items are numbers or `InferItem`s."""

    transport: ClassVar[Literal["call"]] = "call"
    _prepared: ClassVar[dict[str, PreparedModel]] = {}
    _lock: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self, target: TritonTarget, *, timeout_s: float | None = None) -> None:
        """Create the driver. `timeout_s` is the limit of a call, by default that of the target's requests."""
        if target.protocol != "grpc":
            raise BenchError(f"this driver speaks gRPC, and the target's protocol is {target.protocol}")
        try:
            import grpc
            from google.protobuf.message import DecodeError

            from benchhouse.drivers import kserve_pb2
        except ImportError as error:
            raise BenchError(
                "Triton over gRPC needs grpcio and protobuf", hint="pip install 'benchhouse[triton]'"
            ) from error
        self._grpc: Any = grpc
        self._messages, self._decode_error = kserve_pb2, DecodeError
        self.target, self._timeout_s = target, timeout_s or target.timeout
        self._channel: Any = None
        self._metadata = [(name.lower(), value) for name, value in target.headers.items()]

    @classmethod
    def for_load(cls, target: KServeTarget, inputs: TensorInputs, timeout_s: float) -> "TritonGrpc":
        return cls(together(target, inputs), timeout_s=timeout_s)

    def open(self) -> None:
        """Connect and, once per process, read the model and build the requests. Raise BenchError if that fails."""
        self._channel = self._connect()
        with self._lock:
            key = self.target.model_dump_json()
            if key not in self._prepared:
                self._prepared.clear()  # requests of an earlier load
                model = self._discover()
                sets = self.target.input_sets(model)
                self._prepared[key] = PreparedModel(model, [self._serialise(tensors) for tensors in sets])
            self._mine = self._prepared[key]
        self._infer = self._channel.unary_unary(_SERVICE + "ModelInfer")  # bytes in, bytes out
        self._stream = self._channel.stream_stream(_SERVICE + "ModelStreamInfer")

    @property
    def model(self) -> TritonModel:
        return self._mine.model

    def request(self, item: Any) -> bytes:
        """Return the serialized ModelInferRequest for an item."""
        number = item if isinstance(item, int) else item.number
        request = self._mine.requests[number % len(self._mine.requests)]
        if not self.target.sequence_length:
            return request
        if not isinstance(item, InferItem) or not item.sequence:
            raise BenchError(f"model {self.model.name!r} takes sequences: its items are those of sequence()")
        parameters = self._messages.ModelInferRequest()
        _set_parameters(parameters, sequence_parameters(item))
        return request + parameters.SerializeToString()  # protobuf merges concatenated messages

    def call(self, item: Any) -> CallResult:
        data = self.request(item)
        try:
            if self.target.call == "stream":
                return self._read_stream(data)
            answer = self._infer(data, timeout=self._timeout_s, metadata=self._metadata)
        except self._grpc.RpcError as error:
            return refused(error)
        return self._read(answer)

    def check(self) -> None:
        """Make one request, and raise BenchError with the server's message if the answer is not valid."""
        refuse_bad_reply(self.model, self.call(self.target.sample_item()))

    def survey(self) -> Survey:
        """Return the survey from a separate process: gRPC does not promise to survive the later fork of the load."""
        fork = get_context("fork")
        ours, theirs = fork.Pipe(duplex=False)
        child = fork.Process(target=_survey, args=(self.target, theirs))
        child.start()
        theirs.close()
        try:
            answer: Survey | BenchError = ours.recv()
        except EOFError:
            raise BenchError("the process that asks the server about itself died; its log says more") from None
        finally:
            child.join()
        if isinstance(answer, BenchError):
            raise answer
        return answer

    def since(self, before: Mapping[str, float], answered: int) -> dict[str, float]:
        return since(self.statistics, before, answered)

    def statistics(self) -> dict[str, float]:
        """Return the server's counters for the model; `triton_model.between` computes times from two of them."""
        request = self._messages.ModelStatisticsRequest(name=self.target.model, version=self.target.version)
        try:
            with self._connected():
                answer = self._ask("ModelStatistics", request, self._messages.ModelStatisticsResponse)
        except _NotThereError:
            return {}  # other servers of the protocol keep none
        newest = max(answer.model_stats, key=lambda entry: (len(entry.version), entry.version), default=None)
        return counters(_as_json(newest)) if newest is not None else {}

    def server(self) -> str:
        """Return the server's own name and version."""
        answer = self._ask(
            "ServerMetadata", self._messages.ServerMetadataRequest(), self._messages.ServerMetadataResponse
        )
        return f"{answer.name} {answer.version}".strip()

    def close(self) -> None:
        if self._channel is not None:
            self._channel.close()
            self._channel = None

    def _connect(self) -> Any:
        parts = urlsplit(self.target.url)
        host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
        address = f"{host}:{parts.port or 8001}"
        if parts.scheme == "grpcs":
            return self._grpc.secure_channel(address, self._grpc.ssl_channel_credentials(), options=_OPTIONS)
        return self._grpc.insecure_channel(address, options=_OPTIONS)

    @contextmanager
    def _connected(self) -> Iterator[None]:
        """Use this driver's channel, or a temporary one if it has none."""
        opened = self._channel is None
        if opened:
            self._channel = self._connect()
        try:
            yield
        finally:
            if opened:
                self.close()

    def _serialise(self, tensors: Iterable[Tensor]) -> bytes:
        request = self._messages.ModelInferRequest(model_name=self.target.model, model_version=self.target.version)
        _set_parameters(request, self.target.parameters)
        for tensor in tensors:
            request.inputs.add(name=tensor.name, datatype=tensor.datatype, shape=tensor.shape)
            request.raw_input_contents.append(tensor.encode())
        for name in self.target.outputs:
            request.outputs.add(name=name)
        return request.SerializeToString()

    def _discover(self) -> TritonModel:
        pb, name, version = self._messages, self.target.model, self.target.version
        try:
            metadata = self._ask(
                "ModelMetadata", pb.ModelMetadataRequest(name=name, version=version), pb.ModelMetadataResponse
            )
        except _NotThereError as problem:
            index = self._ask("RepositoryIndex", pb.RepositoryIndexRequest(), pb.RepositoryIndexResponse)
            entries = [_as_json(entry) for entry in index.models]
            raise unknown_model(self.target.url, name, version, str(problem), entries) from None
        try:
            answer = self._ask("ModelConfig", pb.ModelConfigRequest(name=name, version=version), pb.ModelConfigResponse)
            config = _as_json(answer.config)
        except _NotThereError:
            config = {}  # other servers of the protocol have no configuration
        return described(_as_json(metadata), config, version)

    def _ask(self, method: str, request: "Message", response: "type[Answer]") -> "Answer":
        try:
            call = self._channel.unary_unary(_SERVICE + method, type(request).SerializeToString, response.FromString)
            answer: Answer = call(request, timeout=self.target.timeout, metadata=self._metadata)
        except self._grpc.RpcError as error:
            if error.code().name in ("UNAVAILABLE", "DEADLINE_EXCEEDED"):
                raise NoServer(
                    f"no Triton server answers at {self.target.url}: {error.details()}",
                    hint="start it, or correct target.url (gRPC is port 8001 by default, HTTP 8000)",
                ) from error
            raise _NotThereError(error.details()) from error
        return answer

    def _read(self, answer: bytes) -> CallResult:
        try:
            problem = self._problem(self._messages.ModelInferResponse.FromString(answer))
        except self._decode_error as error:
            problem = str(error)
        if problem:
            return CallResult(error="malformed", detail=problem[:300], size=len(answer))
        return CallResult(size=len(answer), count=self.target.batch)

    def _read_stream(self, data: bytes) -> CallResult:
        """Send one request on a stream of its own, which the server ends after its last answer."""
        answers = self._stream(iter((data,)), timeout=self._timeout_s, metadata=self._metadata)
        try:
            return self._read_answers(answers)
        finally:
            answers.cancel()  # needed if an error ended the reading; otherwise without effect

    def _read_answers(self, answers: Iterable[bytes]) -> CallResult:
        stamps: list[int] = []
        size = 0
        for answer in answers:
            stamp = monotonic_ns()
            size += len(answer)
            try:
                response = self._messages.ModelStreamInferResponse.FromString(answer)
                error = response.error_message
                problem = "" if error else self._problem(response.infer_response)
            except self._decode_error as undecodable:
                error, problem = "", str(undecodable)
            if error or problem:
                kind = "server_error" if error else "malformed"
                return CallResult(error=kind, detail=(error or problem)[:300], token_ns=stamps, size=size)
            stamps.append(stamp)
        if not stamps:
            return CallResult(error="empty", detail="the stream ended without an answer")
        return CallResult(token_ns=stamps, size=size, count=self.target.batch)

    def _problem(self, answer: "kserve_pb2.ModelInferResponse") -> str:
        """Return what is wrong with an answer's tensors, or an empty string."""
        outputs, contents = answer.outputs, answer.raw_output_contents
        if len(contents) > len(outputs):
            return f"{len(contents)} raw contents for {len(outputs)} outputs"
        for output, data in zip(outputs, contents, strict=False):
            if mismatch := check_size(output.datatype, output.shape, data):
                return f"output {output.name} has {mismatch}"
        if len(contents) < len(outputs):
            return f"output {outputs[len(contents)].name} came without its raw contents"
        return self.target.missing_output(self.model, {output.name for output in outputs})


def _survey(target: TritonTarget, answer: Connection) -> None:
    driver = TritonGrpc(target)
    try:
        driver.open()
        before = driver.statistics()
        driver.check()
        driver.since(before, answered=1)  # otherwise the load would count this request as its first
        answer.send(Survey(driver.model.facts(), driver.server(), len(driver._mine.requests), driver.statistics()))
    except BenchError as problem:
        answer.send(problem)
    finally:
        driver.close()


class _NotThereError(Exception):
    """The server refused a request about a model; the message is the server's."""


def refused(error: Any) -> CallResult:
    """Return the result of a failed call, with the error name that the same failure has over HTTP."""
    code, detail = error.code().name, str(error.details() or "")[:300]
    if code == "DEADLINE_EXCEEDED":
        return CallResult(error="timeout", detail=detail)
    if code == "UNAVAILABLE":
        lost = "reset" if "closed" in detail.lower() or "reset" in detail.lower() else "refused"
        return CallResult(error=lost, detail=detail)
    return CallResult(error=f"http_{_AS_HTTP.get(code, 500)}", detail=f"{code}: {detail}")


def _set_parameters(request: "kserve_pb2.ModelInferRequest", values: Mapping[str, bool | int | float | str]) -> None:
    for name, value in values.items():
        fields = {bool: "bool_param", int: "int64_param", str: "string_param", float: "double_param"}
        setattr(request.parameters[name], fields[type(value)], value)


def _as_json(message: "Message") -> dict[str, Any]:
    """Return a message in the form of the server's HTTP side; protobuf's JSON writes 64-bit integers as text."""
    from google.protobuf.json_format import MessageToDict

    return MessageToDict(message, preserving_proto_field_name=True)
