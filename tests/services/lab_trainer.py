"""A small GPT on synthetic tokens, trained by its ranks, with faults that a test plants. It emits a record a step.

Runs under torchrun, with Slurm's variables, or as ranks that were given torchrun's variables. Data and weights depend
on the seed, the rank and the step alone, so that a training that begins again does the same steps.
"""

import argparse
import datetime
import os
import signal
import sys
import time
from pathlib import Path

import torch
from torch import distributed, nn

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "src"))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples" / "training"))
from gpt import Gpt

from benchhouse_client import emit

FAULTS = ("kill", "exit", "hang", "slow", "data", "oom", "disk-full", "leave", "node")


class Momentum:
    """The optimizer of a model, which follows the mean gradient of all ranks.

    torch's own, and its DistributedDataParallel, import its compiler, which takes a rank as long as all the rest.
    """

    def __init__(self, model: nn.Module, rate: float = 0.01, kept: float = 0.9) -> None:
        self.parameters, self.rate, self.kept = [*model.parameters()], rate, kept
        self.state = torch.zeros(sum(parameter.numel() for parameter in self.parameters))

    @torch.no_grad()
    def step(self) -> None:
        gradient = torch.cat([parameter.grad.flatten() for parameter in self.parameters])
        distributed.all_reduce(gradient)
        self.state.mul_(self.kept).add_(gradient, alpha=1 / distributed.get_world_size())
        parts = self.state.split([parameter.numel() for parameter in self.parameters])
        for parameter, part in zip(self.parameters, parts, strict=True):
            parameter.sub_(part.view_as(parameter), alpha=self.rate)
            parameter.grad = None


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    for name, default in {
        "steps": 20,
        "batch": 2,
        "tokens": 32,
        "width": 64,
        "layers": 2,
        "seed": 0,
        "save-every": 0,
    }.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--step-s", type=float, default=0.0, help="a step takes at least this long: a planted time")
    parser.add_argument("--folder", default="", help="of the checkpoint; a training begins where it ended")
    parser.add_argument("--timeout-s", type=float, default=60.0, help="of a collective operation")
    parser.add_argument("--fault", default="", help=f"KIND:RANK:STEP[:SECONDS], one of {', '.join(FAULTS)}")
    parser.add_argument("--slow", default="-1:0", help="RANK:SECONDS: this rank takes longer in every step")
    parser.add_argument("--ordinary", action="store_true", help="meet as most scripts do, without keys of an attempt")
    parser.add_argument("--every-attempt", action="store_true", help="plant the fault in later attempts too")
    return parser.parse_args()


def meet() -> float:
    """Seconds that this rank waits for the others at a barrier; the last one to arrive waits not at all."""
    began = time.monotonic()
    if distributed.get_world_size() > 1:
        distributed.barrier()
    return time.monotonic() - began


def main() -> None:
    options = arguments()
    for name, slurm, alone in (("RANK", "SLURM_PROCID", "0"), ("WORLD_SIZE", "SLURM_NTASKS", "1")):
        os.environ.setdefault(name, os.environ.get(slurm, alone))
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    attempt = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", 0))
    wait = datetime.timedelta(seconds=options.timeout_s)
    if world == 1:
        os.environ.setdefault("MASTER_PORT", "0")
    if options.ordinary:
        distributed.init_process_group("gloo", timeout=wait)
    else:
        # The store of torchrun outlives a restart: keys of an attempt are its own.
        store, _, _ = next(distributed.rendezvous("env://", rank, world, timeout=wait))
        store = distributed.PrefixStore(f"attempt-{attempt}", store)
        distributed.init_process_group("gloo", store=store, rank=rank, world_size=world, timeout=wait)
    torch.manual_seed(options.seed)
    words = 64
    model: nn.Module = Gpt(words, options.tokens, options.width, options.layers, recompute=False)
    optimizer = Momentum(model)
    saved = Path(options.folder) / "checkpoint.pt" if options.folder else None
    first = 0
    if saved and saved.exists():
        state = torch.load(saved)
        model.load_state_dict(state["model"])
        optimizer.state = state["optimizer"]
        first = state["step"]
    kind, who, when, seconds = [*options.fault.split(":"), "0", "0", "0"][:4]
    slow_rank, _, slow_s = options.slow.partition(":")
    struck = int(os.environ.get("GROUP_RANK", 0)) if kind == "node" else rank
    planted = kind and int(who) == struck and (attempt == 0 or options.every_attempt)
    for step in range(first, options.steps):
        fault = kind if planted and step >= int(when) else ""
        began, cpu = time.monotonic(), time.process_time()
        if fault:
            strike(fault)
        chance = torch.Generator().manual_seed((options.seed * 100_003 + step) * 4099 + rank)
        starts = torch.randint(words, (options.batch, 1), generator=chance)
        text = (starts + torch.arange(options.tokens + 1)) % words
        if fault == "data":
            time.sleep(float(seconds))
        got = time.monotonic()
        waits_s = meet()
        loss = model(text[:, :-1], text[:, 1:])
        loss.backward()
        optimizer.step()
        if fault == "slow":
            time.sleep(float(seconds))
        if rank == int(slow_rank):
            time.sleep(float(slow_s))
        time.sleep(max(0.0, options.step_s - (time.monotonic() - began)))
        waits_s += meet()
        ended = time.monotonic()
        record = {
            "step": step, "t_start": began, "t_end": ended, "tokens": options.batch * options.tokens,
            "loss": loss.item(), "data_s": got - began, "comm_s": waits_s, "cpu_s": time.process_time() - cpu,
        }  # fmt: skip
        if saved and options.save_every and (step + 1) % options.save_every == 0:
            if fault == "disk-full":
                saved = Path("/dev/full")
            if rank == 0:
                save(model, optimizer, step + 1, saved)
            record["checkpoint_s"] = time.monotonic() - ended
        emit(record)
    distributed.destroy_process_group()


def strike(fault: str) -> None:
    if fault == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if fault == "exit":
        raise RuntimeError("planted: this rank gives up")
    if fault == "leave":
        sys.exit(0)
    if fault == "node":  # what is around the rank goes too, and nothing is written any more
        os.kill(os.getppid(), signal.SIGKILL)
    if fault == "hang":
        time.sleep(1e6)
    if fault == "oom":
        raise MemoryError("planted: no memory for the activations")


def save(model: nn.Module, optimizer: Momentum, step: int, path: Path) -> None:
    state = {"model": model.state_dict(), "optimizer": optimizer.state, "step": step}
    part = path if path.is_char_device() else path.with_suffix(".part")
    torch.save(state, part)
    if part is not path:
        part.replace(path)


main()
