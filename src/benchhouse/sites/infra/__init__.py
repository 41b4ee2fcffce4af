"""Infrastructure as plain files: OpenTofu for AWS, a kind cluster, a small Slurm cluster.

A request goes in; files, the commands that apply them and an estimate of cost come out. `folder` keeps a book of what
it wrote.
"""
