import json
import time
from array import array
from dataclasses import dataclass
from itertools import accumulate

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from benchhouse.drivers.openai import OpenAI
from benchhouse.load.protocols.calls import Exchange
from benchhouse.load.protocols.text import Generation

URL = "http://server:8000"


@dataclass
class Prompt:
    text: str = "hello"
    output_tokens: int | None = None

    def as_text(self):
        return self.text

    def as_messages(self):
        return [{"role": "user", "content": self.text}]


def driver(api="chat", headers=None, api_key=None, **asked):
    return OpenAI(URL, "m", Generation(api, **asked), headers=headers, api_key=api_key)


def parts_of(request):
    head, _, body = request.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    return first, dict(line.split(": ", 1) for line in lines), json.loads(body)


def exchange(*reads, status=200, head=b"", every_ns=1000):
    """An answer whose body came in these reads, one each microsecond."""
    reads = [read.encode() if isinstance(read, str) else read for read in reads]
    ends = list(accumulate(len(read) for read in reads))
    marks = array(
        "q", [part for number, end in enumerate(ends, 1) for part in (end, number * every_ns, number * every_ns)]
    )
    return Exchange(0, status, head, b"".join(reads), marks, marks[-2] if marks else 0)


def event(text=None, finish=None, api="chat", **more):
    said = {"delta": {} if text is None else {"content": text}} if api == "chat" else {"text": text or ""}
    return f"data: {json.dumps({'id': 'a', 'choices': [{'index': 0, **said, 'finish_reason': finish}], **more})}\n\n"


def usage(prompt=7, completion=3, **more):
    counts = {"prompt_tokens": prompt, "completion_tokens": completion, **more}
    return f"data: {json.dumps({'id': 'a', 'choices': [], 'usage': counts})}\n\n"


ROLE = 'data: {"id":"a","choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}\n\n'
DONE = "data: [DONE]\n\n"


# Requests


def test_a_chat_request_has_messages_and_a_completion_a_prompt():
    first, lines, body = parts_of(driver(extra={"temperature": 0}).request(Prompt("hé", 5)))
    assert first == "POST /v1/chat/completions HTTP/1.1"
    assert lines["Host"] == "server:8000" and int(lines["Content-Length"]) > 0
    assert body == {
        "model": "m", "stream": True, "stream_options": {"include_usage": True}, "max_tokens": 5, "temperature": 0,
        "messages": [{"role": "user", "content": "hé"}],
    }  # fmt: skip
    first, _, body = parts_of(driver("completions", stream=False).request(Prompt("a")))
    assert first == "POST /v1/completions HTTP/1.1"
    assert body == {"model": "m", "stream": False, "prompt": "a"}


def test_the_path_follows_from_the_address_and_what_is_no_host_is_not_sent_as_one():
    for url, path, host in [
        ("http://h", "/v1/completions", "h"),
        ("http://h:1/", "/v1/completions", "h:1"),
        ("http://h/v1", "/v1/completions", "h"),
        ("http://h/v1/", "/v1/completions", "h"),
        ("http://h/models/a", "/models/a/v1/completions", "h"),
        ("https://user:secret@h:2/v1?version=3", "/v1/completions?version=3", "h:2"),
    ]:
        first, lines, _ = parts_of(OpenAI(url, "m", Generation("completions")).request(Prompt()))
        assert first == f"POST {path} HTTP/1.1"
        assert lines["Host"] == host


def test_the_key_is_a_bearer_token_and_own_header_lines_overrule_ours_however_spelled():
    _, lines, _ = parts_of(driver(api_key="k", headers={"X-Team": "a"}).request(Prompt()))
    assert (lines["Authorization"], lines["X-Team"]) == ("Bearer k", "a")
    _, lines, _ = parts_of(driver(api_key="k", headers={"authorization": "Basic b"}).request(Prompt()))
    assert "Authorization" not in lines and lines["authorization"] == "Basic b"
    for headers in ({"a": "b\r\nc: d"}, {"a\nb": "c"}):
        with pytest.raises(ValueError, match="line break"):
            driver(headers=headers)


def test_half_of_a_surrogate_pair_is_sent_as_the_json_that_it_is():
    _, _, body = parts_of(driver("completions").request(Prompt("a\ud800b")))
    assert body["prompt"] == "a\ud800b"


