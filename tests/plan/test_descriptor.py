"""Descriptors of Benchmark AI become scenarios; what is wrong with one is told where it stands."""

import pytest
import yaml
from tables import check_table

from benchhouse.documents.problems import ProblemsError
from benchhouse.documents.toml_reader import parse_toml
from benchhouse.plan.descriptor import convert
from benchhouse.schema.site import Site

BASE = """spec_version = "0.1.0"
[info]
description = "what it is"
{info}
[info.labels]
task_name = "my.task"
team = "core"{labels}
[hardware]
instance_type = "{instance}"
strategy = "{strategy}"
{hardware}
[env]
docker_image = "user/repo:tag"
{env}
[ml]
benchmark_code = '''{code}'''
{rest}
"""


def made(site=None, executor="local", **parts):
    defaults = {"instance": "p3.8xlarge", "strategy": "single_node", "code": "python3 train.py"}
    text = BASE.format(**{"info": "", "labels": "", "hardware": "", "env": "", "rest": ""} | defaults | parts)
    return convert(parse_toml(text, "d.toml"), site or Site(), executor, {"HF_TOKEN": "s3cret"})


def scenario(**parts):
    return made(**parts).file.scenario


def refused(**parts):
    with pytest.raises(ProblemsError) as caught:
        made(**parts)
    return {(problem.line, problem.message) for problem in caught.value.problems}


def test_a_single_node_is_a_command_with_the_resources_of_its_machine():
    read = scenario(rest='args = "--epochs 3"\n[[output.metrics]]\nname = "a"\nunits = "%"\npattern = "a=(.*)"')
    assert (read.scenario, read.experiment) == ("my.task", "command")
    assert read.labels == {"task_name": "my.task", "team": "core"}
    assert read.target == {"argv": ["python3", "train.py", "--epochs", "3"]}
    assert (read.resources.cpus, read.resources.gpus, read.resources.memory) == (32, 4, 244 * 2**30)
    assert read.artifacts.container == "user/repo:tag"
    assert read.workload["metrics"] == [{"name": "a", "unit": "%", "pattern": "a=(.*)", "take": "all"}]


def test_the_text_that_is_printed_is_the_same_scenario():
    converted = made(code='echo "$HOME" | cat', env='vars = {A = "x$y", HF_TOKEN = "$HF_TOKEN"}')
    data = yaml.safe_load(converted.file.made)
    assert data["target"] == {"shell": 'echo "$$HOME" | cat'}
    assert converted.file.scenario.target == {"shell": 'echo "$HOME" | cat'}
    assert converted.file.scenario.workload["environment"] == {"A": "x$y", "HF_TOKEN": "$HF_TOKEN"}  # a reference stays


@check_table(
    "code, target",
    [
        ("python3 a.py 'two words'", {"argv": ["python3", "a.py", "two words"]}),
        ("A=1 python3 a.py", {"shell": "A=1 python3 a.py"}),
        ("$(BAI_SCRIPTS_PATH)/run.sh", {"shell": "${BAI_SCRIPTS_PATH}/run.sh"}),
        ("\n#!/usr/bin/env bash\necho $1\n", {"argv": ["/usr/bin/env", "bash", "-c", "echo $1", "benchmark"]}),
        ("#!/usr/bin/python3\nprint(1)", {"argv": ["/usr/bin/python3", "-c", "print(1)"]}),
    ],
)
def test_only_commands_that_need_a_shell_get_one(code, target):
    assert scenario(code=code).target == target


@check_table(
    "hardware, ranks, nodes",
    [
        ("", 1, 1),
        ("distributed = {num_instances = 2}", 1, 2),
        ('distributed = {num_instances = "3", processes_per_instance = "gpus"}', 4, 3),
        ('distributed = {num_instances = 1, processes_per_instance = "2"}', 2, 1),
    ],
)
def test_horovod_is_a_training_with_ranks(hardware, ranks, nodes):
    read = scenario(strategy="horovod", hardware=hardware)
    assert (read.experiment, read.workload["ranks_per_node"], read.resources.nodes) == ("training.run", ranks, nodes)
    assert scenario(hardware="distributed = {}").experiment == "training.run"


