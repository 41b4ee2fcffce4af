"""Driver `triton_grpc`: KServe v2 inference over gRPC, with requests serialised before the load.

Needs grpcio (the extra `triton`) for HTTP/2 alone: messages are those of `triton_wire.py`. gRPC and fork are no
friends, so nothing is connected before `open`, which the engine calls in its load processes.
"""

import importlib
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from secrets import randbits
from time import monotonic_ns
from typing import Any, ClassVar, Literal
from urllib.parse import urlsplit

from benchhouse.drivers import triton_wire as wire
from benchhouse.drivers.triton_model import TritonModel, counters, described, since, unknown_model
from benchhouse.drivers.triton_target import TritonTarget, input_sets, sequence_parameters, together
from benchhouse.drivers.triton_tensors import check_size
from benchhouse.load.protocols.calls import Reply
from benchhouse.load.protocols.kserve import InferItem, KServeTarget, NoServer, Survey, TensorInputs
from benchhouse.schema.errors import BenchError

_SERVICE = "/inference.GRPCInferenceService/"
# What HTTP calls the same thing, so that errors of both protocols are counted under one name.
_AS_HTTP = {
    "INVALID_ARGUMENT": 400, "FAILED_PRECONDITION": 400, "OUT_OF_RANGE": 400, "UNAUTHENTICATED": 401,
    "PERMISSION_DENIED": 403, "NOT_FOUND": 404, "ABORTED": 409, "ALREADY_EXISTS": 409, "RESOURCE_EXHAUSTED": 429,
    "CANCELLED": 499, "UNKNOWN": 500, "INTERNAL": 500, "DATA_LOSS": 500, "UNIMPLEMENTED": 501,
}  # fmt: skip
_OPTIONS = [
    ("grpc.max_send_message_length", -1),
    ("grpc.max_receive_message_length", -1),
    ("grpc.use_local_subchannel_pool", 1),  # a connection for each driver, as over HTTP
]


@dataclass(frozen=True)
class Prepared:
    """What all drivers of one process share: the model and the inputs of its requests, as bytes."""

    model: TritonModel
    inputs: Sequence[Sequence[tuple[str, str, tuple[int, ...], bytes]]]
    requests: Sequence[bytes]  # empty for sequences, where each request is its own


