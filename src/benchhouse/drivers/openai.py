"""OpenAI-compatible servers (vLLM, llm-d, KServe, SGLang, llama.cpp, ...): completions and chat, streamed or not."""

import json
import re
from array import array
from collections.abc import Mapping
from typing import Any, ClassVar, Literal
from urllib.parse import urlsplit

from benchhouse.drivers.refusals import excerpt, refusal
from benchhouse.load.answers import alike, arrivals
from benchhouse.load.protocols.calls import CallResult, Exchange
from benchhouse.load.protocols.text import Generation
from benchhouse.schema.json_text import read_json
from benchhouse.schema.secrets import split_userinfo

_PATHS = {"chat": "/chat/completions", "completions": "/completions"}
_OTHER_FIELDS = (b":", b"event:", b"id:", b"retry:")
_raw_decode = json.JSONDecoder().raw_decode
# RecursionError: nested too deep
_NOT_OF_THIS_API = (ValueError, LookupError, TypeError, AttributeError, RecursionError)
_IN_QUOTES = re.compile(rb'[^"\\]*+(?:\\.[^"\\]*+)*+', re.DOTALL)


class OpenAI:
    """Builds request bodies and reads finished answers; the engine does everything in between.

    Only completions accept several prompts in one request.
    """

    transport: ClassVar[Literal["http"]] = "http"

    def __init__(
        self,
        url: str,
        model: str,
        generation: Generation = Generation(),  # noqa: B008 - frozen
        *,
        api_key: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        api, stream = generation.api, generation.stream
        if generation.batch > 1 and api == "chat":
            raise ValueError("a chat request holds one conversation: batch needs api: completions")
        parts = urlsplit(split_userinfo(url)[0])
        self.url = f"{parts.scheme}://{parts.netloc}"
        base = parts.path.rstrip("/")
        query = f"?{parts.query}" if parts.query else ""
        self._path = (base if base.endswith("/v1") else f"{base}/v1") + _PATHS[api] + query
        self._chat, self._stream, self._batch = api == "chat", stream, generation.batch
        self._keep_text, self._keep_thoughts = generation.keep_text, generation.keep_thoughts
        self._text_keys = (b'"content":"', b'"content": "') if self._chat else (b'"text":"', b'"text": "')
        self._fixed: dict[str, Any] = {"model": model, "stream": stream}
        if stream:
            self._fixed["stream_options"] = {"include_usage": True}
        self._extra = dict(generation.extra)
        self._lines = _header_lines(
            {
                "Host": parts.netloc,
                "User-Agent": "benchhouse",
                "Accept": "text/event-stream" if stream else "application/json",
                "Content-Type": "application/json",
                **({"Authorization": f"Bearer {api_key}"} if api_key else {}),
            },
            headers or {},
        )

    def request(self, item: Any) -> bytes:
        """Return a request. `item`, or each one of a batch, has `as_messages()` or `as_text()`, and `output_tokens`."""
        prompt: dict[str, Any]
        if self._batch > 1:
            tokens = max((part.output_tokens or 0 for part in item), default=0)
            prompt = {"prompt": [part.as_text() for part in item]}
        else:
            tokens = item.output_tokens
            prompt = {"messages": item.as_messages()} if self._chat else {"prompt": item.as_text()}
        limit = {"max_tokens": tokens} if tokens else {}
        text = json.dumps(self._fixed | prompt | limit | self._extra, ensure_ascii=False)
        # half of a surrogate pair has no other form, and that is valid JSON
        body = text.encode("utf-8", "backslashreplace")
        head = f"POST {self._path} HTTP/1.1\r\n{self._lines}Content-Length: {len(body)}\r\n\r\n"
        return head.encode() + body

    def read(self, exchange: Exchange) -> CallResult:
        if exchange.status != 200:
            return refusal(exchange, _error_text(exchange.body))
        return self._read_stream(exchange) if self._stream else self._read_whole(exchange)

    def _read_whole(self, exchange: Exchange) -> CallResult:
        reply = CallResult(size=len(exchange.body), count=self._batch)
        texts: dict[int, list[str]] = {}
        try:
            answer = read_json(exchange.body)
            brought = self._take(answer, reply, texts)
            if not reply.error and not answer["choices"]:
                raise LookupError
        except _NOT_OF_THIS_API:
            return CallResult(error="malformed", detail=f"not an answer of this API: {excerpt(exchange.body)}")
        if reply.error:
            return reply
        if not brought and not reply.output_tokens:
            return CallResult(error="empty", detail="the answer holds no output")
        reply.text = _joined(texts)
        return reply

    def _read_stream(self, exchange: Exchange) -> CallResult:
        """Read a stream, with one timestamp per event with output: that of the read which completed the event."""
        reply, ends = (
            CallResult(size=len(exchange.body), count=self._batch),
            array("q"),
        )  # the positions where events with output end
        texts: dict[int, list[str]] = {}
        body, at, done = exchange.body, 0, False
        while (start := at) < len(body):
            end = body.find(b"\n", at)
            at = end + 1 or len(body) + 1
            if end == start:  # between two events
                continue
            line = body[start : at - 1]
            if not line.startswith(b"data:"):
                if line != b"\r" and not line.startswith(_OTHER_FIELDS):
                    return CallResult(error="malformed", detail=f"not a line of an event stream: {excerpt(line)}")
            elif (data := line[5:].strip()) in (b"", b"[DONE]"):
                done |= data != b""
            else:
                try:
                    brought = self._take(_decoded(data.decode()), reply, texts)
                except _NOT_OF_THIS_API:
                    return CallResult(error="malformed", detail=f"not an event of this API: {excerpt(line)}")
                if reply.error:
                    return reply
                if brought:
                    ends.append(at - 1)
                    if not reply.finish and not self._keep_text:
                        at = self._pass_over_its_like(body, line, start, ends)
        if not done and not reply.finish:
            return CallResult(error="reset", detail="the stream ended without finish_reason and without [DONE]")
        if not ends:
            return CallResult(error="empty", detail="the stream brought no output")
        reply.token_ns, reply.unsure_ns = arrivals(ends, exchange.marks)
        reply.text = _joined(texts)
        return reply

    def _pass_over_its_like(self, body: bytes, line: bytes, start: int, ends: "array[int]") -> int:
        """Count the following events that differ from `line` only in their text. Return the position after them."""
        begin, end = self._around_text(line)
        after = start + len(line) + 1
        if not end:
            return after
        empty_line = b"\r\n" if line.endswith(b"\r") else b"\n"
        if not body.startswith(empty_line, after):
            return after
        at, places = alike(body, after + len(empty_line), begin, end + b"\n" + empty_line)
        ends.frombytes(places)
        return at

    def _around_text(self, line: bytes) -> tuple[bytes, bytes]:
        """Return the bytes before and after the text of an event that contains nothing else, to recognize similar
        events unparsed.

        The key cannot occur inside a JSON string, where its quotes would be escaped. Both are empty for other events.
        """
        for key in self._text_keys:
            if (at := line.find(key)) > 0 and line.count(key) == 1:
                at += len(key)
                return line[:at], line[_IN_QUOTES.match(line, at).end() :]  # type: ignore[union-attr]  # it may be empty
        return b"", b""

    def _take(self, content: dict[str, Any], reply: CallResult, texts: dict[int, list[str]]) -> bool:
        """Read an event or a whole answer, and return whether it brought output."""
        if content.get("error") or content.get("object") == "error":
            reply.error, reply.detail = "server_error", excerpt(json.dumps(content.get("error") or content).encode())
            return False
        usage = content.get("usage")
        if usage:  # some servers send running counts with every event: the last one counts
            reply.input_tokens = _number(usage, "prompt_tokens")
            reply.output_tokens = _number(usage, "completion_tokens")
            reply.cached_tokens = _number(usage.get("prompt_tokens_details") or {}, "cached_tokens")
        brought = False
        for choice in content.get("choices", ()) if usage else content["choices"]:
            reply.finish = choice.get("finish_reason") or reply.finish
            message = choice.get("delta") or choice.get("message") or {}
            text = message.get("content") or choice.get("text") or ""
            thought = message.get("reasoning_content") or message.get("reasoning") or ""
            brought |= bool(text or thought or message.get("tool_calls"))
            if self._keep_text:
                texts.setdefault(choice.get("index", 0), []).append(thought + text if self._keep_thoughts else text)
        return brought


def _decoded(text: str) -> Any:
    """Decode like `json.loads`, without its search for an encoding and whitespace."""
    content, end = _raw_decode(text)
    if end != len(text):
        raise ValueError(f"more than one value: {text[end:][:40]!r}")
    return content


def _joined(texts: dict[int, list[str]]) -> str:
    return "".join(part for index in sorted(texts) for part in texts[index])


def _number(counts: dict[str, Any], name: str) -> int | None:
    number = counts.get(name)
    if number is not None and (type(number) is not int or number < 0):
        raise ValueError(f"{name} is {number!r}")
    return number


def _header_lines(ours: dict[str, str], theirs: Mapping[str, str]) -> str:
    """Return the header lines; `theirs` override `ours` regardless of case."""
    overruled = {name.lower() for name in theirs}
    lines = {name: value for name, value in ours.items() if name.lower() not in overruled} | dict(theirs)
    for name, value in lines.items():
        if "\n" in f"{name}{value}" or "\r" in f"{name}{value}":
            raise ValueError(f"a header line can't hold a line break: {name}")
    return "".join(f"{name}: {value}\r\n" for name, value in lines.items())


def _error_text(body: bytes) -> str:
    try:
        content = read_json(body)
        error = content.get("error", content.get("message", content))
        return str(error.get("message", error) if isinstance(error, dict) else error)
    except _NOT_OF_THIS_API:
        return excerpt(body)
