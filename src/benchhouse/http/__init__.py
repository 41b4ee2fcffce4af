"""HTTP outside the measured load: one client with limits and one kind of error, S3, Kubernetes, and Prometheus pages.

The load engine has its own transport and does not use this.
"""
