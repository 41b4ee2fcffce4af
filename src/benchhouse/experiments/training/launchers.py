"""Launchers that start the ranks on all nodes of the trial: this process, one torchrun per node, or one Slurm step."""

import json
import os
import re
import shutil
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Literal, Protocol, Self

from pydantic import Field, model_validator

from benchhouse.experiments.training import rank
from benchhouse.experiments.training.rank import node_of_rank
from benchhouse.schema.experiment import Context
from benchhouse.schema.input_paths import InputPath
from benchhouse.schema.model import Model
from benchhouse.schema.quantities import Seconds

SEED = "BENCHHOUSE_SEED"
"""The variable with the seed of the trial for the ranks."""
_LOOPBACK = "127.0.0.1"
_NODES = "BENCHHOUSE_NODES"  # path of the file that lists the nodes of the trial, if they know each other by address
_OF_RANKS = re.compile(r"(LOCAL_|GROUP_|ROLE_)?(RANK|WORLD_SIZE)|MASTER_(ADDR|PORT)|TORCHELASTIC_\w+|ROLE_NAME")


class RankSettings(Model):
    """How many ranks there are and how they are started."""

    launcher: Literal["processes", "torchrun", "srun"] = Field(
        "processes",
        description="What starts the ranks: `processes`, one each, with torchrun's variables; `torchrun`, an agent on "
        "each node; `srun`, one step of the Slurm job.",
    )
    ranks: int = Field(1, ge=1, le=4096, description="Ranks of all nodes, as many on each.")
    ranks_per_node: int | None = Field(None, ge=1, le=1024, description="Ranks on each node, instead of `ranks`.")
    threads: int = Field(1, ge=1, description="`OMP_NUM_THREADS` of each rank.")
    affinity: Literal["none", "cores"] = Field(
        "none", description="`cores`: the ranks of a node share out its cores, and each keeps to its own."
    )
    max_restarts: int = Field(0, ge=0, le=100, description="How often all ranks begin again after one has failed.")
    timeout: Seconds | None = Field(
        None, gt=0, description="Of one attempt, with torchrun of all of them; the ranks are then ended."
    )
    cwd: InputPath = Field("", description="Folder to run in; `.` is that of the scenario, by default an empty one.")
    environment: dict[str, str] = Field(default_factory=dict, description="Variables added for all ranks.")
    rank_environment: dict[str, str] = Field(
        default_factory=dict,
        description="Variables of each rank: {rank}, {local_rank}, {world} and {node} in a value are its numbers.",
    )

    @model_validator(mode="after")
    def _one_count(self) -> Self:
        if self.ranks_per_node and self.ranks != type(self).model_fields["ranks"].default:
            raise ValueError("give either ranks or ranks_per_node, not both")
        return self


@dataclass(frozen=True)
class Launch:
    """What to start and where."""

    argv: Sequence[str]
    ranks: int
    environment: Mapping[str, str]
    logs: Path
    folder: Path  # for the order that `rank.py` reads and the files that it writes; visible to all nodes
    nodes: Sequence[str]  # this node first
    on_node: Callable[[str], list[str]]

    @property
    def per_node(self) -> int:
        return self.ranks // len(self.nodes)

    @property
    def launcher_log(self) -> Path:
        return self.logs / "launcher.log"

    @property
    def master(self) -> str:
        """The address at which the ranks meet."""
        return self.addresses.get(self.nodes[0], self.nodes[0]) if len(self.nodes) > 1 else _LOOPBACK

    @cached_property
    def addresses(self) -> dict[str, str]:
        """The addresses of the nodes by name; empty on Slurm, where nodes know each other by name."""
        path = os.environ.get(_NODES)
        listed = json.loads(Path(path).read_text(encoding="utf-8"))["nodes"] if path else ()
        return {node["name"]: node["address"] for node in listed}

    @property
    def program(self) -> list[str]:
        """The command of every rank."""
        return [sys.executable, "-I", "-S", rank.__file__, str(self.folder), *self.argv]

    def prefix(self, node: str) -> list[str]:
        return [] if node == self.nodes[0] else self.on_node(node)


@dataclass(frozen=True)
class LaunchCommand:
    """One process of this node, which starts ranks here or elsewhere."""

    argv: Sequence[str]
    variables: Mapping[str, str] = field(default_factory=dict)


class Launcher(Protocol):
    restarts: bool
    """Whether it restarts the ranks itself when one fails."""

    def commands(self, launch: Launch, attempt: int, port: int) -> list[LaunchCommand]:
        """Return the commands that start all ranks; `port` is free on the first node."""


class Processes:
    """One process per rank, with the variables that torchrun would set."""

    restarts = False

    def commands(self, launch: Launch, attempt: int, port: int) -> list[LaunchCommand]:
        commands = []
        for number in range(launch.ranks):
            node, local = divmod(number, launch.per_node)
            variables = {
                "RANK": number, "LOCAL_RANK": local, "WORLD_SIZE": launch.ranks, "LOCAL_WORLD_SIZE": launch.per_node,
                "GROUP_RANK": node, "GROUP_WORLD_SIZE": len(launch.nodes), "TORCHELASTIC_RUN_ID": "benchhouse",
            }  # fmt: skip
            variables |= _meeting(launch, attempt, port)
            words = [*launch.prefix(launch.nodes[node]), *launch.program]
            commands.append(LaunchCommand(words, {name: str(value) for name, value in variables.items()}))
        return commands


