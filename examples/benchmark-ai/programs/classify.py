"""Stands in for a trainer of images: reads what it is given, and prints as such programs do."""

import argparse
from pathlib import Path

parser = argparse.ArgumentParser()
parser.add_argument("--model", default="resnet50_v2")
parser.add_argument("--batch-size", type=int, default=32)
parser.add_argument("--gpus", type=int, default=0)
parser.add_argument("--data-dir", type=Path)
options = parser.parse_args()
if options.data_dir:
    images = sorted(options.data_dir.rglob("*.txt"))
    print(f"{len(images)} files, {sum(path.stat().st_size for path in images)} bytes")
for epoch in range(4):
    print(f"Epoch {epoch} Speed: {options.batch_size * 10 + epoch:.1f} samples/sec")
    print(f"accuracy={0.6 + epoch / 20:.2f}")
