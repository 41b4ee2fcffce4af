"""What is asked of a server of text models: the experiment `serving.load` and its drivers share it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from benchhouse.load.protocols.calls import HttpDriver


@dataclass(frozen=True)
class Generation:
    """How text is asked for, and what is kept of an answer."""

    api: Literal["chat", "completions"] = "chat"
    stream: bool = True
    batch: int = 1
    """Prompts in one request."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Into every request: temperature, ignore_eos, or whatever else the server knows."""
    keep_text: bool = False
    keep_thoughts: bool = False
    """With `keep_text`: the reasoning before the answer as well."""


class TextDriver(Protocol):
    """Makes the HTTP driver of one model on a server; `headers` overrule what the driver itself sends."""

    def __call__(
        self,
        url: str,
        model: str,
        generation: Generation = ...,
        *,
        api_key: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> HttpDriver: ...
