"""Sizes of cloud instance types, by name; a site's own table takes precedence."""

import re
from collections.abc import Mapping

from pydantic import Field

from benchhouse.schema.model import Model
from benchhouse.schema.quantities import Memory

_GIB = 2**30
_NAME = re.compile(r"([a-z0-9-]+)\.(large|(\d*)xlarge)")
# GiB per core; `large` has two cores, `xlarge` four, `Nxlarge` N times four.
_GIB_A_CORE = {
    "c4": 1.875, "c5": 2.0, "c5d": 2.0, "c5n": 2.625, "c6i": 2.0, "c7i": 2.0, "m4": 4.0, "m5": 4.0, "m5d": 4.0,
    "m6i": 4.0, "m7i": 4.0, "r4": 7.625, "r5": 8.0, "r6i": 8.0, "inf1": 2.0,
}  # fmt: skip
_OTHERS = {  # cores, GiB, GPUs
    "t2.micro": (1, 1, 0), "t2.small": (1, 2, 0), "t2.medium": (2, 4, 0), "t2.large": (2, 8, 0),
    "t3.micro": (2, 1, 0), "t3.small": (2, 2, 0), "t3.medium": (2, 4, 0), "t3.large": (2, 8, 0),
    "t3.xlarge": (4, 16, 0), "t3.2xlarge": (8, 32, 0),
    "p2.xlarge": (4, 61, 1), "p2.8xlarge": (32, 488, 8), "p2.16xlarge": (64, 732, 16),
    "p3.2xlarge": (8, 61, 1), "p3.8xlarge": (32, 244, 4), "p3.16xlarge": (64, 488, 8), "p3dn.24xlarge": (96, 768, 8),
    "p4d.24xlarge": (96, 1152, 8), "p4de.24xlarge": (96, 1152, 8), "p5.48xlarge": (192, 2048, 8),
    "p5e.48xlarge": (192, 2048, 8),
    "g3.4xlarge": (16, 122, 1), "g3.8xlarge": (32, 244, 2), "g3.16xlarge": (64, 488, 4),
    "g4dn.xlarge": (4, 16, 1), "g4dn.2xlarge": (8, 32, 1), "g4dn.4xlarge": (16, 64, 1), "g4dn.8xlarge": (32, 128, 1),
    "g4dn.12xlarge": (48, 192, 4), "g4dn.16xlarge": (64, 256, 1),
    "g5.xlarge": (4, 16, 1), "g5.2xlarge": (8, 32, 1), "g5.4xlarge": (16, 64, 1), "g5.8xlarge": (32, 128, 1),
    "g5.12xlarge": (48, 192, 4), "g5.24xlarge": (96, 384, 4), "g5.48xlarge": (192, 768, 8),
    "g6.xlarge": (4, 16, 1), "g6.2xlarge": (8, 32, 1), "g6.4xlarge": (16, 64, 1), "g6.8xlarge": (32, 128, 1),
    "g6.12xlarge": (48, 192, 4), "g6.48xlarge": (192, 768, 8),
}  # fmt: skip


class InstanceType(Model, strict=True):
    """The resources of an instance type, which a trial on it requests."""

    cpus: int = Field(1, ge=1, description="Cores.")
    memory: Memory | None = Field(None, gt=0, description="Memory, such as 16GiB.")
    gpus: int = Field(0, ge=0, description="GPUs.")


def find_instance_type(name: str, own: Mapping[str, InstanceType]) -> InstanceType | None:
    """Return the instance type of that name, also with SageMaker's prefix `ml.`; None if it is not known."""
    if name in own:
        return own[name]
    name = name.removeprefix("ml.")
    if name in own:
        return own[name]
    if name in _OTHERS:
        cores, gib, gpus = _OTHERS[name]
        return InstanceType(cpus=cores, memory=gib * _GIB, gpus=gpus)
    match = _NAME.fullmatch(name)
    if match is None or match[1] not in _GIB_A_CORE:
        return None
    cores = 2 if match[2] == "large" else 4 * int(match[3] or 1)
    return InstanceType(cpus=cores, memory=round(cores * _GIB_A_CORE[match[1]] * _GIB))


def instance_names(own: Mapping[str, InstanceType]) -> list[str]:
    """Return the known names, for suggestions."""
    return [*own, *_OTHERS, *(f"{family}.{size}" for family in _GIB_A_CORE for size in ("large", "xlarge", "2xlarge"))]
