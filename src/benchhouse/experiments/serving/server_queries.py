"""Simple questions to the server beside the load: is it up, which models has it, what do its metrics say."""

import ssl
from collections.abc import Mapping
from http.client import HTTPException
from urllib.request import BaseHandler, HTTPSHandler, ProxyHandler, Request, build_opener

_LIMIT_BYTES = 10_000_000


def ask(
    url: str, *, headers: Mapping[str, str] | None = None, verify_tls: bool = True, timeout_s: float = 10.0
) -> bytes:
    """The body of a good answer, at most 10 MB of it; OSError or ValueError for anything else.

    It goes straight to the server, as the load does, whatever proxy the environment names.
    """
    if not url.startswith(("http://", "https://")):
        raise ValueError(f"{url!r} is not an http:// or https:// address")
    handlers: list[BaseHandler] = [ProxyHandler({})]
    if url.startswith("https://"):  # to load the certificates of all authorities takes its time
        context = ssl.create_default_context()
        if not verify_tls:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        handlers.append(HTTPSHandler(context=context))
    opener = build_opener(*handlers)
    try:
        with opener.open(Request(url, headers=dict(headers or {})), timeout=timeout_s) as answer:  # noqa: S310
            return bytes(answer.read(_LIMIT_BYTES))
    except HTTPException as error:
        raise OSError(f"not an HTTP answer: {error!r}") from error