def test_a_batch_is_several_prompts_of_one_request_and_chat_has_none():
    batched = driver("completions", batch=3)
    _, _, body = parts_of(batched.request([Prompt("a", 4), Prompt("b", 9), Prompt("c")]))
    assert (body["prompt"], body["max_tokens"]) == (["a", "b", "c"], 9)
    reply = batched.read(
        exchange(event("x", api="completions"), event("y", "length", "completions"), usage(30, 12), DONE)
    )
    assert (reply.count, reply.output_tokens, reply.error) == (3, 12, None)
    with pytest.raises(ValueError, match="batch needs api: completions"):
        driver(batch=2)


def test_the_texts_of_a_batch_are_kept_choice_by_choice():
    def said(index, text):
        return f"data: {json.dumps({'choices': [{'index': index, 'text': text, 'finish_reason': None}]})}\n\n"

    batched = driver("completions", batch=2, keep_text=True)
    assert batched.read(exchange(said(1, "c"), said(0, "a"), said(1, "d"), said(0, "b"), DONE)).text == "abcd"


# Streams


def test_each_event_with_output_has_the_stamp_of_the_read_that_completed_it():
    for api in ["chat", "completions"]:
        for keep_text in [False, True]:
            reads = [
                ROLE if api == "chat" else ": hello\n\n",
                event("a", api=api),
                event(" b", api=api),
                event(" c", "length", api),
            ]
            reply = driver(api, keep_text=keep_text).read(exchange(*reads, usage(), DONE))
            assert reply.error is None
            assert list(reply.token_ns) == [2000, 3000, 4000]
            assert (reply.input_tokens, reply.output_tokens, reply.cached_tokens) == (7, 3, None)
            assert (reply.finish, reply.text) == ("length", "a b c" if keep_text else "")
            assert reply.size == sum(map(len, [*reads, usage(), DONE]))


def test_an_event_over_several_reads_counts_when_its_line_is_complete():
    line = event("a")
    reply = driver().read(exchange(line[:10], line[10:-2], "\n", "\n" + event("b", "stop"), DONE))
    assert list(reply.token_ns) == [2000, 4000]


def test_several_events_in_one_read_have_one_stamp():
    reply = driver().read(exchange(event("a") + event("b") + event("c", "stop"), usage() + DONE))
    assert list(reply.token_ns) == [1000, 1000, 1000]


def test_several_tokens_in_one_event_are_one_event_and_the_usage_counts_them():
    reply = driver().read(exchange(event("a b c"), event(" d", "stop"), usage(completion=4), DONE))
    assert (len(reply.token_ns), reply.output_tokens) == (2, 4)


def test_cached_tokens_and_running_counts_are_taken_as_told():
    reads = [event("a", usage={"prompt_tokens": 9, "completion_tokens": 1}),
             event("b", "stop", usage={"prompt_tokens": 9, "completion_tokens": 2}),
             usage(9, 2, prompt_tokens_details={"cached_tokens": 8})]  # fmt: skip
    reply = driver().read(exchange(*reads, DONE))
    assert (len(reply.token_ns), reply.input_tokens, reply.output_tokens, reply.cached_tokens) == (2, 9, 2, 8)


def test_the_usage_may_come_without_choices():
    for last in [
        'data: {"usage":{"prompt_tokens":7,"completion_tokens":3}}\n\n',
        usage(),
        usage().replace("\n", "\r\n"),
    ]:
        assert driver().read(exchange(event("a", "stop"), last, DONE)).output_tokens == 3


def test_without_usage_nothing_is_counted():
    reply = driver().read(exchange(event("a"), event("b", "stop"), event(usage=None), DONE))
    assert (reply.error, reply.input_tokens, reply.output_tokens) == (None, None, None)


def test_a_finish_reason_is_an_end_without_done_and_done_is_one_without_a_reason():
    assert driver().read(exchange(event("a"), event("b", "stop"))).error is None
    assert driver().read(exchange(event("a"), DONE)).error is None
    cut = driver().read(exchange(event("a"), event("b")))
    assert cut.error == "reset" and "without finish_reason" in cut.detail


def test_thoughts_and_calls_of_tools_are_output():
    for key in ["reasoning_content", "reasoning", "tool_calls"]:
        value = [{"index": 0}] if key == "tool_calls" else "hm"
        thought = f"data: {json.dumps({'choices': [{'index': 0, 'delta': {key: value}, 'finish_reason': None}]})}\n\n"
        reply = driver().read(exchange(ROLE, thought, thought, event("so", "stop"), DONE))
        assert list(reply.token_ns) == [2000, 3000, 4000]


