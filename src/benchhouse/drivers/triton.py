"""Driver `triton`: KServe v2 inference over HTTP with binary tensors, as in Triton Inference Server.

All preparation precedes the load: when the driver is created, it reads the model's tensors from the server, makes
inputs, and builds requests. `triton_grpc.py` does the same over gRPC.
"""

import json
import math
import mmap
import os
import re
from array import array
from collections.abc import Mapping
from pathlib import Path
from secrets import token_hex
from typing import Any, ClassVar, Literal
from urllib.parse import urlsplit

from benchhouse.drivers.refusals import excerpt, refusal
from benchhouse.drivers.triton_model import ServerHttp, error_text, model_path, since
from benchhouse.drivers.triton_target import TritonTarget, refuse_bad_reply, sequence_parameters, together
from benchhouse.drivers.triton_tensors import SIZES, Tensor, check_size
from benchhouse.load.answers import arrivals
from benchhouse.load.protocols.calls import CallResult, Exchange
from benchhouse.load.protocols.kserve import InferItem, KServeTarget, Scalar, Survey, TensorInputs
from benchhouse.schema.errors import BenchError
from benchhouse.schema.json_text import read_json
from benchhouse.schema.secrets import split_userinfo

__all__ = ["TritonHttp", "TritonTarget"]

_HEADER_LENGTH = re.compile(rb"\ninference-header-content-length:\s*(\d+)", re.IGNORECASE)
_MOST_SEEN, _LONGEST_SEEN = 1024, 4096
_SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - where Linux keeps named shared memory
_ALIGNMENT = 64


