"""The driver of text models against a real Triton server."""

import json
from array import array
from typing import NamedTuple

import pytest
from services.triton import exchange

from benchhouse.drivers.triton_llm import TritonLLM
from benchhouse.load.protocols.calls import CallResult, Exchange
from benchhouse.load.protocols.text import Generation
from benchhouse.schema.errors import BenchError

COUNTED = {"length_input": "count"}


class Prompt(NamedTuple):
    """As the serving experiment makes them."""

    text: str
    output_tokens: int | None

    def as_text(self) -> str:
        return self.text


def ask(driver: TritonLLM, prompt: Prompt) -> CallResult:
    return driver.read(exchange(driver.request(prompt), driver.url))


def test_a_prompt_asks_for_its_own_number_of_tokens(triton):
    driver = TritonLLM(triton.url, "decoupled", Generation(extra=COUNTED, keep_text=True))
    reply = ask(driver, Prompt("hé", 3))
    assert (reply.text, len(reply.token_ns)) == ("token1 token2 token3 ", 3)
    assert json.loads(driver.request(Prompt("hé", 3)).partition(b"\r\n\r\n")[2])["text_input"] == "hé"


def test_extra_gives_other_inputs_their_values(triton):
    driver = TritonLLM(triton.url, "decoupled", Generation(extra={"count": 2}))
    reply = ask(driver, Prompt("a", None))
    assert (reply.text, len(reply.token_ns)) == ("", 2)  # nobody asked to keep the text


def test_without_streaming_there_is_one_answer(triton):
    driver = TritonLLM(triton.url, "decoupled", Generation(stream=False, extra=COUNTED, keep_text=True))
    reply = ask(driver, Prompt("a", 1))
    assert (reply.error, reply.text, list(reply.token_ns)) == (None, "token1 ", [])


def test_an_event_without_text_is_no_token_and_an_answer_without_any_is_empty(triton):
    driver = TritonLLM(triton.url, "decoupled", Generation(extra=COUNTED))
    some, none = b'data: {"text_output":"a"}\n\n', b'data: {"text_output":""}\n\n'
    reply = driver.read(Exchange(0, 200, b"", some + none, array("q", (len(some), 10, 0, len(some + none), 20, 10))))
    assert list(reply.token_ns) == [10]
    assert driver.read(Exchange(0, 200, b"", none, array("q", (len(none), 10, 0)))).error == "empty"
    whole = TritonLLM(triton.url, "decoupled", Generation(stream=False, extra=COUNTED))
    assert whole.read(Exchange(0, 200, b"", b'{"text_output":""}')).error == "empty"


def test_check_tells_what_the_server_says_to_a_prompt(triton):
    TritonLLM(triton.url, "decoupled", Generation(extra=COUNTED)).check()
    with pytest.raises(BenchError, match="server_error: the planted failure"):
        TritonLLM(triton.url, "decoupled", Generation(extra={"count": -2})).check()


def test_a_key_goes_into_the_headers(triton):
    driver = TritonLLM(triton.url, "decoupled", Generation(extra=COUNTED), api_key="k", headers={"X-Tenant": "a"})
    head = driver.request(Prompt("a", 1)).partition(b"\r\n\r\n")[0]
    assert b"\r\nAuthorization: Bearer k\r\nX-Tenant: a" in head


def test_a_target_that_does_not_fit_is_refused_before_the_load(triton):
    for model, options, message in [
        ("slow", {}, "takes no prompts as 'text_input'; it takes INPUT0"),
        ("decoupled", {}, r"also needs count\nextra: \{count: VALUE\}"),
        ("decoupled", {"extra": {**COUNTED, "text_output": "words"}}, "no output 'words'; it has text_output"),
        ("decoupled", {"batch": 2}, "one prompt a request"),
        ("decoupled", {"headers": {"A": "b\nc"}}, "can't be sent"),
        ("decopled", {}, "has no model 'decopled'"),
    ]:
        asked = dict(options)
        headers = asked.pop("headers", None)
        with pytest.raises(BenchError, match=message):
            TritonLLM(triton.url, model, Generation(**asked), headers=headers)