def test_the_history_of_a_conversation_is_without_thoughts_and_a_count_is_with_them():
    thought = 'data: {"choices":[{"index":0,"delta":{"reasoning_content":"hm "},"finish_reason":null}]}\n\n'
    heard = exchange(thought, event("so", "stop"), DONE)
    assert driver(keep_text=True).read(heard).text == "so"
    assert driver(keep_text=True, keep_thoughts=True).read(heard).text == "hm so"


def test_line_ends_of_windows_comments_and_heartbeats_are_no_output():
    reads = [": ping\n\n", "event: message\nid: 1\nretry: 5\n", event("a"), ":\n\n", "data:\n\n", event("b")]
    reads = [read.replace("\n", "\r\n") for read in (*reads, event("c", "stop"), DONE)]
    reply = driver().read(exchange(*reads))
    assert (reply.error, list(reply.token_ns)) == (None, [3000, 6000, 7000])


def test_a_stream_that_went_wrong_is_an_error_of_its_kind_with_the_servers_words():
    for reads, kind, said in [
        (
            [event("a"), 'data: {"error":{"message":"out of memory","code":500}}\n\n', DONE],
            "server_error",
            "out of memory",
        ),
        ([event("a"), 'data: {"object":"error","message":"too long"}\n\n'], "server_error", "too long"),
        ([event("a"), 'data: {"choices":[{"delta":{"cont\n\n', DONE], "malformed", "cont"),
        ([event("a"), 'data: {"id":"a"}\n\n', DONE], "malformed", '{"id":"a"}'),
        ([event("a"), "data: [1]\n\n", DONE], "malformed", "[1]"),
        ([event("a"), 'data: {"choices":["x"]}\n\n', DONE], "malformed", "x"),
        ([event("a"), usage(completion="3"), DONE], "malformed", "completion_tokens"),
        ([event("a"), usage(completion=-3), DONE], "malformed", "completion_tokens"),
        ([event("a"), 'data: {"choices":[],"usage":[1]}\n\n', DONE], "malformed", "usage"),
        ([event("a"), b'data: {"choices":[{"text":"\xff\n\n', DONE], "malformed", r"\xff"),
        (["<html><body>Welcome</body></html>"], "malformed", "<html>"),
        (['{"choices":[]}'], "malformed", "not a line of an event stream"),
        ([ROLE, event(None, "stop"), usage(completion=0), DONE], "empty", "no output"),
        ([DONE], "empty", "no output"),
        ([""], "reset", "without"),
    ]:
        reply = driver().read(exchange(*reads))
        assert reply.error == kind and said in reply.detail
        assert not reply.token_ns


def test_an_error_that_is_null_is_none():
    assert driver().read(exchange(event("a", error=None), event("b", "stop", error=None), DONE)).error is None


# Whole answers


def test_an_answer_in_one_piece_has_counts_and_no_stamps():
    for api, choice in [
        ("chat", {"message": {"role": "assistant", "content": "a b"}}),
        ("completions", {"text": "a b"}),
    ]:
        body = {"choices": [{**choice, "finish_reason": "stop"}], "usage": {"prompt_tokens": 4, "completion_tokens": 2}}
        reply = driver(api, stream=False, keep_text=True).read(exchange(json.dumps(body)))
        assert (reply.error, reply.text, reply.finish, reply.output_tokens) == (None, "a b", "stop", 2)
        assert not reply.token_ns


def test_an_odd_answer_in_one_piece_is_named_for_what_it_is():
    for body, kind in [
        ("<html>", "malformed"),
        ("[]", "malformed"),
        ("{}", "malformed"),
        ('{"choices":[]}', "malformed"),
        ('{"choices":[{"message":{"content":"a"}}],"usage":{"completion_tokens":1.5}}', "malformed"),
        ('{"choices":[{"message":{"content":"a"}}],"usage":"many"}', "malformed"),
        ('{"error":{"message":"busy"}}', "server_error"),
        ('{"choices":[{"message":{"content":null}}]}', "empty"),
        ('{"choices":[{"message":{"content":null,"reasoning_content":"hm"}}]}', None),
        ('{"choices":[{"message":{"content":"a"},"finish_reason":null}],"usage":null}', None),
    ]:
        assert driver(stream=False).read(exchange(body)).error == kind


