#!/bin/bash -l
#SBATCH --job-name=bench-r1-0001
#SBATCH --array=0-5
#SBATCH --partition=fat
#SBATCH --account=p2
#SBATCH --qos=short
#SBATCH --constraint=a100
#SBATCH --reservation=course
#SBATCH --nodes=1
#SBATCH --cpus-per-task=4
#SBATCH --ntasks-per-node=1
#SBATCH --time=0:04:00
#SBATCH --exclusive
#SBATCH --dependency=after:71:72
#SBATCH --begin=now+2
#SBATCH --output="/home/ada/benchmarks/.bench/runs/r1/logs/%x_%j.out"
#SBATCH --error="/home/ada/benchmarks/.bench/runs/r1/logs/%x_%j.err"
#SBATCH --chdir="/home/ada/benchmarks/.bench/runs/r1/jobs/0001"
#SBATCH --open-mode=append
#SBATCH --no-requeue
#SBATCH --signal=B:USR2@30
#SBATCH --switches=1
#SBATCH --gpu-bind=none
set -e
: > /home/ada/benchmarks/.bench/runs/r1/jobs/0001/begun/"$SLURM_ARRAY_TASK_ID.$SLURM_JOB_ID" || true
module load Apptainer/1.3 CUDA
export FOO='a '"'"'b'"'"' $(touch pwned)'
exec /opt/venv/bin/python -m benchhouse.worker --task /home/ada/benchmarks/.bench/runs/r1/jobs/0001
