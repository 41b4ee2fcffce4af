"""What no node of a site can give is refused when it is planned, at its place in the scenario."""

import pytest
from tables import check_table

from benchhouse.plan.scenario_file import parse_scenario
from benchhouse.plan.site_fit import site_problems
from benchhouse.schema.site import Site

SITE = Site.model_validate(
    {
        "site": "lab",
        "slurm": {
            "partition": "cpu",
            "gpu_partition": "gpu",
            "partitions": {
                "cpu": {"nodes": 2, "cpus": 8, "memory": "4GB", "max_time": "2d"},
                "gpu": {"nodes": 1, "cpus": 8, "memory": "8GB", "gpus": 4, "max_time": "1h"},
            },
            "qualities": {"dev": {"max_time": "30m"}, "default": {}},
            "accounts": ["p200000", "training"],
        },
    }
)


@pytest.fixture
def problems(plan_of):
    def find(text, site=SITE):
        text = f"experiment: sort\n{text}\n"
        return site_problems(parse_scenario("scenario: s\n" + text, "s.yaml", {}), plan_of(text), site)

    return find


@check_table(
    "text, place, said, suggestion",
    [
        ("partition: gpus", (3, 12), "site 'lab' has no partition 'gpus'", "gpu"),
        ("qos: defualt", (3, 6), "site 'lab' has no quality of service 'defualt'", "default"),
        ("account: p20000", (3, 10), "site 'lab' has no account 'p20000'", "p200000"),
        ("resources: {cpus: 9}", (3, 19), "asks for 9 cores; no node of partition 'cpu' has more than 8", ""),
        ("resources: {cpus_per_task: 9}", (3, 28), "asks for 9 cores", ""),
        ("resources: {memory: 5GB}", (3, 21), "asks for 5 GB of a node", ""),
        ("resources: {mem_gb: 9, gpus: 1}", (3, 21), "no node of partition 'gpu' has more than 8 GB", ""),
        ("resources: {nodes: 3}", (3, 20), "asks for 3 nodes; partition 'cpu' has 2", ""),
        ("resources: {gpus: 5}", (3, 19), "asks for 5 GPUs of a node", ""),
        ("resources: {nodes: [1, 2, 4]}", (3, 27), "asks for 4 nodes; partition 'cpu' has 2", ""),
        ("axes: [{grid: {resources.cpus_per_task: [4, 16]}}]", (3, 45), "asks for 16 cores", ""),
        ("axes: [{grid: {resources.nodes: {from: 1, to: 3, step: 1}}}]", (3, 33), "asks for 3 nodes", ""),
        ("axes: [{points: [{resources.gpus: 1}, {resources.gpus: 5}]}]", (3, 56), "asks for 5 GPUs", ""),
        ("partition: cpu\nresources: {gpus: 1}", (4, 19), "no node of partition 'cpu' has any", ""),
        ("limits: {wall: 3d}", (3, 16), "a job may take 72 h 00 m; partition 'cpu' allows 48 h 00 m", ""),
        ("qos: dev\nlimits: {wall: 31m}", (4, 16), "quality of service 'dev' allows 30 m 00 s", ""),
    ],
)
def test_problems_with_the_site_are_reported_with_their_place(problems, text, place, said, suggestion):
    (found,) = problems(text)
    assert (found.line, found.column) == place
    assert said in found.message and found.suggestion == suggestion


def test_all_that_is_wrong_is_told_at_once(problems):
    found = problems(
        "partition: gpu\nqos: none\naccount: nobody\nresources: {nodes: 9, cpus: 99, gpus: 9, memory: 99GB}"
    )
    assert len(found) == 6


@check_table(
    "text",
    [
        "repetitions: 2",
        "partition: gpu\nqos: dev\naccount: training\nresources: {gpus: 4, cpus: 8, memory: 8GB}\nlimits: {wall: 30m}",
        "partition: cpu,gpu\nresources: {memory: 8GB}",
    ],
)
def test_resources_that_some_node_has_are_accepted(problems, text):
    assert problems(text) == []


def test_of_several_partitions_an_unknown_one_is_told(problems):
    (found,) = problems("partition: cpu,gup")
    assert "no partition 'gup'" in found.message


def test_a_site_that_says_nothing_refuses_nothing(problems):
    assert problems("partition: any\nresources: {cpus: 9999, gpus: 99}\nlimits: {wall: 99d}", Site()) == []


def test_trials_that_share_a_job_ask_together(problems):
    assert problems("resources: {cpus: 2}\nslurm: {pack: 9, together: 4}") == []
    (found,) = problems("resources: {cpus: 2}\nslurm: {pack: 9, together: 5}")
    assert "5 trials in one job ask for 10 cores" in found.message


def test_the_time_of_a_job_goes_before_that_of_a_trial(problems):
    assert problems("limits: {wall: 3d}\nslurm: {time: 1m}") == []
    (found,) = problems("limits: {wall: 1s}\nslurm: {time: 3d}")
    assert "a job may take 72 h" in found.message


def test_what_the_profile_itself_names_wrongly_is_told_as_the_profiles(problems):
    site = SITE.model_copy(update={"slurm": SITE.slurm.model_copy(update={"qos": "gone"})})
    (found,) = problems("repetitions: 1", site)
    assert "no quality of service 'gone' (slurm.qos of the profile)" in found.message


def test_where_no_partition_can_take_it_the_one_that_lacks_least_is_told(problems):
    found = problems("partition: cpu,gpu\nresources: {cpus: 9, memory: 6GB}")
    assert [problem.message for problem in found] == [
        "a trial asks for 9 cores; no node of partition 'gpu' has more than 8"
    ]
