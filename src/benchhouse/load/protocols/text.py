"""Requests to a server of text models, shared by the experiment `serving.load` and its drivers."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from benchhouse.load.protocols.calls import HttpDriver


@dataclass(frozen=True)
class Generation:
    """How text is requested, and what is kept of an answer."""

    api: Literal["chat", "completions"] = "chat"
    stream: bool = True
    batch: int = 1
    """Prompts in one request."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Fields of every request: temperature, ignore_eos, or any other that the server supports."""
    keep_text: bool = False
    keep_thoughts: bool = False
    """With `keep_text`: the reasoning before the answer as well."""


class TextDriver(Protocol):
    """Creates the HTTP driver of one model on a server; `headers` override those of the driver."""

    def __call__(
        self,
        url: str,
        model: str,
        generation: Generation = ...,
        *,
        api_key: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> HttpDriver: ...
