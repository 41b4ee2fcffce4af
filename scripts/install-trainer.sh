#!/usr/bin/env bash
# torch on the CPU, and the trainers that are built on it, for the tests of training: a virtual environment outside the repository, made once and kept.
# It lies in $BENCH_TEST_CACHE/trainer, else ~/.cache/benchhouse-tests/trainer: 1 GB, a minute or two.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/cached-venv.sh

cpu_torch 2.13.0
# To compile all of it takes most of the minute, and trainers import a tenth: that is compiled, by importing it.
options+=(--no-compile-bytecode)
imports='
import accelerate, lightning.pytorch, pyarrow, s3fs, torch, torch.distributed.checkpoint, torch.distributed.run
from transformers import LlamaForCausalLM, Trainer
torch.optim.SGD(torch.nn.Linear(1, 1).parameters(), lr=0.1).step()'
after_install() { PYTHONDONTWRITEBYTECODE='' "$1/bin/python" -c "$imports" >&2; }
cached_venv trainer "$torch" numpy transformers==5.22.0 accelerate lightning pyarrow s3fs
