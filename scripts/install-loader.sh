#!/usr/bin/env bash
# torch on the CPU with what reads Parquet and S3, for the tests of data loading and checkpoints: a virtual environment outside the repository, made once and kept.
# It lies in $BENCH_TEST_CACHE/loader, else ~/.cache/benchhouse-tests/loader: 1 GB, a minute.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/cached-venv.sh

cpu_torch 2.13.0
cached_venv loader "$torch" numpy pyarrow s3fs
