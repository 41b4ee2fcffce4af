import csv
import hashlib
import json
import os

import pytest

from benchhouse.documents.problems import MAX_RENDERED, ProblemsError
from benchhouse.experiments.serving.datasets import MAX_FILE_BYTES, Message, PromptRow, read_dataset
from benchhouse.schema.errors import BenchError

MEGABYTE = "wörd " * 200_000  # 1.2 MB as UTF-8


@pytest.fixture
def written(tmp_path):
    """`written(name, content)` makes the file and returns its path."""

    def write(name, content):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


def lines(*rows):
    return "".join(json.dumps(row) + "\n" for row in rows)


def texts(path):
    return [row.text for row in read_dataset(path).rows]


# ---- what is read -------------------------------------------------------------------------------------------------


def test_json_lines_give_prompts_in_order_with_their_output_lengths(written):
    path = written("a.jsonl", lines({"prompt": "one", "id": 7}, {"prompt": "zwei ü", "output_tokens": 12}))
    assert read_dataset(path).rows == [PromptRow("one", (), None), PromptRow("zwei ü", (), 12)]


def test_messages_are_sent_without_the_recorded_answer_at_the_end(written):
    turns = [
        {"role": "system", "content": "be short"},
        {"role": "user", "content": "a?"},
        {"role": "assistant", "content": "b"},
        {"role": "user", "content": "c?"},
        {"role": "assistant", "content": "d"},
    ]
    (row,) = read_dataset(written("a.jsonl", lines({"messages": turns}))).rows
    assert row.text is None
    assert row.messages == tuple(Message(turn["role"], turn["content"]) for turn in turns[:4])


def test_of_a_sharegpt_conversation_the_first_human_turn_is_asked(written):
    turns = [
        {"from": "gpt", "value": "left over"},
        {"from": "system", "value": "be short"},
        {"from": "human", "value": "a?"},
        {"from": "gpt", "value": "b"},
        {"from": "human", "value": "c?"},
    ]
    (row,) = read_dataset(written("a.jsonl", lines({"conversations": turns}))).rows
    assert row.messages == (Message("system", "be short"), Message("user", "a?"))


def test_csv_may_have_commas_quotes_and_line_breaks_in_a_prompt(written):
    path = written("a.csv", 'id,prompt,output_tokens\r\n1,"a, ""b""\r\nc",5\r\n2,plain,\r\n')
    assert read_dataset(path).rows == [PromptRow('a, "b"\r\nc', (), 5), PromptRow("plain", (), None)]


def test_text_has_a_prompt_a_line_and_only_line_breaks_separate(written):
    assert texts(written("a.txt", "one\r\ntwo\u2028still two\n three")) == ["one", "two\u2028still two", " three"]


def test_a_byte_order_mark_is_no_part_of_the_first_prompt(written):
    assert texts(written("a.txt", b"\xef\xbb\xbfone\n")) == ["one"]
    assert texts(written("a.csv", b"\xef\xbb\xbfprompt\none\n")) == ["one"]


def test_the_format_can_be_said_where_the_ending_does_not_tell(written):
    assert [row.text for row in read_dataset(written("prompts", '{"prompt": "a"}\n'), "jsonl").rows] == ["a"]
    assert [row.text for row in read_dataset(written("b.jsonl", '{"prompt": "a"}\n'), "text").rows] == [
        '{"prompt": "a"}'
    ]


def test_the_digest_is_of_the_very_bytes_of_the_file(written):
    content = b"\xef\xbb\xbfone\r\ntwo"
    assert read_dataset(written("a.txt", content)).sha256 == hashlib.sha256(content).hexdigest()


def test_prompts_of_a_megabyte_are_fine(written):
    for name in ["a.jsonl", "a.csv", "a.txt"]:
        before = csv.field_size_limit()
        contents = {
            "a.jsonl": lines({"prompt": MEGABYTE}),
            "a.csv": f'prompt\n"{MEGABYTE}"\n',
            "a.txt": MEGABYTE + "\n",
        }
        assert texts(written(name, contents[name])) == [MEGABYTE]
        assert csv.field_size_limit() == before


