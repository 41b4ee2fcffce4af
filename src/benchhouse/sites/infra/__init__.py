"""Infrastructure as plain files: OpenTofu for AWS, a kind cluster, a small Slurm cluster.

A request is converted to files, the commands that apply them, and an estimate of the cost. `folder` records what it
wrote.
"""