def test_inference_is_a_client_with_a_server_of_the_same_trial():
    server = """[server.hardware]
instance_type = "t3.small"
[server.env]
docker_image = "user/server:1.2"
ports = [8080, 8081]
start_command = "serve --model m"
readiness_probe = {path = "/ping", port = 8081, success_threshold = 2}
[[server.output.metrics]]
name = "n"
units = "1"
pattern = "(1)"
"""
    converted = made(strategy="inference", code="ask --host ${INFERENCE_SERVER_HOST}", rest=server)
    read = converted.file.scenario
    recipe = read.services["server"].recipe
    assert recipe.command == ("{program}", "--model", "m") and recipe.published == "docker.io/user/server:1.2"
    assert (recipe.ready.url, recipe.ready.in_a_row) == ("http://127.0.0.1:8081/ping", 2)
    assert read.workload["environment"] == {
        "INFERENCE_SERVER_HOST": "127.0.0.1", "INFERENCE_SERVER_PORT": "8080", "INFERENCE_SERVER_PORT_1": "8081",
    }  # fmt: skip
    assert (read.resources.cpus, read.resources.gpus) == (34, 4)
    assert any("only what the client prints is measured" in note for note in converted.notes)
    more = server.replace("success_threshold = 2", "period_seconds = 5, failure_threshold = 2")
    more = more.replace("ports", 'liveness_probe = "http://localhost/"\nports').replace(
        "[server.env]", 'aws_zone_id = "a"\n[server.env]'
    )
    told = " ".join(made(strategy="inference", rest=more.replace("server:1.2", "server:latest")).notes)
    for words in ("readiness_probe: period_seconds, failure_threshold: it is asked", "liveness_probe: a server that",
                  "server.hardware.aws_zone_id: it runs", "user/server:latest: another image tomorrow"):  # fmt: skip
        assert words in told and not any(words in note for note in converted.notes)
    privileged = server.replace("ports", "privileged = true\nports")
    assert any("privileged" in message for _, message in refused(strategy="inference", rest=privileged))


def test_words_name_data_where_it_is_fetched_to():
    sources = """[[data.sources]]
src = "http://host/train.gz"
path = "~/data/images/train.gz"
md5 = "D41D8CD98F00B204E9800998ECF8427E"
[[data.sources]]
src = "s3://bucket/validation"
path = "/data/validation"
[[data.sources]]
src = "https://host/model.bin"
path = "/root/.cache/"
"""
    converted = made(code="train --in=~/data/images --val /data/validation --out /data/results", rest=sources)
    read = converted.file.scenario
    below = "train --in={data}/data/images --val {data}/data/validation --out /data/results"
    assert read.target == {"shell": below}  # the tilde of other words is the shell's
    assert [item["path"] for item in read.workload["data"]] == [
        "data/images/train.gz", "data/validation", "root/.cache/model.bin",
    ]  # fmt: skip
    assert read.workload["data"][0]["md5"] == "d41d8cd98f00b204e9800998ecf8427e"
    assert [note for note in converted.notes if "no word of the program names /root/.cache/" in note]


def test_the_site_says_what_a_type_of_machine_is():
    site = Site.model_validate({"instance_types": {"p3.8xlarge": {"cpus": 30, "gpus": 4}, "ours": {"cpus": 3}}})
    assert (scenario(site=site).resources.cpus, scenario(site=site, instance="ours").resources.cpus) == (30, 3)
    assert (scenario(instance="ml.c5.18xlarge").resources.cpus, scenario(instance="m5.large").resources.cpus) == (72, 2)
    assert refused(instance="p3.8xlage") == {(9, "the instance type 'p3.8xlage' is not known")}


