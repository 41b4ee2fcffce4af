"""Processes and what bounds them: forking, owners that outlive their process, trees, cgroups, leftovers of the killed.

Process ids and owners go in; what was ended comes out. Used by whatever starts processes, on any node.
"""
