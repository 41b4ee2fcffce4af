"""What a machine or cluster is like: site profiles, probes of the node we are on, and where things lie on it.

Names and environment variables go in; `Site` profiles, findings and paths come out.
"""
