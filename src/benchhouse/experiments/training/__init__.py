"""Training: any trainer is started with its ranks, and what each rank says of its steps becomes figures of the whole.

In: a program and how to start it; records of steps (`steps.py`). Out: time of a step, throughput, waits, goodput.
"""
