"""The few protobuf messages that inference over gRPC needs, written and read by hand: no generated code, no protobuf.

Field numbers are those of the KServe v2 and Triton definition of `inference.GRPCInferenceService`.
"""

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5
_MASK = (1 << 64) - 1


class WireError(ValueError):
    """The bytes are not a protobuf message."""


def varint(value: int) -> bytes:
    """Negative numbers take ten bytes, as protobuf's int64 does."""
    value &= _MASK
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def number(at: int, value: int) -> bytes:
    return varint(at << 3 | _VARINT) + varint(value)


def delimited(at: int, data: bytes | str) -> bytes:
    raw = data.encode() if isinstance(data, str) else data
    return varint(at << 3 | _LENGTH) + varint(len(raw)) + raw


def parameters(at: int, values: Mapping[str, bool | int | float | str]) -> bytes:
    """A map of InferParameter: bool 1, int64 2, string 3, double 4."""
    entries = []
    for name, value in values.items():
        if isinstance(value, bool):
            inner = number(1, int(value))
        elif isinstance(value, int):
            inner = number(2, value)
        elif isinstance(value, str):
            inner = delimited(3, value)
        else:
            inner = varint(4 << 3 | _FIXED64) + struct.pack("<d", value)
        entries.append(delimited(at, delimited(1, name) + delimited(2, inner)))
    return b"".join(entries)


def infer_request(
    model: str,
    version: str,
    inputs: Iterable[tuple[str, str, Sequence[int], bytes]],
    outputs: Iterable[str] = (),
    values: Mapping[str, bool | int | float | str] | None = None,
) -> bytes:
    """A ModelInferRequest with raw contents; an input is (name, datatype, shape, data)."""
    tensors, contents = [], []
    for name, datatype, shape, data in inputs:
        sizes = b"".join(varint(size) for size in shape)
        packed = delimited(3, sizes) if sizes else b""
        tensors.append(delimited(5, delimited(1, name) + delimited(2, datatype) + packed))
        contents.append(delimited(7, data))
    head = delimited(1, model) + (delimited(2, version) if version else b"")
    asked = b"".join(delimited(6, delimited(1, name)) for name in outputs)
    return head + parameters(4, values or {}) + b"".join(tensors) + asked + b"".join(contents)


def fields(message: bytes | memoryview) -> Iterator[tuple[int, int | memoryview]]:
    """(field number, value) in the order of the message: an integer, or the bytes of anything else."""
    view = memoryview(message)
    at, end = 0, len(view)
    while at < end:
        key, at = _varint_at(view, at)
        kind = key & 7
        if kind == _VARINT:
            value, at = _varint_at(view, at)
            yield key >> 3, value
            continue
        if kind == _LENGTH:
            size, at = _varint_at(view, at)
        elif kind in (_FIXED32, _FIXED64):
            size = 4 if kind == _FIXED32 else 8
        else:
            raise WireError(f"wire type {kind} at byte {at}")
        if at + size > end:
            raise WireError(f"a field of {size} bytes, and {end - at} are left")
        yield key >> 3, view[at : at + size]
        at += size


