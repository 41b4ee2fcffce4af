"""Storage under load: files, PostgreSQL, and S3; one experiment per module.

In: the place of the storage and its load. Out: rates, latencies, and whether everything that was written is there.
"""
