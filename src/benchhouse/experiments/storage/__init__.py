"""Storage under load: files, PostgreSQL, S3; one experiment a module.

In: where the storage is and what is asked of it. Out: rates, latencies, and whether what was written is there.
"""
