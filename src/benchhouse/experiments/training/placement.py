"""Where the ranks of a training were, and under which settings: facts that are kept with its figures."""

import re
from collections.abc import Mapping

from benchhouse.experiments.training.launch import Training
from benchhouse.experiments.training.launchers import Launch, Ranks
from benchhouse.schema.experiment import Context
from benchhouse.schema.secrets import is_secret_variable

_SETTINGS = re.compile(r"(NCCL|GLOO|TORCH|PYTORCH|CUDA|UCX|FI|MKL|KMP|OMP)_\w+|BENCHHOUSE_SEED")
_OF_A_RANK = ("rank", "local_rank", "node", "pid", "cores", "device")


def tell_placement(training: Training, launch: Launch, ranks: Ranks, ctx: Context) -> None:
    """Of the last attempt; `ranks` in the metadata says of each where it was."""
    if training.ports_taken:
        ctx.warn("port_taken", f"the port to meet at was taken meanwhile; begun again {training.ports_taken} times")
    places = [{name: rank.facts.get(name) for name in _OF_A_RANK} for rank in training.last]
    ctx.metadata(
        launcher=ranks.launcher,
        nodes=list(launch.nodes),
        ranks=[place | {"cores": as_ranges(place["cores"] or [])} for place in places],
        environment=settings(launch.environment),
    )


def settings(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that change how ranks compute and communicate."""
    names = (name for name in sorted(environment) if _SETTINGS.fullmatch(name) and not is_secret_variable(name))
    return {name: environment[name] for name in names}


def as_ranges(numbers: list[int]) -> str:
    """0, 1, 2, 5 as `0-2,5`."""
    spans: list[list[int]] = []
    for number in sorted(numbers):
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in spans)
