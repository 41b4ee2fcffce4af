import json
import os
import subprocess
import sys
import time
from collections import Counter

import pytest
from pydantic import TypeAdapter, ValidationError

from benchhouse.experiments.serving import prompts as module
from benchhouse.experiments.serving.datasets import Message
from benchhouse.experiments.serving.prompts import (
    ConversationPrompts,
    DatasetPrompts,
    Prompt,
    PromptSet,
    PromptSpec,
    SyntheticPrompts,
    build_prompts,
)
from benchhouse.schema.errors import BenchError

SPEC = TypeAdapter(PromptSpec)
UNIFORM = {"kind": "uniform", "low": 8, "high": 40}


def build(requests=None, seed=0, **spec) -> PromptSet:
    return build_prompts(SPEC.validate_python(spec), requests=requests, seed=seed)


def openings(pool: PromptSet, words: int, skip: int = 0) -> Counter:
    return Counter(tuple(pool[index].text.split()[skip : skip + words]) for index in range(len(pool)))


# ---- synthetic prompts --------------------------------------------------------------------------------------------


def test_prompts_without_a_kind_are_synthetic():
    assert SPEC.validate_python({"prompt_tokens": 5}) == SyntheticPrompts(prompt_tokens=5)


def test_a_prompt_has_a_word_for_each_token_asked_for():
    pool = build(100, prompt_tokens=UNIFORM, output_tokens=UNIFORM)
    asked = [pool[index].input_tokens_asked for index in range(100)]
    assert [len(pool[index].text.split()) for index in range(100)] == asked
    assert min(asked) < 15
    assert max(asked) > 33
    assert len({pool[index].output_tokens for index in range(100)}) > 20


def test_all_prompts_start_differently():
    pool = build(prompt_tokens=16)
    assert len(pool) == 10_000
    assert openings(pool, 8).most_common(1)[0][1] == 1
    assert openings(pool, 2).most_common(1)[0][1] == 1
    assert openings(pool, 1).most_common(1)[0][1] == 20, "the first words are used evenly: 10,000 prompts, 512 words"


def test_a_shared_prefix_is_shared_by_its_prompts_and_ends_where_asked():
    pool = build(300, prompt_tokens=20, shared_prefix_tokens=50, prefixes=3)
    assert sorted(openings(pool, 50).values()) == [100, 100, 100]
    assert len(openings(pool, 8)) == 3, "the prefixes themselves start differently"
    assert openings(pool, 2, skip=50).most_common(1)[0][1] == 1, "what follows starts differently at once"
    assert {(pool[index].input_tokens_asked, len(pool[index].text.split())) for index in range(300)} == {(70, 70)}


@pytest.mark.parametrize(
    ("requests", "distinct", "expected"),
    [(7, None, 7), (20_000, None, 10_000), (None, None, 10_000), (7, 3, 3), (7, 12_000, 12_000)],
)
def test_the_pool_has_one_prompt_a_request_within_bounds_or_as_many_as_asked(requests, distinct, expected):
    pool = build(requests, prompt_tokens=2, distinct=distinct)
    assert len(pool) == pool.facts()["distinct"] == expected


def test_the_pool_is_taken_round_and_round():
    pool = build(distinct=3)
    assert pool[0] == pool[3] == pool[300]
    assert pool[1] != pool[0]


def test_repeats_are_counted_before_they_are_sent():
    pool = build(distinct=3)
    assert [pool.repeats(sent) for sent in (0, 1, 3, 4, 100)] == [0, 0, 0, 1, 97]


def test_prompts_too_short_to_differ_are_counted_as_repeats():
    pool = build(600, prompt_tokens=1)
    assert pool.repeats(600) == 600 - 512


def test_a_pool_for_fewer_requests_begins_the_pool_for_more():
    few, many = (build(requests, prompt_tokens=UNIFORM) for requests in (10, 50))
    assert [few[index] for index in range(10)] == [many[index] for index in range(10)]


def test_the_lengths_of_outputs_do_not_change_the_prompts():
    one, two = build(20, prompt_tokens=UNIFORM), build(20, prompt_tokens=UNIFORM, output_tokens=UNIFORM)
    assert [one[index].text for index in range(20)] == [two[index].text for index in range(20)]
    assert one.digest != two.digest


def test_the_seed_of_the_trial_changes_all_prompts_unless_the_spec_has_its_own():
    assert not openings(build(500, seed=1), 8).keys() & openings(build(500, seed=2), 8).keys()
    spec = SyntheticPrompts(seed=9)
    assert build_prompts(spec, requests=5, seed=1).digest == build_prompts(spec, requests=5, seed=2).digest


def test_the_digest_is_the_same_everywhere_and_for_ever():
    pool = build(20, seed=3, prompt_tokens={"kind": "normal", "mean": 40, "stdev": 10}, shared_prefix_tokens=4)
    assert pool.digest == "2582867d5b9f781e925948e98d03fbeb9399cb25d1e950c9a66a62d4cafd7786"
    talks = build(20, seed=3, kind="conversation", prompt_tokens=UNIFORM)
    assert talks.digest == "659eff9323b349ede89caf0b12452d9ccfdab485ba11b5ef3537f23d57317df6"


