"""Packages of benchmarks for models, and what stands on them: checks, scaffolds, logical benchmarks, leaderboards.

Folders of a nexus go in; checked packages, new files and rankings come out.
"""
