"""Convert failed HTTP answers to results, for all drivers over HTTP."""

import re

from benchhouse.load.protocols.calls import CallResult, Exchange

DETAIL_CHARACTERS = 300
_LOCATION = re.compile(rb"\r\nlocation[ \t]*:[ \t]*([^\r\n]*)", re.IGNORECASE)


def refusal(exchange: Exchange, message: str) -> CallResult:
    """Return the result of a failed answer. `message` is the server's own; a redirect, not followed, has its target."""
    if not 300 <= exchange.status < 400:
        return CallResult(error=f"http_{exchange.status}", detail=message[:DETAIL_CHARACTERS])
    location = _LOCATION.search(exchange.head)
    target = location[1].strip().decode("latin-1") if location else message
    return CallResult(error="redirect", detail=f"status {exchange.status}: {target}"[:DETAIL_CHARACTERS])


def excerpt(data: bytes) -> str:
    return data[:DETAIL_CHARACTERS].decode("utf-8", "backslashreplace")