class TritonGrpc:
    """A `CallDriver`: open, call any number of times, close. Items are numbers or `InferItem`s."""

    transport: ClassVar[Literal["call"]] = "call"
    _prepared: ClassVar[dict[str, Prepared]] = {}
    _lock: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self, target: TritonTarget, *, timeout_s: float | None = None) -> None:
        """`timeout_s` is the limit of a call; that of a question to the server, where nothing is said."""
        if target.protocol != "grpc":
            raise BenchError(f"this driver speaks gRPC, and the target's protocol is {target.protocol}")
        try:
            self._grpc: Any = importlib.import_module("grpc")
        except ImportError as error:
            raise BenchError("Triton over gRPC needs grpcio", hint="pip install 'benchhouse[triton]'") from error
        self.target, self._timeout_s = target, timeout_s or target.timeout
        self._channel: Any = None
        self._metadata = [(name.lower(), value) for name, value in target.headers.items()]

    @classmethod
    def for_load(cls, target: KServeTarget, inputs: TensorInputs, timeout_s: float) -> "TritonGrpc":
        return cls(together(target, inputs), timeout_s=timeout_s)

    def open(self) -> None:
        """Connects and, once in a process, asks for the model and builds the requests; BenchError where it can't."""
        self._channel = self._connect()
        with self._lock:
            key = self.target.model_dump_json()
            if key not in self._prepared:
                self._prepared.clear()  # of an earlier load
                self._prepared[key] = self._prepare()
            self._mine = self._prepared[key]
        self._infer = self._method("unary_unary", "ModelInfer")
        self._stream = self._method("stream_stream", "ModelStreamInfer")

    @property
    def model(self) -> TritonModel:
        return self._mine.model

    def request(self, item: Any) -> bytes:
        """The serialised ModelInferRequest for an item."""
        if self._mine.requests:
            number = item if isinstance(item, int) else item.number
            return self._mine.requests[number % len(self._mine.requests)]
        if not isinstance(item, InferItem) or not item.sequence:
            raise BenchError(f"model {self.model.name!r} takes sequences: its items are those of sequence()")
        inputs = self._mine.inputs[item.number % len(self._mine.inputs)]
        return _encode(self.target, inputs, sequence_parameters(item))

    def call(self, item: Any) -> Reply:
        data = self.request(item)
        try:
            if self.target.call == "stream":
                return self._read_stream(data)
            answer = self._infer(data, timeout=self._timeout_s, metadata=self._metadata)
        except self._grpc.RpcError as error:
            return refused(error)
        return self._read(answer)

    def check(self) -> None:
        """Make one request, and raise BenchError with the server's words when it is not answered well."""
        alone = InferItem(0, randbits(60) + 1, start=True, end=True)
        reply = self.call(alone if self.target.sequence_length else InferItem(0))
        if reply.error:
            raise BenchError(
                f"model {self.model.name!r} does not answer a request: {reply.error}: {reply.detail}",
                hint="look at shapes, values and inputs of the workload, and into the server's log",
            )

    def survey(self) -> Survey:
        """In a process of its own: gRPC does not promise to survive the fork of the load processes that follows."""
        fork = get_context("fork")
        ours, theirs = fork.Pipe(duplex=False)
        child = fork.Process(target=_survey, args=(self.target, theirs))
        child.start()
        theirs.close()
        try:
            found: Survey | BenchError = ours.recv()
        except EOFError:
            raise BenchError("the process that asks the server about itself died; its log says more") from None
        finally:
            child.join()
        if isinstance(found, BenchError):
            raise found
        return found

    def since(self, before: Mapping[str, float], answered: int) -> dict[str, float]:
        return since(self.statistics, before, answered)

    def statistics(self) -> dict[str, float]:
        """The server's counters for the model; `triton_model.between` makes times a request of two of them."""
        try:
            with self._connected():
                answer = self._ask("ModelStatistics", self.target.model, self.target.version)
        except _NotThereError:
            return {}  # other servers of the protocol keep none
        found = [wire.read_statistics(entry) for entry in wire.submessages(answer, 1)]
        found.sort(key=lambda entry: (len(entry["version"]), entry["version"]))
        return counters(found[-1]) if found else {}

    def server(self) -> str:
        """What the server calls itself, with its version."""
        answer = self._unary("ServerMetadata", b"")
        return " ".join(wire.text(part) for at in (1, 2) for part in wire.submessages(answer, at))

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
        """This driver's channel, or one for the moment."""
        opened = self._channel is None
        if opened:
            self._channel = self._connect()
        try:
            yield
        finally:
            if opened:
                self.close()

    def _method(self, kind: str, name: str) -> Callable[..., Any]:
        made: Callable[..., Any] = getattr(self._channel, kind)(_SERVICE + name)  # bytes in, bytes out
        return made

    def _prepare(self) -> Prepared:
        model = self._discover()
        inputs = [
            [(tensor.name, tensor.datatype, tensor.shape, tensor.encode()) for tensor in tensors]
            for tensors in input_sets(self.target, model)
        ]
        requests = [] if self.target.sequence_length else [_encode(self.target, each, {}) for each in inputs]
        return Prepared(model, inputs, requests)

    def _discover(self) -> TritonModel:
        name, version = self.target.model, self.target.version
        try:
            metadata = self._ask("ModelMetadata", name, version)
        except _NotThereError as problem:
            entries = wire.submessages(self._unary("RepositoryIndex", b""), 1)
            raise unknown_model(
                self.target.url, name, version, str(problem), [wire.read_index_entry(entry) for entry in entries]
            ) from None
        try:
            config = wire.read_config(wire.submessages(self._ask("ModelConfig", name, version), 1)[0])
        except _NotThereError:
            config = {}  # other servers of the protocol have no configuration to show
        return described(wire.read_metadata(metadata), config, version)

    def _ask(self, method: str, name: str, version: str) -> bytes:
        return self._unary(method, wire.delimited(1, name) + (wire.delimited(2, version) if version else b""))

    def _unary(self, method: str, message: bytes) -> bytes:
        try:
            call = self._method("unary_unary", method)
            answer: bytes = call(message, timeout=self.target.timeout, metadata=self._metadata)
        except self._grpc.RpcError as error:
            if error.code().name in ("UNAVAILABLE", "DEADLINE_EXCEEDED"):
                raise NoServer(
                    f"no Triton server answers at {self.target.url}: {error.details()}",
                    hint="start it, or correct target.url (gRPC is port 8001 by default, HTTP 8000)",
                ) from error
            raise _NotThereError(error.details()) from error
        return answer

    def _read(self, answer: bytes) -> Reply:
        try:
            problem = self._problem(wire.read_infer_response(answer))
        except wire.WireError as error:
            problem = str(error)
        if problem:
            return Reply(error="malformed", detail=problem[:300], size=len(answer))
        return Reply(size=len(answer), count=self.target.batch)

    def _read_stream(self, data: bytes) -> Reply:
        """One request on a stream of its own, which the server ends after its last answer."""
        answers = self._stream(iter((data,)), timeout=self._timeout_s, metadata=self._metadata)
        try:
            return self._read_answers(answers)
        finally:
            answers.cancel()  # where an error ended the reading; nothing after the end

    def _read_answers(self, answers: Iterable[bytes]) -> Reply:
        stamps: list[int] = []
        size = 0
        for answer in answers:
            stamp = monotonic_ns()
            size += len(answer)
            try:
                error, inside = wire.read_stream_response(answer)
                problem = "" if error else self._problem(inside)
            except wire.WireError as wrong:
                error, problem = "", str(wrong)
            if error or problem:
                kind = "server_error" if error else "malformed"
                return Reply(error=kind, detail=(error or problem)[:300], token_ns=stamps, size=size)
            stamps.append(stamp)
        if not stamps:
            return Reply(error="empty", detail="the stream ended without an answer")
        return Reply(token_ns=stamps, size=size, count=self.target.batch)

    def _problem(self, answer: wire.InferResponse) -> str:
        """What is wrong with an answer's tensors, or an empty string."""
        for output in answer.outputs:
            if output.data is None:
                return f"output {output.name} came without its raw contents"
            if wrong := check_size(output.datatype, output.shape, output.data):
                return f"output {output.name} has {wrong}"
        names = {output.name for output in answer.outputs}
        wanted = self.target.outputs or [spec.name for spec in self.model.outputs]
        missing = [name for name in wanted if name not in names]
        return f"output {missing[0]} is missing" if missing else ""


