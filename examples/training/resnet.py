"""Train a small residual network on synthetic pictures, on CPUs or GPUs, with one rank or many.

    python resnet.py --steps 20
    torchrun --nproc-per-node=2 resnet.py --batch 16 --workers 2

A loop of its own over a DataLoader: `Steps` around the loader measures and emits. Nothing is downloaded.
"""

import argparse
import os

import torch
from torch import distributed, nn
from torch.utils.data import DataLoader, Dataset, DistributedSampler

# Inside a trial they are there by themselves; elsewhere: pip install benchhouse-client, or copy the two files.
from benchhouse_training import Steps

CLASSES = 10


class Pictures(Dataset):
    """Stripes whose direction is the class, with noise that depends on the seed and the number of the picture."""

    def __init__(self, count: int, size: int, seed: int) -> None:
        self.count, self.seed = count, seed
        self.y, self.x = torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij")

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, at: int) -> tuple[torch.Tensor, int]:
        chance = torch.Generator().manual_seed(self.seed * 1_000_003 + at)
        angle = torch.tensor(at % CLASSES * torch.pi / CLASSES)
        stripes = torch.sin(angle.cos() * self.x + angle.sin() * self.y)
        return stripes + 0.5 * torch.randn(3, *stripes.shape, generator=chance), at % CLASSES


class Block(nn.Module):
    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(before, after, 3, stride, 1, bias=False), nn.BatchNorm2d(after), nn.ReLU())
        self.second = nn.Sequential(nn.Conv2d(after, after, 3, 1, 1, bias=False), nn.BatchNorm2d(after))
        self.short = nn.Conv2d(before, after, 1, stride, bias=False) if stride > 1 else nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.short(x) + self.second(self.first(x)))


def network(width: int) -> nn.Module:
    blocks = (Block(width, width, 1), Block(width, 2 * width, 2), Block(2 * width, 4 * width, 2))
    ends = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4 * width, CLASSES))
    return nn.Sequential(nn.Conv2d(3, width, 3, 1, 1), nn.ReLU(), *blocks, *ends)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    sizes = {"steps": 20, "batch": 8, "size": 32, "width": 16, "workers": 0, "seed": 0}
    for name, size in sizes.items():
        parser.add_argument(f"--{name}", type=int, default=size)
    options = parser.parse_args()
    world, local = (int(os.environ.get(name, default)) for name, default in (("WORLD_SIZE", 1), ("LOCAL_RANK", 0)))
    device = torch.device("cuda", local) if torch.cuda.is_available() else torch.device("cpu")
    if world > 1:
        distributed.init_process_group("nccl" if device.type == "cuda" else "gloo")
    torch.manual_seed(options.seed)
    model = network(options.width).to(device)
    if world > 1:
        model = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    pictures = Pictures(options.steps * options.batch * world, options.size, options.seed)
    sampler = DistributedSampler(pictures, seed=options.seed) if world > 1 else None
    loader = DataLoader(pictures, options.batch, shuffle=not sampler, sampler=sampler, num_workers=options.workers)
    steps = Steps()
    for picture, label in steps(loader):
        loss = nn.functional.cross_entropy(model(picture.to(device)), label.to(device))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        steps.note(loss=loss.item())
        if local == 0:
            print(f"step {steps.record['step']}: loss {loss.item():.4f}", flush=True)
    if world > 1:
        distributed.destroy_process_group()


if __name__ == "__main__":
    main()
