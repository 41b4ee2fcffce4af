#!/bin/bash -l
#SBATCH --job-name=bench-web
#SBATCH --partition=cpu
#SBATCH --account=p2
#SBATCH --nodes=2
#SBATCH --cpus-per-task=2
#SBATCH --nodelist=node07
#SBATCH --ntasks-per-node=1
#SBATCH --time=1:30:00
#SBATCH --open-mode=append
#SBATCH --no-requeue
#SBATCH --output="/home/ada/benchmarks/.bench/runs/r1/services/web/keeper.log"
set -e
module load Apptainer/1.3 CUDA
export FOO='a '"'"'b'"'"' $(touch pwned)'
export NCCL_SOCKET_IFNAME=ib0
exec /opt/venv/bin/python -m benchhouse.worker --keep /home/ada/benchmarks/.bench/runs/r1/services/web
