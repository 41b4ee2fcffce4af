"""Exporters: results for other tools, one file each. An exporter takes the numbers of a run, or what a packet holds,
and says the same in another tool's format; it computes nothing, and never sees what is invalid."""
