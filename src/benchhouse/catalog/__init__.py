"""Finds experiments, drivers, executors, runtimes and benchmarks: installed packages in, declarations out."""
