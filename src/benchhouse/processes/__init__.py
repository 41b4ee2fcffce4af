"""Processes and their limits: forking, owners that outlive their process, trees, cgroups, leftovers of killed
processes.

Used by everything that starts processes, on any node.
"""
