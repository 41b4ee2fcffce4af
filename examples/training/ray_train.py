"""Train the small GPT by Ray Train: its workers are the ranks, and each of them emits a record a step.

    python ray_train.py --workers 2 --steps 12

It starts Ray on this machine, or joins the cluster that RAY_ADDRESS names; that must see the folder of records.
"""

import argparse
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import ray
import torch
from gpt import Gpt, batch_of
from ray.train import RunConfig, ScalingConfig, get_context
from ray.train.torch import TorchTrainer, get_device, prepare_model

from benchhouse_client import emit

LENT = ("BENCHHOUSE_EMIT", "PYTHONPATH")
"""Variables of a trial that workers need: Ray's workers on other nodes have no environment of ours."""


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    sizes = {"workers": 2, "steps": 12, "batch": 4, "tokens": 128, "width": 128, "layers": 2, "vocabulary": 512}
    for name, size in {**sizes, "seed": 0}.items():
        parser.add_argument(f"--{name}", type=int, default=size)
    parser.add_argument("--storage", default=tempfile.gettempdir(), help="folder for what Ray Train writes of the run")
    return parser.parse_args()


def train(given: dict[str, Any]) -> None:
    """One rank."""
    options, rank, device = argparse.Namespace(**given), get_context().get_world_rank(), get_device()
    torch.manual_seed(options.seed)
    sizes = (options.vocabulary, options.tokens, options.width, options.layers)
    model = prepare_model(Gpt(*sizes, recompute=False))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    for step in range(options.steps):
        began, cpu = time.monotonic(), time.process_time()
        text, follows = (part.to(device) for part in batch_of(options, step, rank))
        got = time.monotonic()
        loss = model(text, follows)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        told = loss.item()  # waits for the device
        emit(
            {
                "step": step, "rank": rank, "world": get_context().get_world_size(), "t_start": began,
                "t_end": time.monotonic(), "tokens": text.numel(), "loss": told, "data_s": got - began,
                "cpu_s": time.process_time() - cpu,
            }
        )  # fmt: skip


def main() -> None:
    options = arguments()
    ray.init(runtime_env={"env_vars": {name: os.environ[name] for name in LENT if name in os.environ}})
    scaling = ScalingConfig(num_workers=options.workers, use_gpu=torch.cuda.is_available())
    run = RunConfig(storage_path=str(Path(options.storage).resolve()))
    TorchTrainer(train, train_loop_config=vars(options), scaling_config=scaling, run_config=run).fit()


if __name__ == "__main__":
    main()
