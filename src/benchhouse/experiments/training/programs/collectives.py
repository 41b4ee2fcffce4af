"""One rank of `training.collectives`: repeat one operation, and print when each round began and ended.

It is started with the variables of a rank (`RANK`, `WORLD_SIZE`, `MASTER_ADDR`, ...). It prints lines of JSON that
begin with `{"collective": ...`: versions and device, and after the last round the rounds, the bytes, and the number of
wrong elements.
"""

import argparse
import datetime
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

try:
    import torch
    import torch.distributed as dist
except ImportError as error:
    sys.exit(f"no torch: {error}")

CHUNK = 16  # the share of a rank is a multiple of this many bytes, as in nccl-tests
EXACT = 256  # integers up to this are exact in every type


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--operation", required=True)
    parser.add_argument("--bytes", type=int, required=True)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--backend", default="gloo")
    parser.add_argument("--warmup", type=int, default=5)
    parser.add_argument("--iterations", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--timeout-s", type=float, default=600.0)
    parser.add_argument("--late", default="", help="RANK:SECONDS:start or each: to see what a late rank does")
    options = parser.parse_args()
    device = _device(options.backend)
    dist.init_process_group(options.backend, timeout=datetime.timedelta(seconds=options.timeout_s))
    _say(
        "about",
        torch=torch.__version__,
        clock=_clock(),
        world=dist.get_world_size(),
        device=torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
        nccl=".".join(map(str, torch.cuda.nccl.version())) if options.backend == "nccl" else None,
    )
    operation = CollectiveOperation(options.operation, options.bytes, getattr(torch, options.dtype), device)
    try:
        wrong = operation.check()
    except RuntimeError as error:  # includes NotImplementedError
        if isinstance(error, NotImplementedError) or "support" in str(error) or "implement" in str(error):
            _say("unsupported", error=str(error).strip().splitlines()[0])
        raise
    waited_s = _waited_s()
    rounds = measure_rounds(operation, options)
    waited_s = _waited_s() - waited_s
    wrong += operation.check()
    for begin_s, end_s in rounds:
        _say("round", begin_s=begin_s, end_s=end_s)
    _say("result", bytes=operation.bytes, wrong=wrong, waited_s=waited_s)
    dist.destroy_process_group()


def measure_rounds(operation: "CollectiveOperation", options: argparse.Namespace) -> list[tuple[float, float]]:
    """Return both ends of each round (`iterations` operations back to back), by the node's monotonic clock."""
    rank, seconds, when = options.late.split(":") if options.late else ("-1", "0", "")
    late_s = float(seconds) if int(rank) == dist.get_rank() else 0.0
    operation.reset()
    for _ in range(options.warmup):
        operation.run()
    rounds = []
    for _ in range(options.rounds):
        operation.finish()
        dist.barrier()
        operation.finish()
        if late_s and when == "start":
            time.sleep(late_s)
        begin_s = time.monotonic()
        for _ in range(options.iterations):
            if late_s and when == "each":
                time.sleep(late_s)
            operation.run()
        operation.finish()
        rounds.append((begin_s, time.monotonic()))
    return rounds


class CollectiveOperation:
    """One operation on buffers of this rank. `bytes` is its size as nccl-tests counts it: of the whole array, of which
    all_gather, reduce_scatter, and all_to_all give each rank an equal share, rounded down."""

    def __init__(self, name: str, size: int, dtype: "torch.dtype", device: "torch.device") -> None:
        self.name, self.device = name, device
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        width = torch.empty(0, dtype=dtype).element_size()
        self.count = size // width
        if name in ("all_gather", "reduce_scatter", "all_to_all"):
            self.count = size // self.world // CHUNK * CHUNK // width * self.world
        self.bytes = self.count * width
        self.share = self.count // self.world
        self.dtype = dtype
        sends = self.share if name == "all_gather" else self.count
        takes = self.share if name == "reduce_scatter" else self.count
        self.sent = torch.zeros(sends, dtype=dtype, device=device)
        in_place = name in ("all_reduce", "broadcast")
        self.taken = self.sent if in_place else torch.zeros(takes, dtype=dtype, device=device)
        self.run: Callable[[], object] = getattr(self, f"_{name}")
        # torch 2.13 has new names for the old functions
        self._gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
        self._scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor

    def _all_reduce(self) -> None:
        dist.all_reduce(self.sent)

    def _broadcast(self) -> None:
        dist.broadcast(self.sent, 0)

    def _all_gather(self) -> None:
        self._gather(self.taken, self.sent)

    def _reduce_scatter(self) -> None:
        self._scatter(self.taken, self.sent)

    def _all_to_all(self) -> None:
        dist.all_to_all_single(self.taken, self.sent)

    def _send_recv(self) -> None:
        """Send to the next rank and receive from the previous one, at the same time."""
        after, before = (self.rank + 1) % self.world, (self.rank - 1) % self.world
        both = [dist.P2POp(dist.isend, self.sent, after), dist.P2POp(dist.irecv, self.taken, before)]
        for work in dist.batch_isend_irecv(both):
            work.wait()

    def finish(self) -> None:
        """Wait for the work of the device."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def reset(self) -> None:
        """Set the buffer to zero: sums that are repeated in place would overflow."""
        self.sent.zero_()

    def check(self) -> int:
        """Run the operation once with known numbers, and count the wrong elements."""
        self.sent.copy_(self._numbers(self.rank, 0, len(self.sent)))
        if self.taken is not self.sent:
            self.taken.fill_(-1)
        self.run()
        self.finish()
        return int((self.taken != self._expected()).sum())

    def _numbers(self, rank: int, begin: int, count: int) -> "torch.Tensor":
        """Return the numbers that a rank sends: small integers, so that sums over all ranks are exact."""
        places = torch.arange(begin, begin + count, device=self.device)
        if self.world > EXACT // 7:
            return (places % self.world == rank).to(self.dtype)
        return ((places + 5 * rank) % 8).to(self.dtype)

    def _expected(self) -> "torch.Tensor":
        share, own = self.share, self.rank
        if self.name in ("all_reduce", "reduce_scatter"):
            begin, count = (0, self.count) if self.name == "all_reduce" else (own * share, share)
            total = torch.zeros(count, dtype=torch.float32, device=self.device)
            for rank in range(self.world):
                total += self._numbers(rank, begin, count)
            return total.to(self.dtype)
        if self.name == "broadcast":
            return self._numbers(0, 0, self.count)
        if self.name == "send_recv":
            return self._numbers((own - 1) % self.world, 0, self.count)
        begin = own * share if self.name == "all_to_all" else 0
        return torch.cat([self._numbers(rank, begin, share) for rank in range(self.world)])


def _device(backend: str) -> "torch.device":
    if backend != "nccl":
        return torch.device("cpu")
    local, here = int(os.environ.get("LOCAL_RANK", "0")), torch.cuda.device_count()
    if local >= here:
        sys.exit(f"no GPU for local rank {local}: torch sees {here} on this node, and nccl needs one a rank")
    torch.cuda.set_device(local)
    return torch.device("cuda", local)


def _clock() -> str:
    """Identify the monotonic clock: that of a kernel, and of a time namespace if the kernel has them."""
    boot, space = Path("/proc/sys/kernel/random/boot_id"), Path("/proc/self/ns/time")
    return f"{boot.read_text().strip()} {space.readlink() if space.is_symlink() else ''}"


def _waited_s() -> float:
    """Return how long threads of this process have waited for a core, by the kernel; 0 if unknown."""
    waits = (path.read_text().split()[1] for path in Path("/proc/self/task").glob("*/schedstat"))
    return sum(map(int, waits)) / 1e9


def _say(what: str, **items: object) -> None:
    """Print a whole line with one write, whatever else prints."""
    sys.stdout.write(json.dumps({"collective": what, "rank": int(os.environ["RANK"]), **items}) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
