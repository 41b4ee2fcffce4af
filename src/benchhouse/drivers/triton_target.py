"""The target of a scenario with a Triton model, and the inputs of its requests."""

from collections.abc import Sequence
from pathlib import Path
from secrets import randbits
from typing import Any

from pydantic import ValidationError, model_validator

from benchhouse.drivers.triton_model import TritonModel
from benchhouse.drivers.triton_tensors import Making, Tensor, load, synthesise
from benchhouse.load.protocols.calls import CallResult
from benchhouse.load.protocols.kserve import InferItem, KServeTarget, Scalar, TensorInputs
from benchhouse.schema.errors import BenchError


class TritonTarget(KServeTarget, TensorInputs):
    """A model on a Triton server, or on another server of the KServe v2 protocol, and the inputs of each request."""

    @model_validator(mode="after")
    def _fits_together(self) -> "TritonTarget":
        if self.call != "infer" and self.sequence_length:
            raise ValueError("sequence_length is for call: infer")
        if self.shared_memory and self.sequence_length:
            raise ValueError("shared_memory and sequence_length don't go together")
        if self.call != "infer" and self.protocol == "http" and self.batch > 1:
            raise ValueError(f"{self.call} over HTTP takes one sample a request: leave out batch")
        return self

    def input_sets(self, model: TritonModel) -> list[list[Tensor]]:
        """Return the inputs of the requests, in order. Raise BenchError if target and model do not match."""
        self._check_fit(model)
        batch = self.batch if model.max_batch else None
        if self.inputs:
            return load(Path(self.inputs).expanduser(), model.inputs, batch)
        shapes: dict[str, Sequence[Sequence[int]]] = {}
        for name, given in self.shapes.items():
            several = [shape for shape in given if isinstance(shape, list)]
            shapes[name] = several or [[size for size in given if isinstance(size, int)]]
        making = Making(batch, shapes, self.values, self.seed, self.distinct, self.integer_max, self.text_length)
        return synthesise(model.inputs, making)

    def _check_fit(self, model: TritonModel) -> None:
        if self.batch > max(model.max_batch, 1):
            most = f"at most {model.max_batch} a request" if model.max_batch else "no batches (max_batch_size is 0)"
            raise BenchError(f"batch is {self.batch}, and model {model.name!r} takes {most}", hint="lower batch")
        if model.decoupled and self.call == "infer":
            raise BenchError(
                f"model {model.name!r} is decoupled: it may answer a request any number of times", hint="call: stream"
            )
        if model.sequences and not self.sequence_length:
            raise BenchError(f"model {model.name!r} takes sequences", hint="say how long they are: sequence_length: 10")
        if self.sequence_length and not model.sequences:
            raise BenchError(f"model {model.name!r} takes no sequences", hint="leave out sequence_length")
        names = [spec.name for spec in model.outputs]
        if unknown := [name for name in self.outputs if name not in names]:
            raise BenchError(f"outputs: model {model.name!r} has no {unknown[0]!r}; it has {', '.join(names)}")

    def missing_output(self, model: TritonModel, names: set[str]) -> str:
        """Return the error text if a requested output is not among `names`, or an empty string."""
        wanted = self.outputs or [spec.name for spec in model.outputs]
        return next((f"output {name} is missing" for name in wanted if name not in names), "")

    def sample_item(self) -> InferItem:
        """Return an item for a test request; for a model with sequences, a complete sequence."""
        return InferItem(0, randbits(60) + 1, start=True, end=True) if self.sequence_length else InferItem(0)


def together(target: KServeTarget, inputs: TensorInputs) -> TritonTarget:
    where = {name: getattr(target, name) for name in KServeTarget.model_fields}
    carried = {name: getattr(inputs, name) for name in TensorInputs.model_fields}
    return target_of(**where, **carried)


def target_of(**fields: Any) -> TritonTarget:
    """Create a target. Raise BenchError if its fields do not fit together."""
    try:
        return TritonTarget(**fields)
    except ValidationError as error:
        raise BenchError("; ".join(item["msg"].removeprefix("Value error, ") for item in error.errors())) from None


def refuse_bad_reply(model: TritonModel, reply: CallResult) -> None:
    if reply.error:
        raise BenchError(
            f"model {model.name!r} does not answer a request: {reply.error}: {reply.detail}",
            hint="check shapes, values and inputs of the workload, and the server's log",
        )


def sequence_parameters(item: InferItem) -> dict[str, Scalar]:
    """Return the parameters of an item that belongs to a sequence."""
    return {"sequence_id": item.sequence, "sequence_start": item.start, "sequence_end": item.end}
