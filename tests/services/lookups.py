"""A scenario of lookups in a PostgreSQL that a test starts."""

from typing import Any


def lookups(service: str = "postgres", **more: Any) -> dict[str, Any]:
    """51 of them (two clients do not share evenly), two at a time; `more` are other keys of the scenario."""
    load = {"operation": "lookup", "rows": 1000, "warmup": 0, "concurrency": 2, "requests": 51, "think_time": 0.01}
    target = {"endpoint": f"service:{service}"}
    return {"scenario": "s", "experiment": "storage.postgres", "workload": load, "target": target} | more
