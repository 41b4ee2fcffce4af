import json
import math
import random
import statistics
import sys
from collections import Counter

import jsonschema
import pytest
from pydantic import TypeAdapter, ValidationError

from benchhouse.experiments.serving.lengths import (
    MAX_TOKENS,
    WORDS,
    Fixed,
    Length,
    Mixed,
    Normal,
    Uniform,
    Writer,
    fit_to_tokens,
    load_tokenizer,
)
from benchhouse.schema.errors import BenchError

LENGTH = TypeAdapter(Length)
DRAWS = 60_000


def draws_of(length, seed=7, count=DRAWS):
    rng = random.Random(seed)
    return [length.draw(rng) for _ in range(count)]


def is_far_from(found: int, share: float, draws: int = DRAWS) -> bool:
    """Whether a count is more than five standard deviations from what its share of the draws gives."""
    return abs(found - share * draws) > 5 * math.sqrt(draws * share * (1 - share)) + 1


def lengths_that_differ_from(law: Normal, drawn: list[int]) -> list[int]:
    """Lengths that came up too often or too seldom for a normal law cut at its bounds."""
    normal = statistics.NormalDist(law.mean, law.stdev)
    whole = normal.cdf(law.high + 0.5) - normal.cdf(law.low - 0.5)
    counts = Counter(drawn)
    shares = {n: (normal.cdf(n + 0.5) - normal.cdf(n - 0.5)) / whole for n in range(law.low, law.high + 1)}
    return [n for n, share in shares.items() if is_far_from(counts[n], share)]


def test_a_bare_number_is_a_fixed_length():
    assert LENGTH.validate_python(128) == Fixed(tokens=128)
    assert set(draws_of(LENGTH.validate_python(128), count=100)) == {128}


def test_uniform_lengths_come_equally_often_with_both_ends():
    counts = Counter(draws_of(Uniform(low=3, high=8)))
    assert sorted(counts) == [3, 4, 5, 6, 7, 8]
    assert not [n for n, found in counts.items() if is_far_from(found, 1 / 6)]


def test_normal_lengths_have_the_mean_and_deviation_asked_for():
    drawn = draws_of(Normal(mean=500, stdev=50))
    assert statistics.mean(drawn) == pytest.approx(500, abs=5 * 50 / math.sqrt(DRAWS))
    assert statistics.stdev(drawn) == pytest.approx(50, rel=5 / math.sqrt(2 * DRAWS))


def test_a_cut_normal_has_no_piles_at_its_bounds():
    law = Normal(mean=100, stdev=30, low=80, high=140)
    assert lengths_that_differ_from(law, draws_of(law)) == []
    clamped = [min(max(n, law.low), law.high) for n in draws_of(Normal(mean=100, stdev=30))]
    assert {80, 140} <= set(lengths_that_differ_from(law, clamped)), "the check must see piles"


def test_a_mix_draws_each_part_by_its_weight():
    mix = LENGTH.validate_python(
        {
            "kind": "mixed",
            "parts": [
                {"weight": 1, "tokens": 10},
                {"weight": 3, "tokens": {"kind": "uniform", "low": 100, "high": 101}},
                {"weight": 1, "tokens": {"kind": "mixed", "parts": [{"weight": 2, "tokens": 1000}]}},
            ],
        }
    )
    counts = Counter(draws_of(mix))
    for tokens, share in {10: 0.2, 100: 0.3, 101: 0.3, 1000: 0.2}.items():
        assert not is_far_from(counts.pop(tokens), share)
    assert not counts


def test_the_same_seed_draws_the_same_lengths():
    law = Normal(mean=100, stdev=30)
    assert draws_of(law, 1, 100) == draws_of(law, 1, 100) != draws_of(law, 2, 100)


def test_no_deviation_is_a_fixed_length():
    assert set(draws_of(Normal(mean=64, stdev=0), count=10)) == {64}


def test_an_impossible_length_is_refused_with_the_reason():
    for given, says in [
        (0, "a length is 1 to 10,000,000 tokens, not 0"),
        (-5, "a length is 1 to 10,000,000 tokens, not -5"),
        (MAX_TOKENS + 1, "not 10,000,001"),
        (2.5, "valid integer"),
        (True, "a number of tokens or a mapping with `kind`, not true"),
        ("many", "a number of tokens or a mapping with `kind`, not the text 'many'"),
        (None, "not nothing"),
        ([1, 2], "not a list"),
        ({"mean": 3, "stdev": 1}, "kind"),
        ({"kind": "gamma"}, "'fixed', 'uniform', 'normal', 'mixed'"),
        ({"kind": "uniform", "low": 0, "high": 9}, "tokens, not 0"),
        ({"kind": "uniform", "low": 9, "high": 3}, "high 3 is less than low 9"),
        ({"kind": "normal", "mean": -4, "stdev": 1}, "greater than or equal to 1"),
        ({"kind": "normal", "mean": 4, "stdev": -1}, "greater than or equal to 0"),
        ({"kind": "normal", "mean": 4, "stdev": 1, "low": 9, "high": 3}, "high 3 is less than low 9"),
        ({"kind": "normal", "mean": 4, "stdev": 1, "low": 100}, "hardly ever give a length from 100"),
        ({"kind": "normal", "mean": 4, "stdev": 0, "low": 5}, "hardly ever"),
        ({"kind": "mixed", "parts": []}, "at least 1 item"),
        ({"kind": "mixed", "parts": [{"weight": 0, "tokens": 5}]}, "greater than 0"),
        ({"kind": "mixed", "parts": [{"weight": 1, "tokens": -5}]}, "not -5"),
        ({"kind": "fixed", "tokens": 5, "spread": 1}, "Extra inputs"),
    ]:
        with pytest.raises(ValidationError) as refused:
            LENGTH.validate_python(given)
        assert says in str(refused.value)