class TritonHttp:
    """An `HttpDriver` whose items are numbers or `InferItem`s. `close` releases shared memory."""

    transport: ClassVar[Literal["http"]] = "http"

    def __init__(self, target: TritonTarget) -> None:
        """Read the model from the server and build the requests. Raise BenchError if that fails."""
        self.target = target
        parts = urlsplit(split_userinfo(target.url)[0])
        self.url = f"{parts.scheme}://{parts.netloc}"
        self._server = ServerHttp(target.url, target.headers, target.timeout, verify_tls=target.verify_tls)
        self.model = self._server.model(target.model, target.version)
        self._path = parts.path.rstrip("/") + model_path(target.model, target.version)
        self._host = parts.netloc
        # by HTTP head: JSON head and length of an answer that was checked
        self._seen: dict[bytes, tuple[bytes, int]] = {}
        self._regions: list[SharedRegion] = []
        sets = self._sets()
        self.distinct = len(sets)
        if target.call == "infer":
            self._bodies = [[tensor.encode() for tensor in tensors] for tensors in sets]
            self._inputs = [list(map(_declare, *pair)) for pair in zip(sets, self._bodies, strict=True)]
            outputs: list[dict[str, Any]] = [
                {"name": name, "parameters": {"binary_data": True}} for name in target.outputs
            ]
            self._outputs = [outputs] * self.distinct
            if target.shared_memory:
                self._share()
            self._requests = [] if target.sequence_length else [self._infer(n, {}) for n in range(self.distinct)]
        else:
            plain = [{tensor.name: tensor.plain() for tensor in tensors} for tensors in sets]
            self._requests = [self._generate(body | target.parameters) for body in plain]

    @classmethod
    def for_load(cls, target: KServeTarget, inputs: TensorInputs, timeout_s: float) -> "TritonHttp":
        """Create the driver of a load, whose engine applies `timeout_s` to the calls."""
        return cls(together(target, inputs))

    def request(self, item: Any) -> bytes:
        if self._requests:
            number = item if isinstance(item, int) else item.number
            return self._requests[number % self.distinct]
        if not isinstance(item, InferItem) or not item.sequence:
            raise BenchError(f"model {self.model.name!r} takes sequences: its items are those of sequence()")
        return self._infer(item.number % self.distinct, sequence_parameters(item))

    def read(self, exchange: Exchange) -> CallResult:
        if exchange.status != 200:
            return refusal(exchange, _message(exchange.body))
        if self.target.call == "infer":
            return self._read_tensors(exchange)
        return self._read_stream(exchange) if self.target.call == "stream" else self._read_json(exchange)

    def check(self) -> None:
        """Make one request, and raise BenchError with the server's message if the answer is not valid."""
        refuse_bad_reply(self.model, self.read(self._exchange(self.request(self._sample()))))

    def survey(self) -> Survey:
        before = self.statistics()
        self.check()
        self.since(before, answered=1)  # otherwise the load would count this request as its first
        return Survey(self.model.facts(), self._server.name(), self.distinct, self.statistics())

    def since(self, before: Mapping[str, float], answered: int) -> dict[str, float]:
        return since(self.statistics, before, answered)

    def statistics(self) -> dict[str, float]:
        """Return the server's counters for the model; `triton_model.between` computes times from two of them."""
        return self._server.statistics(self.target.model, self.model.version)

    def close(self) -> None:
        for region in self._regions:
            region.close()
        self._regions = []

    def _sample(self) -> Any:
        return self.target.sample_item()

    def _sets(self) -> list[list[Tensor]]:
        return self.target.input_sets(self.model)

    def _infer(self, number: int, more: Mapping[str, Scalar]) -> bytes:
        head: dict[str, Any] = {"inputs": self._inputs[number]}
        if self._outputs[number]:
            head["outputs"] = self._outputs[number]
        head["parameters"] = {"binary_data_output": True, **self.target.parameters, **more}
        text = json.dumps(head, separators=(",", ":")).encode()
        extra = f"Inference-Header-Content-Length: {len(text)}\r\n"
        return self._post("infer", text + b"".join(self._bodies[number]), "application/octet-stream", extra)

    def _generate(self, body: Mapping[str, Any]) -> bytes:
        verb = "generate" if self.target.call == "generate" else "generate_stream"
        return self._post(verb, json.dumps(body).encode(), "application/json")

    def _post(self, verb: str, body: bytes, kind: str, extra: str = "") -> bytes:
        headers = "".join(f"{name}: {value}\r\n" for name, value in self.target.headers.items())
        head = (
            f"POST {self._path}/{verb} HTTP/1.1\r\nHost: {self._host}\r\nContent-Type: {kind}\r\n"
            f"Content-Length: {len(body)}\r\n{extra}{headers}\r\n"
        )
        return head.encode("latin-1") + body

    def _exchange(self, request: bytes) -> Exchange:
        head, _, body = request.partition(b"\r\n\r\n")
        lines = [line.decode("latin-1").partition(": ") for line in head.split(b"\r\n")[1:]]
        verb = head.split(b" ")[1].decode().rpartition("/")[2]
        headers = {name: value for name, _, value in lines if name not in ("Host", "Content-Length")}
        path = f"{model_path(self.target.model, self.target.version)}/{verb}"
        answer = self._server.send(path, body, headers)
        lines_back = "HTTP/1.1\n" + "".join(f"{name}: {value}\n" for name, value in answer.headers.items())
        marks = array("q", (len(answer.body), 0, 0))
        return Exchange(0, answer.status, lines_back.encode("latin-1", "replace"), answer.body, marks)

    def _share(self) -> None:
        """Put inputs into shared memory, with room for outputs as large as those of one request per input."""
        rooms = [self._room(number) for number in range(self.distinct)]
        names = [*self.target.outputs] or [spec.name for spec in self.model.outputs]
        source = SharedRegion(self._server, sum(_aligned(len(data)) for bodies in self._bodies for data in bodies))
        self._regions = [source]
        sink = SharedRegion(self._server, sum(_aligned(room[name]) for room in rooms for name in names))
        self._regions = [source, sink]
        at, free = 0, 0
        self._outputs = []
        self._rooms = {(name, room[name]) for room in rooms for name in names}
        for number, bodies in enumerate(self._bodies):
            for declared, data in zip(self._inputs[number], bodies, strict=True):
                source.memory[at : at + len(data)] = data
                declared["parameters"] = source.parameters(at, len(data))
                at += _aligned(len(data))
            self._outputs.append([])
            for name in names:
                size = rooms[number][name]
                self._outputs[-1].append({"name": name, "parameters": sink.parameters(free, size)})
                free += _aligned(size)
            self._bodies[number] = []

    def _room(self, number: int) -> dict[str, int]:
        """Make request `number` and return the bytes of each of its outputs."""
        exchange = self._exchange(self._infer(number, {}))
        refuse_bad_reply(self.model, self.read(exchange))
        head = read_json(exchange.body[: _head_length(exchange)])
        return {item["name"]: item.get("parameters", {}).get("binary_data_size", 0) for item in head["outputs"]}

    def _read_tensors(self, exchange: Exchange) -> CallResult:
        """Read an answer with tensors. One with the head and length of a checked answer differs only in numbers."""
        body = exchange.body
        size = len(body)
        seen = self._seen.get(exchange.head)
        if seen and size == seen[1] and body.startswith(seen[0]):
            return CallResult(size=size, count=self.target.batch)
        length = _head_length(exchange)
        head = body[:length]
        try:
            problem = self._problem(read_json(head), memoryview(body)[length:])
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            problem = f"the head of the answer: {type(error).__name__}: {error}"
        if problem:
            return CallResult(error="malformed", detail=problem[:300], size=size)
        if length < _LONGEST_SEEN and b'"BYTES"' not in head:  # the lengths of texts are among the numbers
            if len(self._seen) >= _MOST_SEEN:
                self._seen.clear()
            self._seen[exchange.head] = head, size
        return CallResult(size=size, count=self.target.batch)

    def _problem(self, head: dict[str, Any], data: memoryview) -> str:
        """Return what is wrong with an answer's tensors, or an empty string."""
        at = 0
        for output in head["outputs"]:
            name = output["name"]
            if "data" in output:
                continue  # as JSON, from a server without binary tensors
            if self._regions:
                taken = math.prod(output["shape"]) * SIZES.get(output["datatype"], 0)
                if taken and (name, taken) not in self._rooms:
                    return f"output {name} takes {taken} bytes, not what there is room for in shared memory"
                continue
            size = output.get("parameters", {})["binary_data_size"]
            if wrong := check_size(output["datatype"], output["shape"], data[at : at + size]):
                return f"output {name} has {wrong}"
            at += size
        if at != len(data):
            return f"{len(data)} bytes of tensors, and the outputs take {at}"
        return self.target.missing_output(self.model, {output["name"] for output in head["outputs"]})

    def _read_json(self, exchange: Exchange) -> CallResult:
        try:
            answer = read_json(exchange.body)
        except ValueError as error:
            return CallResult(error="malformed", detail=f"not JSON: {error}", size=len(exchange.body))
        if self._is_error(answer):
            return CallResult(error="server_error", detail=error_text(answer), size=len(exchange.body))
        text = self._text(answer)
        if text == "":
            return CallResult(error="empty", detail="the answer holds no text", size=len(exchange.body))
        return CallResult(size=len(exchange.body), text=text or "")

    def _read_stream(self, exchange: Exchange) -> CallResult:
        body = exchange.body
        ends = array("q")
        texts: list[str] = []
        at = 0
        while at < len(body):
            end = body.find(b"\n\n", at)
            event = body[at:end].strip() if end >= 0 else b""
            at = end + 2
            if not event.startswith(b"data:"):
                return CallResult(error="malformed", detail=f"not an event: {body[-100:]!r}", size=len(body))
            try:
                answer = read_json(event[5:])
            except ValueError as error:
                return CallResult(error="malformed", detail=f"an event is not JSON: {error}", size=len(body))
            if self._is_error(answer):
                stamps = arrivals(ends, exchange.marks)[0] if ends else ()
                return CallResult(error="server_error", detail=error_text(answer), token_ns=stamps, size=len(body))
            if (text := self._text(answer)) != "":
                ends.append(at)
                texts.append(text or "")
        if not ends:
            return CallResult(error="empty", detail="the stream ended without any output")
        stamps, unsure = arrivals(ends, exchange.marks)
        return CallResult(token_ns=stamps, unsure_ns=unsure, size=len(body), text="".join(texts))

    def _text(self, answer: Mapping[str, Any]) -> str | None:
        """Return the text of an answer, empty if it has none; None if answers need no text."""
        return None

    def _is_error(self, answer: Any) -> bool:
        if not isinstance(answer, dict):
            return True
        return "error" in answer and not any(spec.name == "error" for spec in self.model.outputs)