# ---- what is refused ----------------------------------------------------------------------------------------------

GOOD = '{"prompt": "good"}\n'


def test_a_bad_row_is_refused_with_its_line(written):
    for name, content, at, says in [
        ("a.jsonl", GOOD + '{"prompt": ""}\n', ":2:", "prompt is empty"),
        ("a.jsonl", GOOD + '{"prompt": " \\n "}\n', ":2:", "prompt is empty"),
        ("a.jsonl", GOOD + "\n" + GOOD, ":2:", "an empty line, so an empty prompt"),
        ("a.jsonl", GOOD + '{"prompt": \n', ":2:12:", "broken JSON: Expecting value"),
        ("a.jsonl", GOOD + '{"prompt": "x"} {}\n', ":2:17:", "broken JSON: Extra data"),
        ("a.jsonl", "[" * 100_000 + "\n", ":1:", "broken JSON"),
        ("a.jsonl", '{"prompt": ' + "9" * 5000 + "}\n", ":1:", "broken JSON"),
        ("a.jsonl", GOOD.encode() + b'{"prompt": "caf\xe9"}\n', ":2:16:", "not UTF-8: byte 0xe9"),
        ("a.jsonl", lines({"prompt": "x"}).encode("utf-16"), ":1:", "the file is UTF-16"),
        ("a.txt", b"\xef\xbb\xbf\xc3\xbc\xe9\n", ":1:2:", "not UTF-8: byte 0xe9"),
        ("a.jsonl", '["x"]\n', ":1:", "a row is an object, found a list"),
        ("a.jsonl", '{"text": "x"}\n', ":1:", "no prompt (keys: 'text')"),
        ("a.jsonl", '{"prompt": "x", "messages": []}\n', ":1:", "found both prompt and messages"),
        ("a.jsonl", '{"prompt": 5}\n', ":1:", "prompt is text, found the number 5"),
        ("a.jsonl", '{"prompt": null}\n', ":1:", "prompt is text, found nothing"),
        ("a.jsonl", '{"prompt": "\\ud83d"}\n', ":1:", "half a surrogate pair"),
        ("a.jsonl", '{"prompt": "x", "output_tokens": 0}\n', ":1:", "output_tokens is the number 0"),
        ("a.jsonl", '{"prompt": "x", "output_tokens": -3}\n', ":1:", "output_tokens is the number -3"),
        ("a.jsonl", '{"prompt": "x", "output_tokens": true}\n', ":1:", "output_tokens is true"),
        ("a.jsonl", '{"prompt": "x", "output_tokens": 1.5}\n', ":1:", "output_tokens is the number 1.5"),
        ("a.jsonl", '{"messages": []}\n', ":1:", "messages is a list of turns, found an empty list"),
        ("a.jsonl", '{"messages": "x"}\n', ":1:", "messages is a list of turns, found the text 'x'"),
        ("a.jsonl", '{"messages": ["x"]}\n', ":1:", "messages[0] is a mapping of role and content"),
        ("a.jsonl", lines({"messages": [{"role": "human", "content": "x"}]}), ":1:", "messages[0].role is the text"),
        ("a.jsonl", lines({"messages": [{"role": "user"}]}), ":1:", "messages[0].content is text, found nothing"),
        ("a.jsonl", lines({"messages": [{"role": "user", "content": ""}]}), ":1:", "messages[0].content is empty"),
        ("a.jsonl", lines({"messages": [{"role": "user", "content": [{}]}]}), ":1:", "content is text, found a list"),
        ("a.jsonl", lines({"messages": [{"role": "assistant", "content": "x"}]}), ":1:", "nothing that a person said"),
        ("a.jsonl", lines({"messages": [{"role": "system", "content": "x"}]}), ":1:", "nothing that a person said"),
        ("a.jsonl", '{"conversations": []}\n', ":1:", "conversations is a list of turns, found an empty list"),
        ("a.jsonl", lines({"conversations": [{"from": "gpt", "value": "x"}]}), ":1:", "nothing that a person said"),
        ("a.jsonl", lines({"conversations": [{"from": "cat", "value": "x"}]}), ":1:", "conversations[0].from is the"),
        (
            "a.jsonl",
            lines({"conversations": [{"from": "human", "value": ""}]}),
            ":1:",
            "conversations[0].value is empty",
        ),
        ("a.csv", "question,id\nx,1\n", ":1:", "column 'prompt' is not among 'question, id'"),
        ("a.csv", "prompt,prompt\nx,y\n", ":1:", "column 'prompt' is twice"),
        ("a.csv", 'id,prompt\n1,"a\nb"\n2,x,y\n', ":4:", "3 columns where the header has 2"),
        ("a.csv", 'id,prompt\n1,"a\nb"\n2,\n', ":4:", "prompt is empty"),
        ("a.csv", 'id,prompt\n1,"a\nb"x\n', ":3:", "broken CSV"),
        ("a.csv", 'id,prompt\n1,"never closed\n', ":2:", "broken CSV: unexpected end of data"),
        ("a.csv", b"id,prompt\n1,caf\xe9\n", ":2:6:", "not UTF-8: byte 0xe9"),
        ("a.csv", "prompt,output_tokens\nx,many\n", ":2:", "output_tokens is the text 'many'"),
        ("a.csv", f"prompt,output_tokens\nx,{'9' * 5000}\n", ":2:", "output_tokens is the text '999"),
        ("a.csv", "prompt,output_tokens\nx,0\n", ":2:", "output_tokens is the number 0"),
        ("a.txt", "one\n\ntwo\n", ":2:", "an empty line, so an empty prompt"),
        ("a.txt", b"one\n\xff\xfe\n", ":2:1:", "not UTF-8: byte 0xff"),
    ]:
        path = written(name, content)
        with pytest.raises(ProblemsError) as refused:
            read_dataset(path)
        (problem,) = refused.value.problems
        assert f"{path}{at} " in problem.render()
        assert says in problem.message
        assert problem.expected, "what to do is said"