def test_a_length_survives_being_written_and_read():
    mix = Mixed(parts=[{"weight": 1, "tokens": 4}, {"weight": 2, "tokens": Normal(mean=9, stdev=2)}])
    assert LENGTH.validate_json(LENGTH.dump_json(mix)) == mix


def test_the_schema_for_editors_takes_numbers_and_mappings():
    schema = LENGTH.json_schema()
    jsonschema.validate(5, schema)
    jsonschema.validate({"kind": "mixed", "parts": [{"weight": 1, "tokens": 5}]}, schema)
    for wrong in (0, "5", {"kind": "uniform", "low": 1}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(wrong, schema)


# ---- texts of a length --------------------------------------------------------------------------------------------


def by_words(text: str) -> int:
    return len(text.split())


def by_three_letters(text: str) -> int:
    return sum(-(-len(word) // 3) for word in text.split())


def with_special_tokens(text: str) -> int:
    return by_three_letters(text) + 2


def merging_pairs(text: str) -> int:
    """Two short words in a row are one token, so that a word more can cost nothing."""
    lengths = [len(word) for word in text.split()]
    return len(lengths) - sum(a < 5 and b < 5 for a, b in zip(lengths[::2], lengths[1::2], strict=False))


def test_the_words_are_plain_and_all_different():
    assert len(WORDS) == len(set(WORDS)) == 512
    assert all(word.isascii() and word.isalpha() and word.islower() for word in WORDS)


def test_a_text_is_fitted_to_exactly_the_tokens_of_a_tokenizer():
    for count in [by_words, by_three_letters, with_special_tokens, merging_pairs]:
        words = random.Random(3).choices(WORDS, k=50)
        for tokens in range(9, 300):
            text = fit_to_tokens(words, count, tokens)
            assert count(text) == tokens
            assert text.split()[:2] == words[:2]


def test_a_gap_that_no_word_of_the_text_fits_is_filled_by_a_shorter_one():
    text = fit_to_tokens(["wonderfully"], lambda text: sum(map(len, text.split())), 25)
    assert sum(map(len, text.split())) == 25
    assert text.startswith("wonderfully wonderfully ")


def test_an_impossible_length_is_refused_rather_than_missed():
    for count in [lambda text: 2 * len(text.split()), lambda text: 3, lambda text: 0]:
        with pytest.raises(BenchError, match="no text of exactly 7 tokens"):
            fit_to_tokens(WORDS, count, 7)


def test_a_writer_with_a_tokenizer_counts_prefix_and_text_together():
    plain, exact = Writer(1), Writer(1, with_special_tokens)
    assert by_words(plain.write(40, 0, "a prefix of five words", 5)) == 45
    prefix = exact.write(20, 0)
    assert with_special_tokens(prefix) == 20
    whole = exact.write(40, 1, prefix, 20)
    assert with_special_tokens(whole) == 60
    assert whole.startswith(f"{prefix} ")


def test_a_missing_tokenizer_file_is_named(tmp_path):
    with pytest.raises(BenchError, match=r"tokenizer\.json does not exist"):
        load_tokenizer(tmp_path)


def test_without_the_library_the_error_says_what_to_install(tmp_path, monkeypatch):
    (tmp_path / "tokenizer.json").write_text("{}")
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(BenchError, match="pip install tokenizers"):
        load_tokenizer(tmp_path)


def test_a_real_tokenizer_is_counted_without_special_tokens_and_without_truncation(tmp_path):
    tokenizers = pytest.importorskip("tokenizers")
    made = tokenizers.Tokenizer(tokenizers.models.BPE(unk_token="[UNK]"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=400, special_tokens=["[UNK]", "[CLS]"], show_progress=False)
    made.train_from_iterator([" ".join(WORDS)], trainer)
    made.post_processor = tokenizers.processors.TemplateProcessing(single="[CLS] $A", special_tokens=[("[CLS]", 1)])
    made.enable_truncation(32)
    made.enable_padding(length=32)
    made.save(str(tmp_path / "tokenizer.json"))
    count = load_tokenizer(tmp_path)
    raw = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    raw.no_truncation()
    raw.no_padding()
    writer = Writer(1, count)
    for tokens in (1, 2, 31, 32, 33, 500):
        assert len(raw.encode(writer.write(tokens, tokens)).ids) == tokens + 1  # and the special one


def test_a_file_that_is_no_tokenizer_is_refused(tmp_path):
    pytest.importorskip("tokenizers")
    (tmp_path / "tokenizer.json").write_text(json.dumps({"vocab": 1}))
    with pytest.raises(BenchError, match="is not a tokenizer"):
        load_tokenizer(tmp_path / "tokenizer.json")