def test_the_digest_does_not_hang_on_the_process():
    code = (
        "from benchhouse.experiments.serving.prompts import *;"
        "print(build_prompts(SyntheticPrompts(prompt_tokens=30), requests=9, seed=4).digest)"
    )
    said = {
        subprocess.check_output([sys.executable, "-c", code], env={**os.environ, "PYTHONHASHSEED": number}, text=True)
        for number in "12"
    }
    assert said == {build(9, seed=4, prompt_tokens=30).digest + "\n"}


def test_anything_that_is_sent_changes_the_digest():
    base = Prompt("a", (), 1, 2, 0, 0)
    other = [
        Prompt("b", (), 1, 2, 0, 0),
        Prompt(None, (Message("user", "a"),), 1, 2, 0, 0),
        Prompt("a", (), 9, 2, 0, 0),
        Prompt("a", (), 1, None, 0, 0),
        Prompt("a", (), 1, 2, 1, 0),
        Prompt("a", (), 1, 2, 0, 1),
    ]
    digests = {PromptSet([(prompt,)]).digest for prompt in [base, *other]}
    assert len(digests) == 7
    assert PromptSet([(base,), (base,)]).digest not in digests


def test_two_thousand_prompts_are_built_and_digested_within_half_a_second_of_cpu():
    before = time.process_time()
    pool = build(2000, prompt_tokens=256)
    assert len(pool.digest) == 64
    assert len(pool) == 2000
    assert time.process_time() - before <= 0.5


def test_prompts_of_a_megabyte_are_made():
    pool = build(3, prompt_tokens=200_000)
    assert all(pool[index].size > 1_000_000 for index in range(3))


def test_a_pool_beyond_the_limit_is_refused_where_asked_for_and_cut_where_not(monkeypatch):
    assert module.MAX_POOL_BYTES == 10**9
    monkeypatch.setattr(module, "MAX_POOL_BYTES", 10**6)
    with pytest.raises(BenchError, match="1,000 different prompts don't fit into memory: at most 1 MB") as refused:
        build(prompt_tokens=1000, distinct=1000)
    assert refused.value.hint == "lower distinct or prompt_tokens"
    pool = build(1000, prompt_tokens=1000)
    assert 900_000 < pool.facts()["bytes"] <= 10**6
    assert pool.repeats(1000) == 1000 - len(pool)


def test_an_endless_conversation_is_refused_before_it_is_written():
    for asked in [{"turns": 1001}, {"turns": 1000, "prompt_tokens": 10_001}]:
        with pytest.raises(BenchError, match="at most 1,000 turns and 10,000,000 tokens"):
            build(1, kind="conversation", **asked)


def test_exact_lengths_need_a_tokenizer_that_is_there(tmp_path):
    with pytest.raises(BenchError, match="does not exist"):
        build(1, tokenizer=str(tmp_path / "tokenizer.json"))


def test_a_wrong_spec_is_refused():
    for spec, says in [
        ({"prompt_tokens": 0}, "a length is 1 to"),
        ({"output_tokens": -1}, "a length is 1 to"),
        ({"distinct": 0}, "greater than or equal to 1"),
        ({"shared_prefix_tokens": -1}, "greater than or equal to 0"),
        ({"prefixes": 0}, "greater than or equal to 1"),
        ({"file": "x"}, "Extra inputs"),
        ({"kind": "dataset"}, "Field required"),
        ({"kind": "dataset", "file": ""}, "at least 1 character"),
        ({"kind": "dataset", "file": "x", "distinct": 5}, "Extra inputs"),
        ({"kind": "conversation", "turns": 0}, "a length is 1 to"),
        ({"kind": "conversation", "think_time": -1}, "greater than or equal to 0"),
        ({"kind": "random"}, "'synthetic', 'dataset', 'conversation'"),
    ]:
        with pytest.raises(ValidationError) as refused:
            SPEC.validate_python(spec)
        assert says in str(refused.value)


# ---- datasets -----------------------------------------------------------------------------------------------------


def test_a_dataset_keeps_its_order_its_own_output_lengths_and_its_digest(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"prompt": "one"}\n{"prompt": "two", "output_tokens": 7}\n{"prompt": "one"}\n')
    pool = build(kind="dataset", file=str(path), output_tokens=32)
    assert [(pool[index].text, pool[index].output_tokens) for index in range(3)] == [
        ("one", 32),
        ("two", 7),
        ("one", 32),
    ]
    assert pool[0].input_tokens_asked is None, "nobody asked for a length, and nobody claims one"
    assert [pool.repeats(sent) for sent in (2, 3, 6)] == [0, 1, 4], "a line that comes twice is a repeat at once"
    assert pool.facts()["file_sha256"] == pool.file_sha256
    assert len(pool.file_sha256) == 64
    assert build_prompts(DatasetPrompts(file=str(path)), requests=1, seed=5)[0].output_tokens is None


