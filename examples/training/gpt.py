"""Train a small GPT on synthetic text, on CPUs or GPUs, with one rank or many: it emits a record a step and rank.

    python gpt.py --steps 20
    torchrun --nproc-per-node=2 gpt.py --layers 4 --width 256
    python gpt.py --layers 24 --width 2048 --tokens 2048 --batch 8 --vocabulary 32000 --dtype bfloat16 --compile

Nothing is downloaded. Data and weights depend on the seed, the rank and the step alone.
"""

import argparse
import os
import sys
import time

import torch
from torch import distributed, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

# Inside a trial they are there by themselves; elsewhere: pip install benchhouse-client, or copy the two files.
from benchhouse_client import emit
from benchhouse_training import count_flops, profiled


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    sizes = {"steps": 20, "batch": 4, "tokens": 128, "width": 128, "layers": 2, "vocabulary": 512, "seed": 0}
    for name, size in sizes.items():
        parser.add_argument(f"--{name}", type=int, default=size)
    parser.add_argument("--rate", type=float, default=3e-4, help="learning rate")
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], default="float32", help="of the computation")
    parser.add_argument("--weights", choices=["float32", "bfloat16"], default="float32", help="and of their gradients")
    parser.add_argument("--compile", action="store_true", help="by torch.compile")
    parser.add_argument("--recompute", action="store_true", help="activations in the backward pass: less memory")
    parser.add_argument("--deterministic", action="store_true", help="the same losses again, on a GPU too: slower")
    parser.add_argument("--count", action="store_true", help="count the FLOPs of a step, on one sequence")
    return parser.parse_args()


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.heads = max(1, width // 64)
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.mixed, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        parts = self.mixed(self.before(x)).chunk(3, dim=-1)
        query, key, value = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in parts)
        attended = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).flatten(2))
        return x + self.wide(self.between(x))


class Gpt(nn.Module):
    def __init__(self, vocabulary: int, tokens: int, width: int, layers: int, recompute: bool) -> None:
        super().__init__()
        self.recompute = recompute
        self.word, self.place = nn.Embedding(vocabulary, width), nn.Embedding(tokens, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)

    def forward(self, text: torch.Tensor, follows: torch.Tensor) -> torch.Tensor:
        """The loss."""
        x = self.word(text) + self.place.weight[: text.shape[1]]
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.recompute else block(x)
        return functional.cross_entropy(self.head(self.norm(x)).flatten(0, 1), follows.flatten())


class ExposedWait:
    """Time that a rank waits for gradients of others with nothing left to compute: the last bucket of a step is sent
    when the rank's own backward pass is over."""

    def __init__(self, model: nn.parallel.DistributedDataParallel, cuda: bool) -> None:
        self.cuda, self.world = cuda, distributed.get_world_size()
        self.sent = self.came = self._now()
        model.register_comm_hook(None, self._reduce)

    def _now(self) -> "float | torch.cuda.Event":
        if not self.cuda:
            return time.monotonic()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def _reduce(self, _: object, bucket: distributed.GradBucket) -> torch.futures.Future[torch.Tensor]:
        self.sent = self._now()
        return distributed.all_reduce(bucket.buffer().div_(self.world), async_op=True).get_future().then(self._done)

    def _done(self, future: torch.futures.Future[list[torch.Tensor]]) -> torch.Tensor:
        self.came = self._now()
        return future.value()[0]

    def seconds(self) -> float:
        """Of the last step; the device has done it."""
        return self.sent.elapsed_time(self.came) / 1e3 if self.cuda else self.came - self.sent


def batch_of(options: argparse.Namespace, step: int, rank: int) -> tuple[torch.Tensor, torch.Tensor]:
    chance = torch.Generator().manual_seed((options.seed * 100_003 + step) * 4099 + rank)
    starts = torch.randint(options.vocabulary, (options.batch, 1), generator=chance)
    strides = torch.randint(1, 8, (options.batch, 1), generator=chance)
    text = (starts + strides * torch.arange(options.tokens + 1)) % options.vocabulary
    return text[:, :-1], text[:, 1:]


def counted(
    model: nn.Module, mixed: torch.autocast, options: argparse.Namespace, device: torch.device
) -> dict[str, int]:
    """FLOPs of a step: the model's own are three times those of its forward pass, whatever backward does again."""
    sequence = [part[:1].to(device) for part in batch_of(options, 0, 0)]
    with mixed:
        flops = 3 * count_flops(model, *sequence)
        hardware = count_flops(lambda: model(*sequence).backward())
    model.zero_grad()
    return {"flops": flops * options.batch, "hardware_flops": hardware * options.batch}


def main() -> None:
    options = arguments()
    rank, world, local, attempt = (
        int(os.environ.get(name, default))
        for name, default in {
            "RANK": 0, "WORLD_SIZE": 1, "LOCAL_RANK": 0, "TORCHELASTIC_RESTART_COUNT": 0,
        }.items()
    )  # fmt: skip
    cuda = torch.cuda.is_available()
    if options.deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True)
    if "bfloat16" in (options.dtype, options.weights) and not cuda:
        sys.exit("gpt.py: bfloat16 is hundreds of times slower than float32 on most CPUs: take float32")
    device = torch.device("cuda", local) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    many = "MASTER_ADDR" in os.environ
    if many:
        # The store of torchrun outlives a restart: keys of an attempt are its own.
        store, _, _ = next(distributed.rendezvous("env://", rank, world))
        store = distributed.PrefixStore(f"attempt-{attempt}", store)
        distributed.init_process_group("nccl" if cuda else "gloo", store=store, rank=rank, world_size=world)
    torch.manual_seed(options.seed)
    sizes = (options.vocabulary, options.tokens, options.width, options.layers)
    model: nn.Module = Gpt(*sizes, options.recompute).to(device, getattr(torch, options.weights))
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.rate, fused=cuda)
    mixed = torch.autocast(device.type, torch.bfloat16, enabled=options.dtype == "bfloat16")
    flops = counted(model, mixed, options, device) if options.count else {}
    waits = None
    if world > 1:
        model = nn.parallel.DistributedDataParallel(model, device_ids=[local] if cuda else None)
        waits = ExposedWait(model, cuda)
    if options.compile:
        model = torch.compile(model)
    if cuda:
        torch.cuda.reset_peak_memory_stats()  # what counting took is none of the training's
    for step in profiled(range(options.steps)):
        began, cpu = time.monotonic(), time.process_time()
        text, follows = (part.to(device, non_blocking=True) for part in batch_of(options, step, rank))
        got = time.monotonic()
        with mixed:
            loss = model(text, follows)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        told = loss.item()  # waits for the device
        record = {
            "step": step, "t_start": began, "t_end": time.monotonic(), "tokens": text.numel(), "loss": told,
            "data_s": got - began, "cpu_s": time.process_time() - cpu, **flops,
        }  # fmt: skip
        if waits:
            record["comm_s"] = waits.seconds()
        if cuda:
            record["memory_bytes"] = torch.cuda.max_memory_allocated()
        emit(record)
        if rank == 0:
            print(f"step {step}: loss {told:.4f} took {record['t_end'] - began:.3f} s", flush=True)
    if many:
        distributed.destroy_process_group()


if __name__ == "__main__":
    main()
