"""Driver `triton_llm`: a text model on a Triton server (vLLM, TensorRT-LLM, Python), for the LLM loads of
`serving.load`.

A prompt is sent to `generate_stream`, or to `generate` if answers are not streamed.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from benchhouse.drivers.triton import TritonHttp
from benchhouse.drivers.triton_target import target_of
from benchhouse.drivers.triton_tensors import Tensor
from benchhouse.load.protocols.calls import CallResult, Exchange
from benchhouse.load.protocols.text import Generation
from benchhouse.schema.errors import BenchError


class _Hello(NamedTuple):
    """A prompt for testing the model."""

    output_tokens: int = 1

    def as_text(self) -> str:
        return "Hello"


class TritonLLM(TritonHttp):
    """An `HttpDriver` whose items are prompts: `as_text()` and `output_tokens`.

    `generation.extra` holds parameters and values of other inputs. Its keys `text_input`, `length_input`, and
    `text_output` are the model's names for the prompt, its output tokens, and the answer. The protocol has no chat, so
    `api` makes no difference: a conversation is sent as one text.
    """

    def __init__(
        self,
        url: str,
        model: str,
        generation: Generation = Generation(),  # noqa: B008 - frozen
        *,
        api_key: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        if generation.batch > 1:
            raise BenchError("Triton's generate takes one prompt a request", hint="batch: 1")
        self._extra = dict(generation.extra)
        self._prompt = str(self._extra.pop("text_input", "text_input"))
        self._length = str(self._extra.pop("length_input", "max_tokens"))
        self._answer = str(self._extra.pop("text_output", "text_output"))
        self._keep_text = generation.keep_text
        bearer = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        call = "stream" if generation.stream else "generate"
        super().__init__(target_of(url=url, model=model, call=call, headers={**bearer, **(headers or {})}))

    def request(self, item: Any) -> bytes:
        tokens = {} if item.output_tokens is None else {self._length: item.output_tokens}
        return self._generate({**self._extra, self._prompt: item.as_text(), **tokens})

    def read(self, exchange: Exchange) -> CallResult:
        reply = super().read(exchange)
        if not self._keep_text:
            reply.text = ""
        return reply

    def _sample(self) -> _Hello:
        return _Hello()

    def _sets(self) -> list[list[Tensor]]:
        """Return no inputs: the workload supplies prompts. Raise BenchError if a required input has no value."""
        name, inputs = self.model.name, [spec.name for spec in self.model.inputs]
        if self._prompt not in inputs:
            raise BenchError(
                f"model {name!r} takes no prompts as {self._prompt!r}; it takes {', '.join(inputs)}",
                hint="say which input takes the prompt: extra: {text_input: NAME}",
            )
        given = {self._prompt, self._length, *self._extra}
        if missing := [spec.name for spec in self.model.inputs if not spec.optional and spec.name not in given]:
            raise BenchError(
                f"model {name!r} also needs {', '.join(missing)}",
                hint=f"extra: {{{missing[0]}: VALUE}}, or extra: {{length_input: {missing[0]}}} for the output tokens",
            )
        outputs = [spec.name for spec in self.model.outputs]
        if self._answer not in outputs:
            raise BenchError(
                f"model {name!r} has no output {self._answer!r}; it has {', '.join(outputs)}",
                hint="say which output is the text: extra: {text_output: NAME}",
            )
        return []

    def _text(self, answer: Mapping[str, Any]) -> str:
        return str(answer.get(self._answer, ""))
