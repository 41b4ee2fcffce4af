#!/usr/bin/env bash
# The libraries that read what `bench export` writes, for the tests of exporters: MLflow, wandb, mlcroissant, RO-Crate. A virtual environment outside the
# repository, made once and kept. It lies in $BENCH_TEST_CACHE/export-readers, else ~/.cache/benchhouse-tests/export-readers: 500 MB, half a minute.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/cached-venv.sh

options+=(--no-compile-bytecode) # which would take longer than the rest, of ten thousand files: tests compile what they import
cached_venv export-readers mlflow-skinny==3.17.2 alembic sqlalchemy wandb==0.31.0 'mlcroissant[parquet]==1.1.1' roc-validator==0.13.0 rocrate==0.16.0 scipy
