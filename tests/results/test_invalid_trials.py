from benchhouse.results.invalid_trials import reasons, retried


def test_each_code_is_told_once_in_the_words_of_its_first_trial_with_its_count():
    told = reasons([("late", "by 41 ms"), ("starved", "no CPU left"), ("late", "by 57 ms")])
    assert told == "late: by 41 ms (2 trials); starved: no CPU left"


def test_of_many_codes_the_first_are_told_and_the_others_counted():
    assert reasons((name, "x") for name in "abcde") == "a: x; b: x; c: x; and 2 more reasons"
    assert reasons((name, "x") for name in "abcd").endswith("; and 1 more reason")


def test_attempts_that_failed_before_are_told():
    assert retried([{"attempt": 1}, {"attempt": 1}]) == []
    (line,) = retried([{"attempt": 1}, {"attempt": 3}, {"attempt": 2}])
    assert line == "2 trials ended at a later attempt, after 3 attempts that failed and are kept aside."
