"""Packages of benchmarks for models: checks, scaffolds, logical benchmarks, leaderboards.

Reads folders of a nexus; gives checked packages, new files, and rankings.
"""
