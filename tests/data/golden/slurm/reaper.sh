#!/bin/bash
#SBATCH --job-name=bench-r1-reaper
#SBATCH --partition=cpu
#SBATCH --account=p2
#SBATCH --nodes=1
#SBATCH --cpus-per-task=1
#SBATCH --ntasks=1
#SBATCH --time=0:01:00
#SBATCH --dependency=afterany:12:13
#SBATCH --output=/dev/null
#SBATCH --no-requeue
set -e
echo 60 > '/home/ada/benchmarks/x y/clients-0/stop' || true
echo 60 > '/home/ada/benchmarks/x y/clients-1/stop' || true
