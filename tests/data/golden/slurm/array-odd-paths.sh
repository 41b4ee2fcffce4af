#!/bin/bash
#SBATCH --job-name=bench-r1-0001
#SBATCH --array=0-5
#SBATCH --nodes=1
#SBATCH --cpus-per-task=1
#SBATCH --ntasks-per-node=1
#SBATCH --time=1:00:00
#SBATCH --output="/logs/50%%/%x_%j.out"
#SBATCH --error="/logs/50%%/%x_%j.err"
#SBATCH --chdir="/a b/$(touch x) %%j 'x'/0001"
#SBATCH --open-mode=append
#SBATCH --no-requeue
#SBATCH --signal=B:USR2@30
set -e
: > '/a b/$(touch x) %j '"'"'x'"'"'/0001/begun'/"$SLURM_ARRAY_TASK_ID.$SLURM_JOB_ID" || true
exec /opt/venv/bin/python -m benchhouse.worker --task '/a b/$(touch x) %j '"'"'x'"'"'/0001'
