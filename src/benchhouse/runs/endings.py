"""The outcome of a trial for the ledger, taken from its sealed folder."""

from typing import Any

from benchhouse.schema.trial import Meta


def sealed_end(name: str, meta: Meta, outcome: str, manifest: str) -> dict[str, Any]:
    """Return the fields of the event `ended` of a sealed trial; `manifest` is the digest of its manifest."""
    failure = meta.failure
    return {
        "trial_id": name,
        "attempt": meta.attempts[-1].attempt,
        "outcome": outcome,
        "manifest": manifest,
        "reason": failure.message[:500] if failure else "",
        "code": failure.code if failure else "",
        "duration_s": meta.duration_s,
        "cpu_s": meta.usage.get("cpu_s"),
    }
