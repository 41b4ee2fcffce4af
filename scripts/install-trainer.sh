#!/usr/bin/env bash
# torch on the CPU, and the trainers that are built on it, for the tests of training: a virtual environment outside the repository, made once and kept.
# It lies in $BENCH_TEST_CACHE/trainer, else ~/.cache/benchhouse-tests/trainer: 1 GB, a minute or two.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/cached-venv.sh

cpu_torch 2.13.0
cached_venv trainer "$torch" numpy transformers==5.22.0 accelerate lightning pyarrow s3fs