def _varint_at(view: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(view):
        byte = view[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > 63:
            break
    raise WireError("a number without an end")


def text(value: int | memoryview) -> str:
    return _bytes(value).tobytes().decode("utf-8", "replace")


def integers(values: Iterable[int | memoryview]) -> list[int]:
    """A repeated int64, packed or one by one."""
    found: list[int] = []
    for value in values:
        if isinstance(value, int):
            found.append(value)
            continue
        at = 0
        while at < len(value):
            each, at = _varint_at(value, at)
            found.append(each)
    return [each - (1 << 64) if each >> 63 else each for each in found]


def submessages(message: bytes | memoryview, at: int) -> list[memoryview]:
    return [_bytes(value) for found, value in fields(message) if found == at]


def first(message: bytes | memoryview, at: int) -> int | memoryview | None:
    return next((value for found, value in fields(message) if found == at), None)


def _bytes(value: int | memoryview) -> memoryview:
    if isinstance(value, int):
        raise WireError("a number where bytes belong")
    return value


@dataclass(slots=True)
class Output:
    """One tensor of an answer; `data` is None where the server sent no raw contents for it."""

    name: str
    datatype: str
    shape: list[int]
    data: memoryview | None = None


@dataclass(slots=True)
class InferResponse:
    """What is used of a ModelInferResponse."""

    model: str = ""
    version: str = ""
    outputs: list[Output] = field(default_factory=list)


def read_infer_response(message: bytes | memoryview) -> InferResponse:
    answer, contents = InferResponse(), []
    for at, value in fields(message):
        if at == 6:
            contents.append(_bytes(value))
        elif at == 5:
            answer.outputs.append(_output(_bytes(value)))
        elif at == 1:
            answer.model = text(value)
        elif at == 2:
            answer.version = text(value)
    for output, data in zip(answer.outputs, contents, strict=False):
        output.data = data
    if len(contents) > len(answer.outputs):
        raise WireError(f"{len(contents)} contents for {len(answer.outputs)} outputs")
    return answer


def read_stream_response(message: bytes | memoryview) -> tuple[str, InferResponse]:
    """The error message of a ModelStreamInferResponse, empty when all is well, and the answer inside."""
    error, answer = "", InferResponse()
    for at, value in fields(message):
        if at == 1:
            error = text(value)
        elif at == 2:
            answer = read_infer_response(_bytes(value))
    return error, answer


def _output(message: memoryview) -> Output:
    output, sizes = Output("", "", []), []
    for at, value in fields(message):
        if at == 1:
            output.name = text(value)
        elif at == 2:
            output.datatype = text(value)
        elif at == 3:
            sizes.append(value)
    output.shape = integers(sizes)
    return output


def read_index_entry(entry: memoryview) -> dict[str, str]:
    """One model of a RepositoryIndexResponse, as the HTTP side has it in JSON."""
    names = {1: "name", 2: "version", 3: "state", 4: "reason"}
    return {names[at]: text(value) for at, value in fields(entry) if at in names}


def read_metadata(message: bytes) -> dict[str, Any]:
    """A ModelMetadataResponse, as the HTTP side has it in JSON."""

    def tensors(where: int) -> list[dict[str, Any]]:
        found = []
        for entry in submessages(message, where):
            sizes = integers(value for at, value in fields(entry) if at == 3)
            name, datatype = (text(value) for at, value in fields(entry) if at in (1, 2))
            found.append({"name": name, "datatype": datatype, "shape": sizes})
        return found

    return {
        "name": text(first(message, 1) or memoryview(b"")),
        "versions": [text(value) for value in submessages(message, 2)],
        "platform": text(first(message, 3) or memoryview(b"")),
        "inputs": tensors(4),
        "outputs": tensors(5),
    }


def read_config(message: memoryview) -> dict[str, Any]:
    """What is used of a ModelConfig, as the HTTP side has it in JSON."""
    policy = submessages(message, 19)
    found: dict[str, Any] = {
        "max_batch_size": first(message, 4) or 0,
        "backend": text(first(message, 17) or memoryview(b"")),
        "model_transaction_policy": {"decoupled": bool(policy and first(policy[0], 1))},
        "input": [
            {"name": text(first(entry, 1) or memoryview(b"")), "optional": bool(first(entry, 8))}
            for entry in submessages(message, 5)
        ],
    }
    if submessages(message, 13):
        found["sequence_batching"] = {}
    return found


def read_statistics(message: memoryview) -> dict[str, Any]:
    """A ModelStatistics, as the HTTP side has it in JSON."""
    names = {1: "success", 2: "fail", 3: "queue", 4: "compute_input", 5: "compute_infer", 6: "compute_output",
             7: "cache_hit"}  # fmt: skip
    stats: dict[str, dict[str, Any]] = {}
    for part in submessages(message, 6):
        for at, value in fields(part):
            if at in names and isinstance(value, memoryview):
                stats[names[at]] = {"count": first(value, 1) or 0, "ns": first(value, 2) or 0}
    return {
        "version": text(first(message, 2) or memoryview(b"")),
        "inference_count": first(message, 4) or 0,
        "execution_count": first(message, 5) or 0,
        "inference_stats": stats,
    }