def _survey(target: TritonTarget, answer: Connection) -> None:
    driver = TritonGrpc(target)
    try:
        driver.open()
        before = driver.statistics()
        driver.check()
        driver.since(before, answered=1)  # else the load's first request would be this one
        answer.send(Survey(driver.model.facts(), driver.server(), len(driver._mine.inputs), driver.statistics()))
    except BenchError as problem:
        answer.send(problem)
    finally:
        driver.close()


class _NotThereError(Exception):
    """The server refused a question about a model; the message is its own."""


def refused(error: Any) -> Reply:
    """A failed call, under the name that the same failure has over HTTP."""
    code, words = error.code().name, str(error.details() or "")[:300]
    if code == "DEADLINE_EXCEEDED":
        return Reply(error="timeout", detail=words)
    if code == "UNAVAILABLE":
        lost = "reset" if "closed" in words.lower() or "reset" in words.lower() else "refused"
        return Reply(error=lost, detail=words)
    return Reply(error=f"http_{_AS_HTTP.get(code, 500)}", detail=f"{code}: {words}")


def _encode(
    target: TritonTarget,
    inputs: Sequence[tuple[str, str, tuple[int, ...], bytes]],
    more: Mapping[str, bool | int | float | str],
) -> bytes:
    return wire.infer_request(target.model, target.version, inputs, target.outputs, {**target.parameters, **more})
