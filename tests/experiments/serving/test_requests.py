import json
import sys
import time
from array import array
from types import SimpleNamespace

import pytest
from mocks.llm import MockLLM
from mocks.scripted import ScriptedServer

from benchhouse.drivers.openai import OpenAI
from benchhouse.experiments.serving.inputs import ServingTarget, ServingWorkload
from benchhouse.experiments.serving.prompts import ConversationPrompts, build_prompts
from benchhouse.experiments.serving.requests import Conversations, PromptRequests
from benchhouse.load.load_record import Call
from benchhouse.load.protocols.calls import CallResult, Exchange
from benchhouse.load.protocols.text import Generation
from benchhouse.schema.errors import BenchError

CTX = SimpleNamespace(trial_id="one", seed=5, driver=lambda name: OpenAI)


def requests(target=None, url="http://server", **workload):
    made = ServingTarget(**{"url": url, "model": "m", "api": "completions"} | (target or {}))
    return PromptRequests(made, [url], ServingWorkload(**{"concurrency": 1} | workload), CTX)


def body_of(planned):
    return json.loads(planned.data.partition(b"\r\n\r\n")[2])


def test_every_request_says_something_else_and_asks_for_its_length():
    made = requests(requests=20, warmup=0, prompts={"prompt_tokens": 8, "output_tokens": 5})
    bodies = [body_of(made.source.take(number)) for number in range(20)]
    assert len({body["prompt"] for body in bodies}) == 20
    assert {body["max_tokens"] for body in bodies} == {5}
    assert made.source.take(3).item.output_tokens == 5
    assert made.repeats(20) == 0.0
    assert made.repeats(40) == 0.5


def test_a_batch_takes_the_next_prompts_and_asks_for_the_tokens_of_all():
    made = requests(requests=4, warmup=0, batch=3, prompts={"prompt_tokens": 8, "output_tokens": 5})
    single = requests(requests=12, warmup=0, prompts={"prompt_tokens": 8, "output_tokens": 5})
    bodies = [body_of(made.source.take(number)) for number in range(4)]
    said = [prompt for body in bodies for prompt in body["prompt"]]
    assert said == [body_of(single.source.take(number))["prompt"] for number in range(12)]
    assert made.source.take(0).item.output_tokens == 15
    assert (made.repeats(4), made.repeats(8)) == (0.0, 0.5)


def test_a_chat_has_no_batch():
    with pytest.raises(BenchError, match="a chat request holds one conversation"):
        requests({"api": "chat"}, batch=2)
    with pytest.raises(ValueError, match="conversations need batch: 1"):
        ServingWorkload(concurrency=1, batch=2, prompts={"kind": "conversation"})


def test_there_are_prompts_enough_for_the_load_that_is_planned():
    for workload, fewest, most in [
        ({"requests": 30, "warmup": 0}, 30, 30),
        ({"rps": 20, "duration": 10, "warmup": 0, "concurrency": None}, 200, 400),
        ({"rps": 20, "requests": 50, "warmup": 1, "concurrency": None}, 70, 300),
        ({"concurrency": None, "arrivals": {"kind": "steps", "rates": [10, 90], "each": 5}}, 590, 900),
        ({"rps": 10, "concurrency": None, "duration": 10, "arrivals": {"kind": "ramp", "to": 90}}, 500, 900),
    ]:
        assert fewest <= len(requests(**workload).prompts) <= most


def test_a_trace_has_a_prompt_for_each_of_its_arrivals(tmp_path):
    file = tmp_path / "t.txt"
    file.write_text("".join(f"{at / 10}\n" for at in range(300)))
    arrivals = {"kind": "trace", "file": str(file)}
    assert len(requests(concurrency=None, duration=20, warmup=1, arrivals=arrivals).prompts) == 210


class FakeTokenizer:
    """A word is a token."""

    @classmethod
    def from_file(cls, file):
        return cls()

    def no_truncation(self):
        pass

    def no_padding(self):
        pass

    def encode(self, text, add_special_tokens):
        return SimpleNamespace(ids=text.split())


