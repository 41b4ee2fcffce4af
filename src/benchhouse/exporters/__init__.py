"""Exporters to other tools, one module per tool.

An exporter writes the numbers of a run, or the content of a packet, in another tool's format. It computes nothing and
never gets invalid numbers.
"""
