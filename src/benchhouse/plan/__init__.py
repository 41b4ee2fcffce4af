"""Expand a scenario file into a plan: a stream of bound instances, computed without side effects."""
