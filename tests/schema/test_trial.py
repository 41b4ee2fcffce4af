"""Identity of instances and trials."""

import uuid

from benchhouse.schema.digests import digest
from benchhouse.schema.trial import _TRIALS, MEASURED, OUTCOMES, Instance, outcome_words, trial_id


def instance(**more):
    return Instance(**({"experiment": "e", "version": "1.0", "target": {"name": "t"}, "parameters": {"x": 1}} | more))


def test_the_digest_is_that_of_the_canonical_json_of_the_whole():
    one = instance(target={"name": "ü", "deep": {"b": 1.0, "a": [None, True]}})
    assert one.digest() == digest(one.model_dump(exclude={"services", "resources"})), "as before there were any"
    served = one.model_copy(update={"services": {"db": {"recipe": {"name": "postgres"}, "replicas": 1}}})
    assert served.digest() == digest(served.model_dump(exclude={"resources"})) != one.digest()
    varied = served.model_copy(update={"resources": {"nodes": 2}})
    assert varied.digest() == digest(varied.model_dump()) != served.digest()


def test_the_digest_is_pinned():
    assert instance().digest() == "9efc2be18e39910df24eee3a07a748e1c630436536f87d12149885a9d3e6cc7b"


def test_every_part_counts():
    others = [instance(experiment="f"), instance(version="1"), instance(target={}), instance(parameters={"x": 2})]
    assert len({item.digest() for item in [instance(), *others]}) == 5


def test_targets_share_a_case_and_parameters_do_not():
    assert instance().case_id() == instance(target={"name": "other"}).case_id()
    assert instance().case_id() != instance(parameters={"x": 2}).case_id()
    assert instance().workload_digest() == instance(target={}, version="2").workload_digest()


def test_a_trial_has_the_same_id_whenever_it_is_asked_for_and_another_otherwise():
    ids = [
        trial_id("run", "d", 0, False),
        trial_id("run", "d", 0, False),
        trial_id("run", "d", 1, False),
        trial_id("run", "d", 0, True),
        trial_id("run", "e", 0, False),
        trial_id("other", "d", 0, False),
    ]
    assert ids[0] == ids[1]
    assert len(set(ids)) == 5


def test_outcomes_are_written_for_people_and_invalid_stands_out():
    assert [outcome_words(outcome) for outcome in ("succeeded", "out_of_memory", "invalid")] == [
        "succeeded",
        "out of memory",
        "INVALID",
    ]
    assert set(MEASURED) < set(OUTCOMES)


def test_the_id_of_a_trial_is_a_uuid_of_its_name():
    for repetition in range(50):  # some of each variant digit
        name = f"run/{'ab' * 32}/trial/{repetition}"
        assert trial_id("run", "ab" * 32, repetition, warmup=False) == str(uuid.uuid5(_TRIALS, name))
    warmup = uuid.uuid5(_TRIALS, f"run/{'ab' * 32}/warmup/0")
    assert trial_id("run", "ab" * 32, 0, warmup=True) == str(warmup)
