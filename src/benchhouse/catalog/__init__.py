"""Find experiments, drivers, executors, runtimes, and benchmarks: from installed packages to declarations."""
