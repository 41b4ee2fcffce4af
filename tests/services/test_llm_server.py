"""The real servers behave as the tests that use them assume, and both run the same tiny model."""

from __future__ import annotations

import http.client
import json
import os
import urllib.error
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from services import tiny_model
from services.llm import NoServerError, RealLLM, RealVLLM, installed, post

PROMPT = "A good client sends each request at the moment it promised"
QUESTION = [{"role": "user", "content": PROMPT}]


def completion(server: RealLLM | RealVLLM, tokens: int, **more: object) -> list[dict]:
    body = {"model": server.model, "prompt": PROMPT, "max_tokens": tokens, "temperature": 0, **more}
    return post(server.url + "/v1/completions", body)


def streamed_text(events: list[dict]) -> list[str]:
    """Text of the events that carry some, in either of the two APIs."""
    choices = [event["choices"][0] for event in events if event["choices"]]
    texts = [choice["delta"].get("content") if "delta" in choice else choice["text"] for choice in choices]
    return [text for text in texts if text]


def usage_of(events: list[dict]) -> dict:
    (usage,) = [event["usage"] for event in events if event.get("usage")]
    return usage


def check_streams_what_was_asked(server: RealLLM | RealVLLM) -> None:
    prompt_tokens = len(tiny_model.Tokenizer().encode(PROMPT))
    for asked in (1, 7, 32):
        events = completion(server, asked, stream=True, stream_options={"include_usage": True}, ignore_eos=True)
        usage = usage_of(events)
        assert (usage["prompt_tokens"], usage["completion_tokens"]) == (prompt_tokens, asked)
        texts = streamed_text(events)
        assert 0 < len(texts) <= asked
        (whole,) = completion(server, asked)
        assert "".join(texts) == whole["choices"][0]["text"]
        assert whole["choices"][0]["finish_reason"] == "length"
        assert (whole["usage"]["prompt_tokens"], whole["usage"]["completion_tokens"]) == (prompt_tokens, asked)


def check_chats(server: RealLLM | RealVLLM) -> None:
    body = {"model": server.model, "messages": QUESTION, "max_tokens": 9, "temperature": 0}
    (whole,) = post(server.url + "/v1/chat/completions", body)
    events = post(
        server.url + "/v1/chat/completions", body | {"stream": True, "stream_options": {"include_usage": True}}
    )
    assert usage_of(events)["completion_tokens"] == whole["usage"]["completion_tokens"] == 9
    assert "".join(streamed_text(events)) == whole["choices"][0]["message"]["content"]


def test_llama_streams_chats_counts_the_prompt_as_we_do_and_queues_more_requests_than_it_has_slots(
    real_llm: RealLLM,
) -> None:
    check_streams_what_was_asked(real_llm)
    check_chats(real_llm)
    with ThreadPoolExecutor(24) as pool:
        answers = list(pool.map(lambda _: completion(real_llm, 4)[0]["choices"][0]["text"], range(24)))
    assert len(answers) == 24
    assert all(answers)


def test_llama_closes_the_connection_after_a_stream_and_does_not_say_so(real_llm: RealLLM) -> None:
    """A trait to know: a client that sends its next request on that connection sees it end without an answer."""
    kept = {}
    for stream in (False, True):
        connection = http.client.HTTPConnection(real_llm.url.removeprefix("http://"), timeout=30)
        body = {"model": real_llm.model, "prompt": PROMPT, "max_tokens": 2, "stream": stream}
        connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        assert answer.status == 200
        assert answer.getheader("Keep-Alive")
        assert answer.getheader("Connection") is None
        answer.read()
        connection.sock.settimeout(1)
        try:
            kept[stream] = connection.sock.recv(1) != b""
        except TimeoutError:
            kept[stream] = True
        connection.close()
    assert kept == {False: True, True: False}


def test_llama_has_its_options_and_its_process_ends_with_the_server(real_llm: RealLLM) -> None:
    """The tokens that it found in its cache, which one server has and the other has not; and a key of its own."""
    again = [completion(real_llm, 1)[0]["usage"]["prompt_tokens_details"]["cached_tokens"] for _ in range(2)]
    assert again[1] > 0
    with RealLLM(slots=1, prefix_cache=False, api_key="right") as server:
        pid = server.pid
        os.kill(pid, 0)
        url = server.url + "/v1/completions"
        body = {"model": server.model, "prompt": PROMPT, "max_tokens": 2}
        for _ in range(2):
            usage = post(url, body, api_key="right")[0]["usage"]
            assert usage["completion_tokens"] == 2
            assert usage["prompt_tokens_details"]["cached_tokens"] == 0
        with pytest.raises(urllib.error.HTTPError, match="401"):
            post(url, body, api_key="wrong")
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


@pytest.mark.slow("vLLM on the CPU takes up to three minutes to start; skipped where its environment is not made")
def test_vllm_streams_chats_and_writes_the_text_of_llama_from_the_same_weights(
    real_llm: RealLLM, real_vllm: RealVLLM
) -> None:
    check_streams_what_was_asked(real_vllm)
    check_chats(real_vllm)
    texts = [completion(server, 12)[0]["choices"][0]["text"] for server in (real_llm, real_vllm)]
    assert texts[0] == texts[1]


def test_a_server_that_was_never_installed_is_named_with_the_command_that_installs_it(tmp_path: Path) -> None:
    with pytest.raises(NoServerError, match=r"scripts/install-llm-server\.sh vllm"):
        installed("vllm", tmp_path / "vllm", wait_s=0)


def test_an_install_that_fails_is_a_reason_to_skip(tmp_path: Path) -> None:
    with pytest.raises(NoServerError, match=r"failed: .*no LLM server called nonsense"):
        installed("nonsense", tmp_path, wait_s=30)
