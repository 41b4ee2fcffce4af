"""A line is fitted by Lightning, or in a loop with accelerate, with a planted wait for data, and the steps are told.

`library_trainer.py lightning|accelerate FOLDER`: 6 steps of 2 batches of 4 samples, a checkpoint after the fourth.
"""

import sys
import time
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "src"))
from benchhouse_training import Steps, lightning_callback

STEPS, SUMMED, BATCH, SLOW_S = 6, 2, 4, 0.01  # each sample takes as long to be read


class Points(Dataset):
    def __len__(self) -> int:
        return STEPS * SUMMED * BATCH * 2

    def __getitem__(self, at: int) -> tuple[torch.Tensor, torch.Tensor]:
        time.sleep(SLOW_S)
        x = torch.full((3,), at % 5 / 5.0)
        return x, x.sum().unsqueeze(0)


def with_lightning(folder: str) -> None:
    import lightning
    from lightning.pytorch.callbacks import ModelCheckpoint

    class Line(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.line = nn.Linear(3, 1)

        def training_step(self, batch: list[torch.Tensor], _: int) -> torch.Tensor:
            return nn.functional.mse_loss(self.line(batch[0]), batch[1])

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    saves = ModelCheckpoint(folder, every_n_train_steps=4, save_on_train_epoch_end=False)
    lightning.Trainer(
        accelerator="cpu", devices=1, max_steps=STEPS, accumulate_grad_batches=SUMMED, logger=False,
        enable_progress_bar=False, enable_model_summary=False, callbacks=[lightning_callback(), saves],
    ).fit(Line(), DataLoader(Points(), BATCH))  # fmt: skip


def with_accelerate(folder: str) -> None:
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=SUMMED)
    line = nn.Linear(3, 1)
    model, optimizer, loader = accelerator.prepare(
        line, torch.optim.SGD(line.parameters(), lr=0.1), DataLoader(Points(), BATCH)
    )
    steps = Steps()
    for x, y in steps(loader, every=SUMMED):
        with accelerator.accumulate(model):
            loss = nn.functional.mse_loss(model(x), y)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
        steps.note(loss=loss.item())
        if accelerator.sync_gradients and steps.record["step"] == 3:
            with steps.checkpoint():
                accelerator.save_state(folder)
    accelerator.end_training()


if __name__ == "__main__":
    torch.manual_seed(0)
    {"lightning": with_lightning, "accelerate": with_accelerate}[sys.argv[1]](sys.argv[2])
