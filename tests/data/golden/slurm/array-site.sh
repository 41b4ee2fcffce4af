#!/bin/bash -l
#SBATCH --job-name=bench-r1-0001
#SBATCH --array=0-5
#SBATCH --partition=gpu
#SBATCH --account=p1
#SBATCH --qos=default
#SBATCH --nodes=1
#SBATCH --cpus-per-task=1
#SBATCH --mem=1025M
#SBATCH --gres=gpu:a100:2
#SBATCH --ntasks-per-node=1
#SBATCH --time=1:00:00
#SBATCH --output="/home/ada/benchmarks/.bench/runs/r1/logs/%x_%j.out"
#SBATCH --error="/home/ada/benchmarks/.bench/runs/r1/logs/%x_%j.err"
#SBATCH --chdir="/home/ada/benchmarks/.bench/runs/r1/jobs/0001"
#SBATCH --open-mode=append
#SBATCH --no-requeue
#SBATCH --signal=B:USR2@30
#SBATCH --switches=1
set -e
: > /home/ada/benchmarks/.bench/runs/r1/jobs/0001/begun/"$SLURM_ARRAY_TASK_ID.$SLURM_JOB_ID" || true
module load Apptainer/1.3 CUDA
export FOO='a '"'"'b'"'"' $(touch pwned)'
exec /opt/venv/bin/python -m benchhouse.worker --task /home/ada/benchmarks/.bench/runs/r1/jobs/0001
