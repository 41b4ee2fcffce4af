"""Experiment `serving.load`: inference servers under load, from prompts and their lengths to token latencies.

What the drivers reply goes in, request by request; time to first token, gaps between tokens, throughput, goodput and
warnings about what contaminated them come out.
"""
