"""Models of everything that crosses a boundary: YAML, files, processes, tables.

This package imports no other package of Benchhouse; all others use its models.
"""
