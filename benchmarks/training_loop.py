"""The trainer of `training_overhead.py`: a small model, DDP on gloo, a record a step; it times its own loop.

torchrun --nproc-per-node=2 benchmarks/training_loop.py FOLDER STEPS      writes FOLDER/rank-N.json
"""

import json
import os
import sys
import time
from pathlib import Path
from statistics import median

import torch
from torch import distributed, nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))
from benchhouse_client import emit

WARMUP, BATCH, WIDTH = 10, 64, 384


def main(folder: Path, steps: int) -> None:
    distributed.init_process_group("gloo")
    rank, cores = distributed.get_rank(), sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, [cores[rank % len(cores)]])  # threads of torch wander otherwise, which is noise
    torch.manual_seed(0)
    layers = [layer for _ in range(4) for layer in (nn.Linear(WIDTH, WIDTH), nn.GELU())]
    model = nn.parallel.DistributedDataParallel(nn.Sequential(*layers))
    optimizer = torch.optim.AdamW(model.parameters())
    chance = torch.Generator().manual_seed(rank)
    costs, began = [], 0.0
    for step in range(WARMUP + steps):
        if step == WARMUP:
            distributed.barrier()
            began = time.perf_counter()
        start, cpu = time.monotonic(), time.process_time()
        loss = model(torch.randn(BATCH, WIDTH, generator=chance)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        end = time.monotonic()
        record = {
            "step": step,
            "t_start": start,
            "t_end": end,
            "tokens": BATCH,
            "loss": loss.item(),
            "cpu_s": time.process_time() - cpu,
        }
        before = time.perf_counter()
        emit(record)
        costs.append(time.perf_counter() - before)
    took_s = time.perf_counter() - began
    figures = {"tokens_per_s": BATCH * steps / took_s, "record_us": median(costs[WARMUP:]) * 1e6, "loss": loss.item()}
    (folder / f"rank-{rank}.json").write_text(json.dumps(figures))
    distributed.destroy_process_group()


main(Path(sys.argv[1]), int(sys.argv[2]))
