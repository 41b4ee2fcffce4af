"""What a machine or cluster provides: site profiles, probes of this node, and the places of files on it.

The input is names and environment variables; the output is `Site` profiles, findings, and paths.
"""