def test_all_bad_rows_are_told_at_once(written):
    path = written("a.jsonl", b'{"prompt": ""}\n{"prompt": "x"}\n\xff\n{"prompt": 3}\n')
    with pytest.raises(ProblemsError) as refused:
        read_dataset(path)
    assert [problem.line for problem in refused.value.problems] == [1, 3, 4]


def test_a_file_of_nothing_but_faults_is_not_read_to_its_end(written):
    with pytest.raises(ProblemsError) as refused:
        read_dataset(written("a.jsonl", "nonsense\n" * 10_000))
    assert len(refused.value.problems) == MAX_RENDERED


def test_a_file_without_prompts_is_refused(written):
    for name, content in [("a.jsonl", ""), ("a.txt", ""), ("a.csv", ""), ("a.csv", "prompt\n")]:
        with pytest.raises(BenchError, match="no prompts in this file"):
            read_dataset(written(name, content))


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(BenchError, match=r"prompts .*/nowhere.txt does not exist"):
        read_dataset(tmp_path / "nowhere.txt")
    with pytest.raises(BenchError, match="is not a file"):
        (tmp_path / "folder.txt").mkdir()
        read_dataset(tmp_path / "folder.txt")


def test_an_unknown_ending_is_refused_with_what_to_do(written):
    for name, says in [("a.json", "jq -c"), ("a.parquet", "say format"), ("prompts", "say format")]:
        with pytest.raises(BenchError, match="does not tell the format") as refused:
            read_dataset(written(name, "x"))
        assert says in refused.value.hint


def test_a_file_beyond_a_gigabyte_is_refused_before_it_is_read(tmp_path):
    path = tmp_path / "big.txt"
    path.touch()
    os.truncate(path, MAX_FILE_BYTES + 1)
    with pytest.raises(BenchError, match="at most 1 GB of prompts"):
        read_dataset(path)
