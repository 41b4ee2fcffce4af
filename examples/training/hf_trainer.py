"""Train a tiny Llama with the Trainer of transformers: its callback tells Benchhouse the steps.

    python hf_trainer.py --steps 20
    torchrun --nproc-per-node=2 hf_trainer.py

Nothing is downloaded: the model is made here from a configuration, and the text is synthetic.
"""

import argparse
import os
import tempfile

os.environ.setdefault("HF_HUB_OFFLINE", "1")
import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

# Inside a trial they are there by themselves; elsewhere: pip install benchhouse-client, or copy the two files.
from benchhouse_training import transformers_callback


class Text(torch.utils.data.Dataset):
    """Words that follow each other at a stride: a pattern that a small model can learn."""

    def __init__(self, samples: int, tokens: int, vocabulary: int) -> None:
        self.samples, self.places, self.vocabulary = samples, torch.arange(tokens), vocabulary

    def __len__(self) -> int:
        return self.samples

    def __getitem__(self, at: int) -> dict[str, torch.Tensor]:
        words = (at + (1 + at % 7) * self.places) % self.vocabulary
        return {"input_ids": words, "labels": words}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    sizes = {"steps": 20, "batch": 4, "tokens": 64, "width": 64, "layers": 2, "save-every": 0, "accumulate": 1}
    for name, size in {**sizes, "seed": 0}.items():
        parser.add_argument(f"--{name}", type=int, default=size)
    options = parser.parse_args()
    torch.manual_seed(options.seed)
    config = LlamaConfig(
        vocab_size=512,
        hidden_size=options.width,
        intermediate_size=4 * options.width,
        num_hidden_layers=options.layers,
        num_attention_heads=max(1, options.width // 32),
        max_position_embeddings=options.tokens,
    )
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder,
            max_steps=options.steps,
            per_device_train_batch_size=options.batch,
            gradient_accumulation_steps=options.accumulate,
            save_strategy="steps" if options.save_every else "no",
            save_steps=max(1, options.save_every),
            logging_steps=1,
            disable_tqdm=True,
            report_to=[],
            seed=options.seed,
            use_cpu=not torch.cuda.is_available(),
        )
        text = Text(4096, options.tokens, config.vocab_size)
        callbacks = [transformers_callback()]
        Trainer(LlamaForCausalLM(config), arguments, train_dataset=text, callbacks=callbacks).train()


if __name__ == "__main__":
    main()
