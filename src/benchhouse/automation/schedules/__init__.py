"""Schedules of runs: when slots are due (pure), where they are stored, and the agent that runs them.

A slot is a schedule and a due time. It is claimed once, in a transaction that names its run, and a run is made once.
"""