@dataclass(frozen=True)
class Torchrun:
    """One torchrun agent per node; the agents meet through the c10d rendezvous and restart the ranks themselves."""

    path: str
    max_restarts: int
    restarts = True

    def commands(self, launch: Launch, attempt: int, port: int) -> list[LaunchCommand]:
        # A single agent takes a free port itself; the store of several nodes must be at a port that all of them know.
        meets = f"{launch.master}:{port if len(launch.nodes) > 1 else 0}"
        options = [f"--nnodes={len(launch.nodes)}", f"--nproc-per-node={launch.per_node}"]
        options += ["--rdzv-backend=c10d", f"--rdzv-endpoint={meets}", f"--rdzv-id=benchhouse-{port}"]
        options += [f"--max-restarts={self.max_restarts}", f"--log-dir={launch.folder / 'torchrun'}", "--no-python"]
        return [
            LaunchCommand([*launch.prefix(node), self.path, *options, *self._of_node(launch, node), *launch.program])
            for node in launch.nodes
        ]

    def _of_node(self, launch: Launch, node: str) -> list[str]:
        """Set the address: the default is the host name, which the others or the host itself may not resolve."""
        if node not in launch.addresses:
            return []
        is_host = str(node == launch.nodes[0]).lower()
        return [f"--rdzv-conf=is_host={is_host}", f"--local-addr={launch.addresses[node]}"]


@dataclass(frozen=True)
class Srun:
    """One step of the Slurm job of the trial, with one task per rank; the variables of Slurm and of torch are set."""

    path: str
    own_cores: bool
    restarts = False

    def commands(self, launch: Launch, attempt: int, port: int) -> list[LaunchCommand]:
        count = len(launch.nodes)
        options = ["--overlap", "--overcommit", "--export=ALL", "--kill-on-bad-exit=1", "--chdir=/tmp"]
        options += [f"--nodes={count}", f"--ntasks={launch.ranks}", f"--ntasks-per-node={launch.per_node}"]
        options += [f"--nodelist={','.join(launch.nodes)}", "--distribution=block", "--label"]
        if self.own_cores:
            options.append("--cpu-bind=none")  # all tasks then see all cores of the job and divide them
        return [LaunchCommand([self.path, *options, *launch.program], _meeting(launch, attempt, port))]


def _meeting(launch: Launch, attempt: int, port: int) -> dict[str, str]:
    """Return the variables of an attempt. Each has its own port, because the previous store has ended."""
    return {"MASTER_ADDR": launch.master, "MASTER_PORT": str(port), "TORCHELASTIC_RESTART_COUNT": str(attempt)}


def prepare(
    argv: Sequence[str], torchrun: str, ranks: RankSettings, folder: Path, ctx: Context
) -> tuple[Launch, Launcher]:
    """Return what to start and its launcher, or fail the trial if either is missing. `folder` is for `rank.py`."""
    count = len(ctx.nodes)
    world = ranks.ranks_per_node * count if ranks.ranks_per_node else ranks.ranks
    if world % count:
        ctx.fail("uneven_ranks", f"{world} ranks are not as many on each of {count} nodes; set ranks_per_node instead")
    environment = {name: value for name, value in os.environ.items() if not _OF_RANKS.fullmatch(name)}
    environment |= {"OMP_NUM_THREADS": str(ranks.threads), SEED: str(ctx.seed), **ranks.environment}
    path = environment.get("PATH", os.defpath)
    program = shutil.which(argv[0], path=path)
    if program is None:
        ctx.fail("command_not_found", f"no program {argv[0]!r} where the trial runs")
    folder.mkdir()
    write_order(folder, ctx.artifacts, world // count, ranks)
    launch = Launch([program, *argv[1:]], world, environment, ctx.artifacts, folder, ctx.nodes, ctx.on_node)
    if ranks.launcher == "torchrun":
        found = find_torchrun(program, torchrun, path)
        if found is None:
            where = f"no program {torchrun!r}" if torchrun else f"no torchrun beside {program} or on the path"
            ctx.fail("no_torchrun", f"{where}; name it by target.torchrun, or use launcher: processes")
        return launch, Torchrun(found, ranks.max_restarts)
    if ranks.launcher == "srun":
        srun = shutil.which("srun", path=path)
        if srun is None or "SLURM_JOB_ID" not in environment:
            ctx.fail("no_srun", "launcher: srun needs a trial that is a Slurm job (executor: slurm), and srun in it")
        return launch, Srun(srun, ranks.affinity == "cores")
    return launch, Processes()


def write_order(folder: Path, logs: Path, per_node: int, ranks: RankSettings) -> None:
    """Write what `rank.py` cannot read from its environment."""
    order = {
        "logs": str(logs.resolve()), "cwd": ranks.cwd, "node": node_of_rank(), "ranks_per_node": per_node,
        "affinity": ranks.affinity, "rank_environment": ranks.rank_environment,
    }  # fmt: skip
    (folder / "order.json").write_text(json.dumps(order))


def find_torchrun(program: str, named: str, path: str) -> str | None:
    """Find the named torchrun; by default the one next to the program, as in a Python environment, or on the path."""
    if named:
        return shutil.which(named, path=path)
    return shutil.which(str(Path(program).with_name("torchrun"))) or shutil.which("torchrun", path=path)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])
