"""Peak FLOPs per second of the devices of a training: declared, published, or measured there with matrix products."""

import json
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, model_validator

from benchhouse.experiments.training import programs
from benchhouse.experiments.training.launchers import Launch
from benchhouse.schema.model import Model
from benchhouse.schema.quantities import Seconds

_PROBE = Path(programs.__file__).parent / "matmul.py"
_START_S = 120.0  # to load torch, even from a cold network file system
_SHOWN = 300
Dtype = Literal["float32", "tf32", "bfloat16", "float16"]
_NVIDIA = "NVIDIA's datasheet, dense (half of the figure with sparsity)"
_AMD = "AMD's datasheet, dense"
PUBLISHED: dict[str, tuple[str, dict[Dtype, float]]] = {
    "V100 SXM2": (_NVIDIA, {"float16": 125.0, "float32": 15.7}),
    "A100": (_NVIDIA, {"bfloat16": 312.0, "float16": 312.0, "tf32": 156.0, "float32": 19.5}),
    "L40S": (_NVIDIA, {"bfloat16": 362.05, "float16": 362.05, "tf32": 183.0, "float32": 91.6}),
    "H100 SXM": (_NVIDIA, {"bfloat16": 989.4, "float16": 989.4, "tf32": 494.7, "float32": 67.0}),
    "H100 PCIe": (_NVIDIA, {"bfloat16": 756.0, "float16": 756.0, "tf32": 378.0, "float32": 51.0}),
    "H100 NVL": (_NVIDIA, {"bfloat16": 835.5, "float16": 835.5, "tf32": 417.5, "float32": 60.0}),
    "H200 SXM": (_NVIDIA, {"bfloat16": 989.4, "float16": 989.4, "tf32": 494.7, "float32": 67.0}),
    "H200 NVL": (_NVIDIA, {"bfloat16": 835.5, "float16": 835.5, "tf32": 417.5, "float32": 60.0}),
    "B200": (_NVIDIA, {"bfloat16": 2250.0, "float16": 2250.0, "tf32": 1100.0, "float32": 75.0}),
    "MI250X": (_AMD, {"bfloat16": 383.0, "float16": 383.0, "float32": 47.9}),
    "MI300X": (_AMD, {"bfloat16": 1307.4, "float16": 1307.4, "tf32": 653.7, "float32": 163.4}),
}
"""The source and TFLOP/s by dtype of each device. They are for the whole package: a rank on half an MI250X has half."""


class Peak(Model):
    """The peak for MFU and HFU. Both the given and the measured value are recorded; `use` selects one of them."""

    dtype: Dtype = Field("float32", description="Of the products that training computes.")
    flops: float | None = Field(None, gt=0, description="FLOPs a second of one rank's device, as you declare them.")
    device: str | None = Field(None, description=f"As published, one of {', '.join(PUBLISHED)}.")
    measure: bool = Field(False, description="Measure it by matrix products on the ranks' devices, after the training.")
    seconds: Seconds = Field(3.0, gt=0, le=600, description="How long the products are repeated.")
    use: Literal["given", "measured"] | None = Field(None, description="By default given, where it is.")

    @model_validator(mode="after")
    def _one_source(self) -> "Peak":
        if self.flops and self.device:
            raise ValueError("flops and device both give the peak: leave one out")
        if self.device:
            if self.device not in PUBLISHED:
                raise ValueError(f"no published peak of {self.device!r} is known ({', '.join(PUBLISHED)}): give flops")
            rates = PUBLISHED[self.device][1]
            if self.dtype not in rates:
                raise ValueError(f"no published peak of {self.device} for {self.dtype}: {', '.join(rates)}, or flops")
        if not (self.flops or self.device or self.measure):
            raise ValueError("give flops or device, or measure: true")
        if self.use == "measured" and not self.measure:
            raise ValueError("use: measured needs measure: true")
        if self.use == "given" and not (self.flops or self.device):
            raise ValueError("use: given needs flops or device")
        return self

    @property
    def given(self) -> tuple[float, str] | None:
        """The FLOPs per second of one device and their source; None if none are given."""
        if self.flops:
            return self.flops, "declared"
        if self.device:
            source, rates = PUBLISHED[self.device]
            return rates[self.dtype] * 1e12, f"{self.device}: {source}"
        return None

    @property
    def uses_measured(self) -> bool:
        return self.use == "measured" or self.given is None


@dataclass(frozen=True)
class MeasuredPeak:
    """The FLOPs per second that the ranks' devices reached, all at the same time."""

    mean: float  # FLOPs per second of one rank
    ranks: Sequence[Mapping[str, Any]]  # the answer of each rank, with its node


class NotMeasured(Exception):  # noqa: N818 - an outcome
    """The peak was not measured; the message gives the reason."""


def python_of(argv: Sequence[str], path: str) -> str | None:
    """Return the Python that a trainer runs under: the program itself, or the one next to `torchrun` or a similar
    program. None if there is none."""
    found = shutil.which(argv[0], path=path)
    if found is None or Path(found).name.startswith("python"):
        return found
    beside = Path(found).parent / "python"
    return str(beside) if beside.is_file() else None


def measure_peak(python: str, peak: Peak, launch: Launch) -> MeasuredPeak:
    """Measure with one process per rank on each node, all at the same time, so that they share cores as the ranks do.

    Raise NotMeasured if there is no result.
    """
    argv = [python, str(_PROBE), peak.dtype, f"{peak.seconds:g}", str(launch.per_node)]
    with ExitStack() as stack:
        probes = {node: stack.enter_context(_probe([*launch.prefix(node), *argv], launch)) for node in launch.nodes}
        answers = [
            {"node": node, **answer}
            for node, probe in probes.items()
            for answer in _answers(probe, node, launch.per_node, _START_S + peak.seconds)
        ]
    return MeasuredPeak(sum(answer["flops"] for answer in answers) / len(answers), answers)


@contextmanager
def _probe(argv: Sequence[str], launch: Launch) -> "Iterator[subprocess.Popen[bytes]]":
    pipe, nothing = subprocess.PIPE, subprocess.DEVNULL
    with subprocess.Popen(argv, env=launch.environment, stdin=nothing, stdout=pipe, stderr=pipe) as process:
        try:
            yield process
        finally:
            process.kill()


def _answers(process: "subprocess.Popen[bytes]", node: str, ranks: int, timeout_s: float) -> "Iterator[dict[str, Any]]":
    """Yield the answer of each rank of a node."""
    try:
        out, err = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired as error:
        raise NotMeasured(f"{node}: the matrix products took more than {timeout_s:g} s") from error
    if process.returncode:
        raise NotMeasured(f"{node}: {err.decode(errors='replace').strip()[-_SHOWN:]}")
    lines = out.splitlines()
    try:
        for line in lines[-ranks:]:
            answer = json.loads(line)
            yield {**answer, "flops": float(answer["flops"])}
    except (KeyError, TypeError, ValueError) as error:
        raise NotMeasured(f"{node}: the matrix products gave no result: {out[-_SHOWN:]!r}") from error
    if len(lines) < ranks:
        raise NotMeasured(f"{node}: {len(lines)} of {ranks} ranks gave a result: {out[-_SHOWN:]!r}")