def test_what_has_no_effect_is_told():
    converted = made(
        info='scheduling = "@daily"\nexecution_engine = "aws.sagemaker"',
        hardware='aws_zone_id = "use1-az2"',
        rest='framework = "mxnet"\n[custom_params.hyper_params]\namp = "true"\n[data]\nid = "imagenet"\n'
        '[[data.sources]]\nid = "train"\nsrc = "http://host/x"\npath = "/x"',
    )
    told = " ".join(converted.notes)
    assert converted.scheduling == "@daily" and "bench schedule add d.toml" in told
    assert "data: id = imagenet, train: sources are known by their address" in converted.notes
    for word in ("aws.sagemaker", "aws_zone_id", "custom_params: nothing reads hyper_params"):
        assert word in told
    assert converted.file.scenario.labels["framework"] == "mxnet"


def test_a_label_may_have_a_prefix_as_kubernetes_has_them():
    labels = made(labels='\n"example.com/team" = "core"').file.scenario.labels
    assert labels == {"task_name": "my.task", "team": "core", "example.com/team": "core"}


def test_a_framework_that_is_no_value_of_a_label_is_kept_as_one_and_told():
    converted = made(rest='framework = "py torch"\nframework_version = "2.1.0+cu118"')
    labels = converted.file.scenario.labels
    assert (labels["framework"], labels["framework_version"]) == ("py-torch", "2.1.0-cu118")
    assert "ml.framework_version = 2.1.0+cu118: kept as the label '2.1.0-cu118'" in converted.notes
    own = made(labels='\nframework = "ours"', rest='framework = "mxnet"')
    assert own.file.scenario.labels["framework"] == "ours"
    assert own.notes == ["ml.framework = mxnet: info.labels says ours"]


def test_on_kubernetes_the_image_is_that_of_the_pods():
    read = scenario(executor="kubernetes")
    assert (read.kubernetes.image, read.kubernetes.shm, read.artifacts.container) == ("user/repo:tag", 2**30, None)


@pytest.mark.parametrize(
    ("parts", "line", "phrase"),
    [
        ({"env": "privileged = true"}, 14, "a privileged container has all rights"),
        ({"env": "priviledged = false"}, 14, "unknown key 'priviledged'"),
        ({"env": "privileged = 1"}, 14, "expected true or false"),
        ({"env": 'vars = {API_TOKEN = "abc123secretvalue"}'}, 14, "a secret in plain text"),
        ({"labels": '\n"a b" = "c"'}, 8, "no key of a label"),
        ({"code": ""}, 15, "there is no benchmark_code"),
        ({"code": "#!/usr/bin/perl\nprint 1"}, 16, "can't be given in a line"),
        ({"strategy": "client_sever"}, 10, "expected 'single_node'"),
        ({"strategy": "inference"}, 1, "strategy inference needs a [server]"),
        ({"rest": '[[output.metrics]]\nname = "a"\nunits = "1"\npattern = "(a+"'}, 20, "not a regular expression"),
        ({"rest": '[[output.metrics]]\nname = "a"\npattern = "a{99999999999}"'}, 19, "repetition number is too large"),
        ({"rest": f'[[output.metrics]]\nname = "a"\npattern = "{"(" * 3000}"'}, 19, "nested too deep"),
        ({"rest": '[[data.sources]]\nsrc = "http://host/x"\npath = "/x"\nmd5 = "12"'}, 20, "does not match"),
        ({"hardware": "distributed = {num_instances = 0}"}, 11, "at least 1"),
        ({"instance": "t3.small", "strategy": "horovod",
          "hardware": 'distributed = {processes_per_instance = "gpus"}'}, 11, "t3.small has none"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_in_its_line(parts, line, phrase):
    problems = refused(**parts)
    assert [found for found, message in problems if phrase in message] == [line], problems
