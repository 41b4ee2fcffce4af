"""FLOPs per second that the devices of a node reach with large matrix products: a line of JSON for each rank.

    python matmul.py DTYPE SECONDS RANKS

Each rank is a process; its device is CUDA's LOCAL_RANK, otherwise the CPU with OMP_NUM_THREADS threads. For each size,
the median over rounds is reported, and the best size is the peak.
"""

import json
import os
import subprocess
import sys
import time
from statistics import median

SIZES = {"cuda": (4096, 8192, 16384), "cpu": (512, 1024, 2048)}
ROUND_S = 0.05


def measure_all(dtype: str, seconds: str, ranks: int) -> int:
    """Measure all ranks at the same time. Return the exit code of the first that failed; 0 if none did."""
    argv = [sys.executable, __file__, dtype, seconds]
    processes = [subprocess.Popen(argv, env={**os.environ, "LOCAL_RANK": str(rank)}) for rank in range(ranks)]
    return next((code for process in processes if (code := process.wait())), 0)


def measure(dtype: str, seconds: float) -> None:
    import torch

    cuda = torch.cuda.is_available()
    if not cuda and dtype != "float32":
        sys.exit(f"no CUDA device here, and {dtype} on a CPU is emulated or far slower than float32: measure float32")
    local = int(os.environ.get("LOCAL_RANK", "0"))
    device = torch.device("cuda", local % torch.cuda.device_count()) if cuda else torch.device("cpu")
    torch.backends.cuda.matmul.allow_tf32 = dtype == "tf32"
    wait = torch.cuda.synchronize if cuda else (lambda: None)
    sizes = SIZES[device.type]
    chance = torch.Generator(device).manual_seed(0)
    kind = torch.float32 if dtype == "tf32" else getattr(torch, dtype)
    rates = {}
    for size in sizes:
        left, right = (torch.randn(size, size, generator=chance, device=device).to(kind) for _ in range(2))
        out = torch.empty(size, size, dtype=kind, device=device)
        times: list[float] = []
        count = 1
        until = time.monotonic() + seconds / len(sizes)
        while not times or time.monotonic() < until:
            wait()
            began = time.perf_counter()
            for _ in range(count):
                torch.mm(left, right, out=out)
            wait()
            took_s = time.perf_counter() - began
            times.append(took_s / count)
            if len(times) == 1 and took_s < ROUND_S:  # the first one warms up, and shows how many fit a round
                count, times = min(10_000, max(count + 1, int(count * ROUND_S / max(took_s, 1e-6)))), []
        rates[size] = 2 * size**3 / median(times)
    name = torch.cuda.get_device_name(device) if cuda else f"CPU with {torch.get_num_threads()} threads"
    best = max(rates, key=lambda size: rates[size])
    answer = {"flops": rates[best], "size": best, "by_size": rates, "device": name, "dtype": dtype, "local_rank": local}
    sys.stdout.write(json.dumps({**answer, "torch": torch.__version__}) + "\n")


if __name__ == "__main__":
    if len(sys.argv) > 3:
        sys.exit(measure_all(sys.argv[1], sys.argv[2], int(sys.argv[3])))
    measure(sys.argv[1], float(sys.argv[2]))
