"""What is left of a contract after a run: from rows of trials with known faults."""

import json

from tables import check_table

from benchhouse.claims.contracts import template
from benchhouse.schema import guarantees as names
from benchhouse.schema.guarantees import terms_of
from benchhouse.warehouse.contract_rows import run_contract

OF_TRIAL = (names.DEDICATED, names.STABLE, names.EXCLUSIVE, names.ISOLATION, names.CONTEXT)


def terms(**changes):
    demands = [*OF_TRIAL, names.TOPOLOGY, names.REPLICATES, names.WARMUPS]
    fields = {"lacks": [], "demands": demands, "replicates": 3, "warmups": 1, "context": True}
    return terms_of(template("publication-inference")).model_copy(update=fields | changes)


def row(at=0, lacks=(), share=0.01, promised=None, **changes):
    seen = [{"name": name, "observed": name not in lacks, "says": "seen", "value": share} for name in OF_TRIAL]
    given = {
        "contract": (promised or terms()).model_dump_json(), "guarantees": json.dumps(seen), "host": "a",
        "hardware_topology_id": "h", "instance_digest": "i", "outcome": "succeeded", "warmup": at == 0,
    }  # fmt: skip
    return given | changes


def test_a_run_that_has_everything_is_what_it_asks():
    contract = run_contract([row(at) for at in range(4)])
    assert (contract.mode, contract.settled.verdict, contract.settled.missing) == ("publication", "accepted", [])


@check_table(
    "rows, missing",
    [
        ([row(0), row(1), row(2), row(3, lacks=[names.DEDICATED])], "dedicatedNodes (1 of 4 trials: seen)"),
        ([row(0), row(1), row(2), row(3, share=0.2)], "stableBackgroundLoad (others used 1.0% to 20.0%"),
        ([row(0), row(1), row(2), row(3, host="b")], "fixedTopology (a, b; 1 kind of node)"),
        ([row(0), row(1), row(2), row(3, hardware_topology_id="g")], "fixedTopology (a; 2 kind"),
        ([row(0), row(1), row(2), row(3, outcome="failed")], "trials.minReplicates (2 good repetitions"),
        ([row(1), row(2), row(3)], "trials.minWarmups (0 good warm-ups"),
        ([row(0), row(1), row(2), row(3, contract=None)], "contract (its trials were not all run under one contract)"),
        ([row(at, promised=terms(lacks=["signing"])) for at in range(4)], "signing"),
    ],
)
def test_a_missing_guarantee_downgrades_by_name(rows, missing):
    contract = run_contract(rows)
    assert contract.mode == "realism"
    assert contract.settled.missing[0].startswith(missing)


@check_table(
    "promised, lacks",
    [
        (terms(on_missing="reject"), names.DEDICATED),
        (terms(asked="realism_grade"), names.CONTEXT),
        (terms(), names.CONTEXT),  # nothing to downgrade to
    ],
)
def test_a_missing_guarantee_rejects_where_nothing_is_left(promised, lacks):
    assert run_contract([row(at, lacks=[lacks], promised=promised) for at in range(4)]).mode == "rejected"


def test_a_trial_that_notes_nothing_proves_nothing():
    contract = run_contract([row(0), row(1), row(2), row(3, guarantees=None)])
    assert contract.mode == "rejected"
    assert "dedicatedNodes (1 of 4 trials: nothing was noted)" in contract.settled.missing


def test_a_run_without_a_contract_has_none():
    assert run_contract([{"contract": None}, {}]) is None