@pytest.fixture
def tokenizer(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tokenizers", SimpleNamespace(Tokenizer=FakeTokenizer))
    file = tmp_path / "tokenizer.json"
    file.write_text("{}")
    return str(file)


def test_the_tokenizer_of_the_target_counts_what_goes_in_and_what_comes_out(tokenizer):
    made = requests({"tokenizer": tokenizer}, requests=3, warmup=0, prompts={"prompt_tokens": 8})
    assert made.source.take(0).item.input_tokens == 8
    body = b'data: {"choices":[{"index":0,"text":"a b","finish_reason":"stop"}]}\n\n'
    reply = made.driver().read(Exchange(0, 200, b"", body, array("q", (len(body), 1, 1)), 1))
    assert (reply.output_tokens, reply.text) == (None, "a b")
    tally = made.tally()
    call = Call(0, 0, True, made.source.take(0).item)
    call.ended_ns = 1
    tally.add(call, reply, 0, 10)
    assert (tally.output_tokens, tally.input_tokens, tally.counted_here) == (2, 8, 1)


def test_a_tokenizer_that_is_not_there_is_told():
    with pytest.raises(BenchError, match="does not exist"):
        requests({"tokenizer": "/no/such/tokenizer.json"})


# Which model


def test_the_only_model_of_a_server_need_not_be_named():
    with MockLLM() as server:
        made = requests({"model": ""}, server.url)
    assert body_of(made.source.take(0))["model"] == "mock"


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b'{"data":[{"id":"a"},{"id":"b"}]}', r"2 models \(a, b\)"),
        (b'{"data":[]}', "0 models"),
        (b"<html>", "does not say which models"),
        (b'{"data":7}', "does not say which models"),
    ],
)
def test_several_models_none_or_no_answer_ask_for_a_name(answer, said):
    def script(wire):
        wire.request()
        wire.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(answer) + answer)

    with ScriptedServer(script) as server, pytest.raises(BenchError, match=said):
        requests({"model": ""}, server.url)


def test_the_question_for_models_goes_straight_to_the_server_with_the_key(monkeypatch):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")

    def script(wire):
        wire.request()
        wire.send(b'HTTP/1.1 200 OK\r\nContent-Length: 21\r\n\r\n{"data":[{"id":"a"}]}')

    with ScriptedServer(script) as server:
        requests({"model": "", "api_key": "k"}, server.url)
        assert b"Authorization: Bearer k" in server.requests[0]


# Conversations


def conversations(turns=2, think_time=0.0):
    spec = ConversationPrompts(turns=turns, prompt_tokens=4, output_tokens=3, think_time=think_time)
    prompts = build_prompts(spec, requests=20, seed=1)
    return Conversations(prompts, OpenAI("http://server", "m", Generation(keep_text=True)), 1, think_time)


def test_the_next_turn_comes_with_the_answer_before_it():
    source = conversations()
    first = source.take(0)
    source.answered(first.item, CallResult(text="an answer"))
    messages = body_of(source.take(1))["messages"]
    assert [message["role"] for message in messages] == ["user", "assistant", "user"]
    assert messages[0] == body_of(first)["messages"][0]
    assert messages[1]["content"] == "an answer"


def test_a_conversation_ends_with_its_last_turn_or_a_failure():
    source = conversations()
    first = source.take(0)
    source.answered(first.item, CallResult(error="timeout"))
    second = source.take(1)
    assert (second.item.turn, second.item.conversation) == (0, 1)
    source.answered(second.item, CallResult(text="a"))
    last = source.take(2)
    source.answered(last.item, CallResult(text="b"))
    assert (source.take(3).item.conversation, last.item.turn) == (2, 1)


def test_a_turn_waits_for_its_think_time_and_other_conversations_go_on():
    source = conversations(think_time=0.05)
    source.answered(source.take(0).item, CallResult(text="a"))
    assert source.take(1).item.turn == 0
    time.sleep(0.06)
    assert source.take(2).item.turn == 1
