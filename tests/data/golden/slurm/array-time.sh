#!/bin/bash
#SBATCH --job-name=bench-r1-0001
#SBATCH --array=0-5
#SBATCH --nodes=1
#SBATCH --cpus-per-task=1
#SBATCH --ntasks-per-node=1
#SBATCH --time=1:30:00
#SBATCH --output="/home/ada/benchmarks/.bench/runs/r1/logs/%x_%j.out"
#SBATCH --error="/home/ada/benchmarks/.bench/runs/r1/logs/%x_%j.err"
#SBATCH --chdir="/home/ada/benchmarks/.bench/runs/r1/jobs/0001"
#SBATCH --open-mode=append
#SBATCH --no-requeue
#SBATCH --signal=B:USR2@30
set -e
: > /home/ada/benchmarks/.bench/runs/r1/jobs/0001/begun/"$SLURM_ARRAY_TASK_ID.$SLURM_JOB_ID" || true
exec /opt/venv/bin/python -m benchhouse.worker --task /home/ada/benchmarks/.bench/runs/r1/jobs/0001
