"""The executors, which run jobs. Each executor is one file and one entry point."""
