"""Experiment `serving.load`: inference servers under load, from prompts and their lengths to token latencies.

In: the drivers' replies, one per request. Out: time to first token, gaps between tokens, throughput, goodput, and
warnings about whatever contaminated them.
"""
