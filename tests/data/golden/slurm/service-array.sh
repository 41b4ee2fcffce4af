#!/bin/bash -l
#SBATCH --job-name=bench-clients-0
#SBATCH --partition=cpu
#SBATCH --account=p2
#SBATCH --nodes=1
#SBATCH --cpus-per-task=1
#SBATCH --ntasks-per-node=1
#SBATCH --time=2:00:00
#SBATCH --open-mode=append
#SBATCH --no-requeue
#SBATCH --array=0-2
#SBATCH --output=/dev/null
set -e
module load Apptainer/1.3 CUDA
export FOO='a '"'"'b'"'"' $(touch pwned)'
export NCCL_SOCKET_IFNAME=ib0
exec /opt/venv/bin/python -m benchhouse.worker --keep '/home/ada/benchmarks/x y/clients-'$SLURM_ARRAY_TASK_ID >> '/home/ada/benchmarks/x y/clients-'$SLURM_ARRAY_TASK_ID/keeper.log 2>&1
