"""Training: start any trainer with its ranks, and compute figures of the whole from the steps that each rank records.

In: a program and how to start it; records of steps (`steps.py`). Out: time per step, throughput, waits, goodput.
"""
