"""The experiment of a diagnosis as a change of the scenario."""

import pytest
from tables import check_table

from benchhouse.analysis.playbooks.remedies import NoRemedy, remedy
from benchhouse.analysis.playbooks.values import PointDiagnosis


def diagnosis(cause: str, suspect: str = "") -> PointDiagnosis:
    return PointDiagnosis(
        playbook="p", cause=cause, title="the title", says="", certainty="weak", why_so_sure="", side="unknown",
        point="", suspect=suspect, symptoms=[], evidence=[], next=["Do it by hand."], change="",
    )  # fmt: skip


ON_SLURM = {"executor": "slurm"}
SLURM = {"scenario": "s", "executor": "slurm", "slurm": {"flags": ["--mail-type=NONE"]}}
SERVED = {"services": {"llm": {"recipe": "vllm", "parameters": {"max_num_seqs": "64", "prefix_caching": "on"}}}}


@check_table(
    "cause, suspect, scenario, changed",
    [
        ("cpu_throttling", "", {"limits": {"cpus": 0.5, "wall": 9}}, {"limits": {"wall": 9}}),
        ("cpu_throttling", "", {"limits": {"cpus": 0.5}, "seed": 1}, {"seed": 1}),
        ("straggler:heat", "n3", SLURM, SLURM | {"slurm": {"flags": ["--mail-type=NONE", "--exclude=n3"]}}),
        ("gpu_clocks_held_down", "", ON_SLURM, ON_SLURM | {"slurm": {"flags": ["--exclude=n1,n2"]}}),
        ("straggler:heat", "gpu-017", ON_SLURM, ON_SLURM | {"slurm": {"flags": ["--exclude=gpu-017"]}}),
        ("noisy_neighbour", "", ON_SLURM, ON_SLURM | {"slurm": {"exclusive": True}}),
        ("restart", "", {"warmup": 1}, {"warmup": 3}),
        ("restart", "", {"workload": {"warmup": 2.0}}, {"workload": {"warmup": 8.0}}),
    ],
)  # fmt: skip
def test_the_scenario_is_changed_where_the_cause_is_and_nowhere_else(cause, suspect, scenario, changed):
    before = str(scenario)
    assert remedy(diagnosis(cause, suspect), scenario, ["n1", "n2", "n1"]).scenario == changed
    assert str(scenario) == before, "what was given is left as it is"


@check_table(
    "cause, name, value",
    [
        ("queueing", "max_num_seqs", "128"),
        ("cache_full", "max_num_seqs", "32"),
        ("slower_before_first_token", "prefix_caching", "off"),
    ],
)
def test_a_parameter_of_a_server_is_changed(cause, name, value):
    changed = remedy(diagnosis(cause), SERVED, [])
    assert changed.scenario["services"]["llm"]["parameters"][name] == value
    assert name in changed.says


@check_table(
    "cause, suspect, scenario, reason",
    [
        ("cpu_throttling", "", {}, "not the scenario's"),
        ("straggler:heat", "n3", {"executor": "local"}, "on Slurm only"),
        ("straggler:heat", "rank 3", SLURM, "no node"),
        ("straggler:heat", "gpu0", SLURM, "no node"),
        ("noisy_neighbour", "", {"executor": "local"}, "keeps others off"),
        ("queueing", "", {}, "no service"),
        ("slower_before_first_token", "", SERVED | {"services": {}}, "prefix cache"),
        ("storage_stalls", "", {}, "By hand: Do it by hand."),
    ],
)
def test_a_remedy_that_cannot_be_tried_gives_the_reason(cause, suspect, scenario, reason):
    with pytest.raises(NoRemedy, match=reason):
        remedy(diagnosis(cause, suspect), scenario, [])