def test_a_refusal_has_its_status_and_the_servers_words():
    for status, head, body, kind, said in [
        (429, b"", '{"error":{"message":"slow down","type":"rate"}}', "http_429", "slow down"),
        (404, b"", '{"error":"no such model"}', "http_404", "no such model"),
        (400, b"", '{"object":"error","message":"too long"}', "http_400", "too long"),
        (422, b"", '{"detail":[{"msg":"field required"}]}', "http_422", "field required"),
        (500, b"", "[1, 2]", "http_500", "[1, 2]"),
        (502, b"", "<h1>Bad Gateway</h1>", "http_502", "Bad Gateway"),
        (503, b"", b"\xff\xfe", "http_503", r"\xff\xfe"),
        (500, b"", "x" * 5000, "http_500", "x" * 300),
        (307, b"HTTP/1.1 307 x\r\nLocation: http://else/", "", "redirect", "http://else/"),
        (301, b"HTTP/1.1 301 x", "", "redirect", "status 301"),
    ]:
        reply = driver().read(exchange(body, status=status, head=head))
        assert reply.error == kind and said in reply.detail and len(reply.detail) <= 320


# The short way round parsing


SEPARATORS = [(",", ":"), (", ", ": ")]
TEXTS = st.text(max_size=12) | st.sampled_from(
    [
        "",
        '"',
        "\\",
        'a"b',
        "a\\",
        '\\"',
        '"content":"',
        '","finish_reason":"stop"',
        "\n",
        "é\U0001f600",
        "\u2028",
        "}]}",
    ]
)


@settings(max_examples=40)
@given(
    texts=st.lists(TEXTS, min_size=1, max_size=8),
    separators=st.sampled_from(SEPARATORS),
    api=st.sampled_from(["chat", "completions"]),
    ascii_only=st.booleans(),
    extra=st.sampled_from([{}, {"usage": None}, {"logprobs": None}, {"usage": {"completion_tokens": 1}}]),
    crlf=st.booleans(),
    cut=st.integers(1, 40),
)
@example(["a", "b\\", 'c"', "d"], (",", ":"), "chat", False, {}, False, 7)
def test_the_short_way_round_parsing_gives_the_stamps_that_parsing_every_event_gives(
    texts, separators, api, ascii_only, extra, crlf, cut
):
    def line(text, finish):
        said = {"delta": {"content": text}} if api == "chat" else {"text": text}
        choice = {"index": 0, **said, "finish_reason": finish}
        content = {"id": "x", "choices": [choice], **extra}
        end = "\r\n\r\n" if crlf else "\n\n"
        return f"data: {json.dumps(content, separators=separators, ensure_ascii=ascii_only)}{end}"

    body = "".join(line(text, None) for text in texts) + line("end", "stop") + usage() + DONE
    raw = body.encode("utf-8", "backslashreplace")
    heard = exchange(*(raw[at : at + cut] for at in range(0, len(raw), cut)))
    quick, slow = driver(api).read(heard), driver(api, keep_text=True).read(heard)
    assert (quick.error, list(quick.token_ns)) == (slow.error, list(slow.token_ns))
    assert len(slow.token_ns) == sum(text != "" for text in texts) + 1
    assert (quick.finish, quick.output_tokens) == (slow.finish, slow.output_tokens) == ("stop", 3)
    assert slow.text == "".join(texts) + "end"


def test_an_event_that_only_looks_like_the_one_before_is_read():
    """It begins and ends as the others do, and has its own end in between."""
    sneaky = (
        'data: {"choices":[{"index":0,"delta":{"content":"x"},"finish_reason":"length"},'
        '{"index":1,"delta":{"content":""},"finish_reason":null}]}\n\n'
    )
    usual = 'data: {"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":null}]}\n\n'
    assert driver().read(exchange(usual, usual, sneaky, DONE)).finish == "length"


DEEP = b"[" * 200_000


def test_json_that_is_nested_too_deep_is_the_servers_bad_answer():
    for stream in [True, False]:
        for status in [200, 500]:
            driver = OpenAI("http://x", "m", Generation(stream=stream))
            reply = driver.read(exchange(b"data: " * stream + DEEP + b"\n\n", status=status))
            assert reply.error == ("malformed" if status == 200 else "http_500")


def test_a_long_text_in_one_event_is_read_at_once():
    event = b'data: {"choices":[{"index":0,"delta":{"content":"' + b"x\\n" * 2_000_000 + b'"}}]}\n\n'
    began = time.process_time()
    assert OpenAI("http://x", "m").read(exchange(event, b"data: [DONE]\n\n")).error is None
    assert time.process_time() - began < 1.5  # 4 s, when it was looked at byte by byte