def test_prompts_of_a_file_go_on_with_the_next_until_they_are_as_long_as_asked(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"prompt": "alpha beta"}\n{"messages": [{"role": "user", "content": "gamma delta"}]}\n')
    pool = build(kind="dataset", file=str(path), prompt_tokens=8)
    assert [pool[index].text.split()[:4] for index in range(2)] == [
        ["alpha", "beta", "gamma", "delta"],
        ["gamma", "delta", "alpha", "beta"],
    ]
    assert all(32 <= len(pool[index].text) + 1 <= 40 for index in range(2)), "four characters a token"
    assert [pool[index].input_tokens_asked for index in range(2)] == [8, 8]


def test_a_chat_of_several_messages_has_no_length(tmp_path):
    path = tmp_path / "a.jsonl"
    turns = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "why"}]
    path.write_text(json.dumps({"messages": turns}) + "\n")
    assert len(build(kind="dataset", file=str(path))[0].messages) == 2
    with pytest.raises(BenchError, match="prompt 1 of the dataset is a chat of 2 messages, which has no length"):
        build(kind="dataset", file=str(path), prompt_tokens=8)


def test_a_file_that_is_not_the_one_meant_is_refused(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("why\n")
    known = build(kind="dataset", file=str(path)).file_sha256
    assert len(build(kind="dataset", file=str(path), sha256=known)) == 1
    path.write_text("how\n")
    with pytest.raises(BenchError, match=f"and prompts.sha256 is {known}"):
        build(kind="dataset", file=str(path), sha256=known)


# ---- conversations ------------------------------------------------------------------------------------------------


def test_a_conversation_is_made_of_turns_in_order():
    pool = build(12, kind="conversation", turns=4, prompt_tokens=10)
    assert pool.conversations == 3
    assert [(pool[index].conversation, pool[index].turn) for index in range(5)] == [
        (0, 0),
        (0, 1),
        (0, 2),
        (0, 3),
        (1, 0),
    ]
    assert pool.conversation(1) == tuple(pool[index] for index in range(4, 8))
    assert pool.conversation(4) == pool.conversation(1)
    assert openings(pool, 2).most_common(1)[0][1] == 1


def test_conversations_are_whole_and_enough_for_the_requests():
    pool = build(100, kind="conversation", turns={"kind": "uniform", "low": 1, "high": 7})
    turns = [len(pool.conversation(number)) for number in range(pool.conversations)]
    assert set(turns) == {1, 2, 3, 4, 5, 6, 7}
    assert 100 <= sum(turns) == len(pool) < 107


def test_distinct_counts_conversations():
    pool = build_prompts(ConversationPrompts(distinct=2, turns=5), requests=100, seed=0)
    assert (pool.conversations, len(pool)) == (2, 10)


def test_the_real_answers_become_the_history_of_the_next_turn():
    first, second, third = build(3, kind="conversation", turns=3, prompt_tokens=4).conversation(0)
    sent = second.after(first, "answer one")
    again = third.after(sent, "answer two")
    assert again.as_messages() == [
        {"role": "user", "content": first.text},
        {"role": "assistant", "content": "answer one"},
        {"role": "user", "content": second.text},
        {"role": "assistant", "content": "answer two"},
        {"role": "user", "content": third.text},
    ]
    assert (again.conversation, again.turn, again.output_tokens) == (0, 2, third.output_tokens)


def test_a_text_serves_both_kinds_of_endpoint_and_a_chat_only_one():
    assert Prompt("hello").as_messages() == [{"role": "user", "content": "hello"}]
    assert Prompt("hello").as_text() == "hello"
    assert Prompt(None, (Message("user", "hello"),)).as_text() == "hello"
    with pytest.raises(BenchError, match="a chat of 2 messages, and the endpoint takes text"):
        Prompt(None, (Message("system", "be short"), Message("user", "hello"))).as_text()


def test_words_of_their_own_leave_the_lengths_alone():
    """Two trials of one seed ask for the same lengths, in words that no cache knows from the other."""
    spec = SPEC.validate_python({"prompt_tokens": {"kind": "normal", "mean": 50, "stdev": 10}})
    one, other = (build_prompts(spec, requests=30, seed=1, words=trial) for trial in ("a", "b"))
    assert [one[at].input_tokens_asked for at in range(30)] == [other[at].input_tokens_asked for at in range(30)]
    assert not {one[at].text[:40] for at in range(30)} & {other[at].text[:40] for at in range(30)}
    assert one.mean_input == pytest.approx(50, rel=0.2)


def test_a_seed_of_the_prompts_decides_their_words_too():
    spec = SPEC.validate_python({"prompt_tokens": 30, "seed": 3})
    one, other = (build_prompts(spec, requests=5, seed=1, words=trial) for trial in ("a", "b"))
    assert one.digest == other.digest