def _declare(tensor: Tensor, data: bytes) -> dict[str, Any]:
    size = {"binary_data_size": len(data)}
    return {"name": tensor.name, "shape": list(tensor.shape), "datatype": tensor.datatype, "parameters": size}


def _head_length(exchange: Exchange) -> int:
    """Return the bytes of the JSON before the tensors; the length of the answer if the server does not state it."""
    header = _HEADER_LENGTH.search(exchange.head)
    return int(header[1]) if header else len(exchange.body)


def _message(body: bytes) -> str:
    try:
        return error_text(read_json(body))
    except ValueError:
        return excerpt(body)


class SharedRegion:
    """Shared memory of at least `size` bytes between this machine and a server on it. `close` unregisters it.

    Its file is deleted as soon as the server has mapped it, so that a killed process leaves none behind. The server
    drops its mapping on `close` or when it ends.
    """

    def __init__(self, server: ServerHttp, size: int) -> None:
        self.name = f"benchhouse_{os.getpid()}_{token_hex(4)}"
        self._server, self._owner = server, os.getpid()
        path = _SHARED_MEMORY / self.name
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        except OSError as error:
            raise BenchError(f"shared memory can't be made here: {error}", hint="shared_memory: false") from error
        try:
            os.ftruncate(descriptor, max(size, 1))
            self.memory = mmap.mmap(descriptor, max(size, 1))
            body = {"key": f"/{self.name}", "offset": 0, "byte_size": max(size, 1)}
            status, answer = server.ask(f"/v2/systemsharedmemory/region/{self.name}/register", body)
        finally:
            os.close(descriptor)
            path.unlink()
        if status != 200:
            raise BenchError(
                f"the server at {server.url} refuses shared memory: {error_text(answer)}",
                hint="it must run on this machine with the same /dev/shm, and newer ones need --allow-client-shm=true",
            )

    def parameters(self, offset: int, size: int) -> dict[str, str | int]:
        """Return the parameters of a tensor in this region, for a request."""
        return {"shared_memory_region": self.name, "shared_memory_offset": offset, "shared_memory_byte_size": size}

    def close(self) -> None:
        if os.getpid() == self._owner and self.name:  # a forked load process has the same object
            self._server.ask(f"/v2/systemsharedmemory/region/{self.name}/unregister", b"")
            self.name = ""
            self.memory.close()


def _aligned(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT
