"""Placement of the ranks of a training, and their settings: facts that are recorded with its figures."""

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from math import fsum
from pathlib import Path

from benchhouse.experiments.training.figures import WholeStep
from benchhouse.experiments.training.launch import RankProcess, Training
from benchhouse.experiments.training.launchers import Launch, RankSettings
from benchhouse.experiments.training.rank import node_of_rank
from benchhouse.experiments.training.steps import TrainingStep
from benchhouse.schema.experiment import Context
from benchhouse.schema.secrets import is_secret_variable

_SETTINGS = re.compile(r"(NCCL|GLOO|TORCH|PYTORCH|CUDA|UCX|FI|MKL|KMP|OMP)_\w+|BENCHHOUSE_SEED")
_OF_A_RANK = ("rank", "local_rank", "node", "pid", "cores", "device", "cpu_s", "waited_for_cpu_s")
_OWN_CORE = 0.8  # of the time in which a rank could work, at least
_JUDGED_S = 0.5  # of such time; less shows nothing


def record_placement(training: Training, launch: Launch, ranks: RankSettings, ctx: Context) -> None:
    """Record where each rank of the last attempt ran, as `ranks` in the metadata."""
    if training.ports_taken:
        ctx.warn("port_taken", f"the port to meet at was taken meanwhile; begun again {training.ports_taken} times")
    places = [{name: rank.facts.get(name) for name in _OF_A_RANK} for rank in training.last]
    ctx.metadata(
        launcher=ranks.launcher,
        nodes=list(launch.nodes),
        ranks=[place | {"cores": as_ranges(place["cores"] or [])} for place in places],
        environment=settings(launch.environment),
    )
    if files := nccl_files(launch.environment):
        ctx.metadata(nccl_files=files)


def settings(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that change how ranks compute and communicate."""
    names = (name for name in sorted(environment) if _SETTINGS.fullmatch(name) and not is_secret_variable(name))
    return {name: environment[name] for name in names}


def nccl_files(environment: Mapping[str, str], site: Path = Path("/etc/nccl.conf")) -> dict[str, dict[str, str]]:
    """Return the settings files that NCCL reads on this node. Its variables have priority over the user's file, and
    this over the site's."""
    own = environment.get("NCCL_CONF_FILE") or f"{environment.get('HOME', '')}/.nccl.conf"
    files = {}
    for path in (Path(own), site):
        with suppress(OSError):
            lines = (line.partition("#")[0] for line in path.read_text(errors="replace").splitlines())
            pairs = (line.partition("=")[::2] for line in lines if "=" in line)
            files[str(path)] = settings({name.strip(): value.strip() for name, value in pairs})
    return files


def check_world(steps: Iterable[TrainingStep], asked: int, ctx: Context) -> int:
    """Return the number of ranks with records; it exceeds the number started if the program starts some itself."""
    seen: set[int] = set()
    worlds: set[int] = set()
    for step in steps:
        seen.add(step.rank)
        worlds.add(int(step.amounts.get("world", asked)))
    if len(seen) > asked:
        said = f"records are of {len(seen)} ranks, and {asked} were started: all of them count"
        ctx.warn("world_differs", f"{said}; where the program starts ranks itself, that is meant")
    elif worlds - {asked}:
        told = ", ".join(map(str, sorted(worlds)))
        ctx.warn(
            "world_differs", f"{asked} ranks were started, and records tell a world of {told}: are they one training?"
        )
    return max(asked, len(seen))


def check_cores(
    steps: Sequence[WholeStep], ranks: Sequence[RankProcess], launch: Launch, threads: int, ctx: Context
) -> None:
    """Mark the figures as invalid if ranks compete for cores, because they then measure the competition.

    The time that a rank had a core is its own `cpu_s` outside of its waits, otherwise the kernel's for its first
    thread.
    """
    cores = len({core for rank in ranks if rank.node == node_of_rank() for core in rank.facts.get("cores", ())})
    if launch.per_node * threads <= cores:
        return
    what = f"{launch.per_node} ranks of {threads} threads share {cores} cores"
    ctx.warn("cores_shared", what)
    own = [step for whole in steps for step in whole.ranks]
    if own and all("cpu_s" in step.amounts for step in own):
        waits = ("comm_s", "data_s")
        busy_s = fsum(step.took_s - fsum(step.amounts.get(name, 0.0) for name in waits) for step in own)
        had_s = fsum(step.amounts["cpu_s"] for step in own)
    else:
        had_s = fsum(rank.facts.get("cpu_s") or 0.0 for rank in ranks)
        busy_s = had_s + fsum(rank.facts.get("waited_for_cpu_s") or 0.0 for rank in ranks)
    if busy_s >= _JUDGED_S and had_s < _OWN_CORE * busy_s:
        had = f"had one for {had_s / busy_s:.0%} of the time in which they could work"
        cure = "start fewer ranks, or ask for more cores"
        ctx.invalid("cores_fought", f"{what}, and {had}, less than {_OWN_CORE:.0%}: {cure}")


def as_ranges(numbers: list[int]) -> str:
    """Format 0, 1, 2, 5 as `0-2,5`."""
    spans: list[list[int]] = []
    for number in sorted(numbers):
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in spans)
