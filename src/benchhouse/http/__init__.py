"""HTTP beside the load: one client with limits and one kind of error, S3, Kubernetes, and Prometheus pages.

Addresses go in; responses and samples come out. The load engine moves its own bytes and does not use this.
"""
